"""VFs that the host itself uses, on a simulated host: inventory, ADD and `init` leave them alone, and name the user."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cni.conftest import NODE, SimulatedHost

pytestmark = pytest.mark.root
PF, PF_PCI, VF_PCI = "enp4s0f0", "0000:04:00.0", "0000:04:00.3"
VF = "enp4s0f0v1"
LEASE = (f"address add 192.0.2.5/24 dev {VF}", f"link set {VF} up")
DEFAULT = (*LEASE, "route add default via 192.0.2.1 metric 100")
USES = {
    "route": (DEFAULT, "IPv4 default route"),
    "bridge": (("link add hostbr type bridge", f"link set {VF} master hostbr"), "port of hostbr"),
    "macvlan": ((f"link add link {VF} name hostmv type macvlan",), "macvlan hostmv"),
    "macvlan elsewhere": (
        (
            f"link add link {VF} name hostmv address 02:00:00:00:00:07 type macvlan",
            "netns add mooring-other",
            "link set hostmv netns mooring-other",
            "-n mooring-other link set hostmv up",
        ),
        "link in another namespace with address 02:00:00:00:00:07",
    ),
}


@pytest.fixture
def ip(host: SimulatedHost) -> Iterator[SimulatedHost]:
    """The host, whose links are as before afterwards."""
    yield host
    undo = (
        "netns del mooring-other",
        "link del hostbr",
        "link del hostmv",
        f"address flush dev {VF}",
        f"link set {VF} down",
    )
    for command in (*undo, f"address flush dev {PF}"):
        host.enter("ip", *command.split())


def run(host: SimulatedHost, *commands: str) -> None:
    for command in commands:
        done = host.enter("ip", *command.split())
        assert done.returncode == 0, (command, done.stderr)


def network(host: SimulatedHost) -> list[str]:
    """Return what the host has: addresses and links of the VF, and all routes."""
    commands = (f"-o address show {VF}", f"-o link show {VF}", "route")
    return [host.enter("ip", *command.split()).stdout for command in commands]


def out(host: SimulatedHost) -> dict[str, str]:
    """Return the reasons for VFs of the first PF that are not on offer."""
    layout = host.layout
    folders = ("--sysfs", layout.sys, "--state", layout.state, "--run", layout.run, "--node-name", NODE)
    done = host.enter(sys.executable, "-m", "advertiser", "show", *map(str, folders), "-o", "json")
    (pf,) = (pf for pf in json.loads(done.stdout)["inventory"]["pfs"] if pf["name"] == PF)
    return {entry["vfs"]: entry["why"] for entry in pf.get("out", ())}


@pytest.mark.parametrize("use", USES)
def test_a_vf_that_the_host_uses_is_not_given_away(ip: SimulatedHost, use: str) -> None:
    """The pod does not start; the host keeps route, bridge and address, also after DEL."""
    commands, what = USES[use]
    run(ip, *commands)
    before = network(ip)
    assert out(ip) == {"1": f"the host uses {VF} ({what})"}
    ip.record({"pf": PF, "vf": 1, "pci": VF_PCI})
    answer = ip.call("ADD")
    assert (answer["status"], answer["code"]) == (1, 100)
    assert answer["msg"] == f"vf 1 of pf '{PF}' ({VF_PCI}) is not available for a pod: the host uses {VF} ({what})"
    assert (ip.ledger(), ip.call("DEL")["status"], network(ip)) == ({}, 0, before)


def test_a_lease_that_the_host_does_not_need_keeps_no_vf(ip: SimulatedHost) -> None:
    """Its default route is beaten by the uplink's: the VF is on offer, and a pod gets it."""
    run(ip, f"address add 198.51.100.5/24 dev {PF}", "route add default via 198.51.100.1 metric 50", *DEFAULT)
    assert out(ip) == {}
    ip.record({"pf": PF, "vf": 1, "pci": VF_PCI})
    assert (ip.call("ADD")["status"], ip.call("DEL")["status"]) == (0, 0)


def test_init_removes_no_vf_that_the_host_uses(ip: SimulatedHost, tmp_path: Path) -> None:
    """It names the user and fails, for fewer VFs and for none."""
    run(ip, *DEFAULT)
    numvfs = ip.layout.sys / "bus/pci/devices" / PF_PCI / "sriov_numvfs"
    before = (numvfs.read_text(), network(ip))
    for wanted in (3, 0):
        offer = tmp_path / "offer.yaml"
        offer.write_text(f"v: 1\npfs:\n- match: {{name: {PF}}}\n  init: {{vfs: {wanted}}}\n")
        folders = ("--sysfs", ip.layout.sys, "--state", tmp_path, "--run", tmp_path / "run", "--node-name", NODE)
        done = ip.enter(sys.executable, "-m", "advertiser", "init", "--offer", str(offer), *map(str, folders))
        assert (done.returncode, (numvfs.read_text(), network(ip))) == (1, before)
        if wanted:
            reason = f"1 are in use: {VF_PCI} (the host uses {VF} (IPv4 default route)): drain the node first"
            assert f"{PF}: has 4 VFs, the offer asks for {wanted}, and {reason}" in done.stderr
