"""VFs that pods request without a netdev, on a simulated host whose InfiniBand VFs have one.

RDMA is shared there, or not: nothing moves. `tests/lab/test_without_netdev.py` has both modes.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cni.conftest import SimulatedHost
from tests.support.polling import wait_until
from tests.support.simulated_nics import INFINIBAND

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
    pytest.mark.parametrize(
        "nic", [pytest.param(INFINIBAND, id="infiniband", marks=pytest.mark.other_nic)], indirect=True
    ),
]
ALONE = {key: value for key, value in INFINIBAND.first.items() if key != "name"} | {"netdev": False}


def test_a_chained_call_passes_the_result_on_and_the_netdev_stays_down_on_the_host(host: SimulatedHost) -> None:
    """No interface, no address; CHECK agrees, and every DEL leaves all as it was."""
    before, chained = host.everything(), host.conf()
    host.record(ALONE)
    result = host.call("ADD")
    previous = chained["prevResult"]
    assert result == {"status": 0, **previous}
    assert host.in_pod().keys() == {"lo"}
    (entry,) = host.ledger().values()
    assert (entry["phase"], entry["rdma_only"], entry["original"]["name"]) == ("held", True, "enp4s0f0v1")
    assert "UP" not in host.links()["mo0-0403"]["flags"]
    assert host.addresses() == []
    assert host.call("CHECK", host.conf(prevResult=previous)) == {"status": 0}
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before
    assert host.call("DEL", netns="") == {"status": 0}
    assert host.everything() == before


@pytest.mark.parametrize("version", ["0.4.0", "1.1.0"])
def test_alone_in_a_call_it_has_a_result_without_interfaces(host: SimulatedHost, version: str) -> None:
    """As the main plugin, or as a delegate of Multus."""
    conf = {key: value for key, value in host.conf(cniVersion=version).items() if key != "prevResult"}
    host.record(ALONE)
    expected: dict[str, Any] = {"status": 0, "cniVersion": version, "interfaces": [], "ips": []}
    assert host.call("ADD", conf, ifname="net1") == expected
    assert host.call("DEL", conf, ifname="net1") == {"status": 0}


def test_the_server_gives_it_back_once_its_namespace_is_gone(host: SimulatedHost) -> None:
    """Without a DEL; an ADD in its place finds nothing of it."""
    before = host.everything()
    host.record(ALONE)
    with host.served("--reconcile-s", "0.5"):
        assert host.call("ADD")["status"] == 0
        subprocess.run(("ip", "netns", "delete", host.pod), check=True)
        wait_until(lambda: host.everything() == before)
