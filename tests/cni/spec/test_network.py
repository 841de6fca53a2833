"""The configuration of a network, which a tenant may write."""

import pytest

from cni.spec.network import read_ipam
from cni.spec.skel import CniError


def test_an_ipam_configuration_of_any_length_would_fill_the_ledger() -> None:
    """Each VF's entry has it: one that leaves no room there is refused at ADD, and named."""
    ipam = {"type": "host-local", "x": "x" * 65_000}
    assert read_ipam(ipam, "ipam") == ipam
    with pytest.raises(CniError, match=r"'ipam' has 700\d\d characters, the most is 65536") as refused:
        read_ipam({"type": "host-local", "x": "x" * 70_000}, "ipam")
    assert refused.value.code == 7
