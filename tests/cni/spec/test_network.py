"""The configuration of a network, which a tenant may write."""

from typing import Any

import pytest

from cni.spec.conf import read_conf
from cni.spec.network import read_ipam
from cni.spec.skel import Call, CniError


def test_an_ipam_configuration_of_any_length_would_fill_the_ledger() -> None:
    """Each VF's entry has it: one that leaves no room there is refused at ADD, and named."""
    ipam = {"type": "host-local", "x": "x" * 65_000}
    assert read_ipam(ipam, "ipam") == ipam
    with pytest.raises(CniError, match=r"'ipam' has 700\d\d characters, more than the limit of 65536") as refused:
        read_ipam({"type": "host-local", "x": "x" * 70_000}, "ipam")
    assert refused.value.code == 7


@pytest.mark.parametrize(
    ("networks", "complaint"),
    [
        ({f"n{number}": {} for number in range(1025)}, "1025 networks exceed the limit of 1024"),
        (
            {f"n{number}": {"routes": [{"dst": "10.0.0.0/8"}] * 100} for number in range(41)},
            "4100 routes exceed the limit of 4096",
        ),
    ],
)
def test_more_networks_and_routes_than_anybody_has_are_refused_unread(networks: dict[str, Any], complaint: str) -> None:
    """30,000 networks, as a NetworkAttachmentDefinition has room for, took 0.4 s of all calls' time."""
    conf: dict[str, object] = {"cniVersion": "1.0.0", "name": "n", "type": "mooring-cni", "networks": networks}
    call = Call("STATUS", "", None, "", {}, (), conf)
    with pytest.raises(CniError, match=f"'networks': {complaint}") as refused:
        read_conf(call, conf, "1.0.0")
    assert refused.value.code == 7
    for network in networks.values():
        network.pop("routes", None)
    conf["networks"] = dict(list(networks.items())[:1024])
    assert len(read_conf(call, conf, "1.0.0").networks) == min(len(networks), 1024)
