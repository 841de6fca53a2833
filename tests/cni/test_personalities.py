"""A VF's life in a pod on the PFs of every driver: one simulated host with a PF of each personality."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import Function, load_host
from tests.cni.conftest import NODE
from tests.support.polling import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]
NICS = ("mlx5-ethernet", "mlx5-bluefield", "bnxt", "ice", "i40e", "mlx4", "hns3", "ionic")
MAC = "02:00:00:00:00:77"
ALL: dict[str, Any] = {"mac": MAC, "vlan": 7, "qos": 0, "spoofchk": True, "trust": True, "link_state": "enable"}
# What a pod may request, beside what it may on every other NIC.
RATES = {"min_tx_rate": 1000, "max_tx_rate": 5000}
REQUESTS: dict[str, dict[str, Any]] = {
    "mlx5-ethernet": ALL | RATES,
    "mlx5-bluefield": {"mac": MAC},
    "bnxt": ALL | RATES | {"qos": 3},
    "ice": ALL | RATES,
    "i40e": ALL | {"max_tx_rate": 5000},
    "mlx4": {name: value for name, value in ALL.items() if name != "trust"},
    "hns3": ALL | {"max_tx_rate": 5000},
    "ionic": ALL | {"max_tx_rate": 5000},
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """One simulated host with a PF of each driver; each test leaves it as it was, or fails."""
    root = tmp_path_factory.mktemp("hosts")
    nics = [word for nic in NICS for word in ("--nic", nic)]
    options = ("--root", str(root), "--node", NODE, "--pfs", str(len(NICS)), "--vfs", "2", *nics)
    process = subprocess.Popen((sys.executable, "-m", "devcluster.hosts", "up", *options))
    layout = Layout.at(root, NODE)
    wait_until(lambda: layout.description.exists() or process.poll() is not None)
    assert process.poll() is None
    yield layout
    process.terminate()
    assert process.wait(90) == 0


def vf_of(layout: Layout, personality: str) -> Function:
    functions = load_host(layout.description.read_text()).functions()
    return next(each for each in functions if each.pf.personality.name == personality and each.vf == 1)


def assigned(function: Function, **wishes: Any) -> dict[str, Any]:
    return {"pf": function.pf.name, "vf": function.vf, "pci": function.pci, **wishes}


@pytest.mark.parametrize("personality", NICS)
def test_a_pod_gets_what_it_requests_and_leaves_nothing(host: Any, personality: str) -> None:
    """Every setting that the driver takes; afterwards the PF holds of the VF what it held before.

    That includes no admin MAC where the driver reports the VF's own address in its place (ice, i40e, bnxt): a VF that
    has one may not choose its own any more.
    """
    before = host.everything()
    function = vf_of(host.layout, personality)
    host.record(assigned(function, **REQUESTS[personality]))
    answer = host.call("ADD")
    assert answer["status"] == 0, answer
    assert host.in_pod()["net1"]["address"] == MAC
    kept = host.table()["pfs"][function.pf.name]["set"]["1"]
    assert (
        kept.items() >= {name: value for name, value in REQUESTS[personality].items() if value not in (0, True)}.items()
    )
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before


@pytest.mark.parametrize("personality", ["bnxt", "ice"])
def test_spoof_check_alone_pins_no_mac_either(host: Any, personality: str) -> None:
    """ADD sets the VF's own address as its admin MAC for it; DEL removes that."""
    before = host.everything()
    host.record(assigned(vf_of(host.layout, personality), spoofchk=True))
    assert host.call("ADD")["status"] == 0
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before


@pytest.mark.parametrize(
    ("personality", "wishes"), [("mlx5-bluefield", {"trust": True}), ("mlx4", {"max_tx_rate": 5000})]
)
def test_what_a_pf_does_not_do_is_refused_at_add_too(host: Any, personality: str, wishes: dict[str, Any]) -> None:
    """Placement keeps such a pod away; an assignment of before, or by hand, ends here and leaves nothing."""
    before = host.everything()
    host.record(assigned(vf_of(host.layout, personality), **wishes))
    assert host.call("ADD")["code"] == 101
    assert host.everything() == before
