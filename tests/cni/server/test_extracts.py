"""What the advertiser's group may read of the ledger: an extract that each write renews, and the reconciler mends."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.server.extracts import make_folders, mend, show_hardware_results, show_recorded_pods
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records import extract, hardware_result
from mooring.records.ledger import Attachment, Ipam, LedgerEntry, Netns, Original, ledger_name, read_ledger_entry
from mooring.records.run_folder import ADVERTISER, READY, VERSIONS
from tests.cni.no_vf_settings import NoVfSettings

PCI, OTHER = "0000:04:00.2", "0000:04:00.3"
SECRET = "of-the-ipam-plugin"
ENTRY = LedgerEntry(
    PCI,
    "enp4s0f0",
    0,
    "held",
    "boot",
    "uid-1",
    "default/train",
    "c1",
    "net1",
    Netns("/run/netns/cni-1", 7),
    Original(name="enp4s0f0v0", netdev_mac="02:00:00:00:00:01", mtu=1500),
    VfSettings(min_tx_rate=5000),
    ("10.56.0.7/24",),
    Ipam("net1", {"type": "whereabouts", "password": SECRET}),
    "mlx5_3",
    Attachment("mooring", "eth0", "rail0"),
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose server has made the folders."""
    make_folders(tmp_path / "run")
    return Node(
        Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state", tmp_path / "run"), tmp_path / "run", NoVfSettings(), "boot"
    )


def shown(node: Node, pci: str = PCI) -> str | None:
    path = node.run / extract.VFS / f"{pci}.json"
    return path.read_text() if path.exists() else None


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def test_an_extract_says_who_holds_the_vf_and_nothing_of_how_it_was(node: Node) -> None:
    """An IPAM configuration may have a password; what the advertiser judges a VF by, and tells of it, is there."""
    node.ledger.write(ENTRY)
    text = shown(node) or ""
    read = read_ledger_entry(text, ledger_name(PCI))
    assert not [word for word in (SECRET, "cni-1", "enp4s0f0v0", "mtu") if word in text]
    judged = ("pci", "pf", "vf", "phase", "boot", "uid", "pod", "reserved_mbps", "share", "reset_at")
    kept = (*judged, "container", "ifname", "addresses", "rdma", "attachment")
    assert [getattr(read, name) for name in kept] == [getattr(ENTRY, name) for name in kept]
    assert read.original == Original(netdev_mac=ENTRY.original.netdev_mac)
    node.ledger.remove(PCI)
    assert shown(node) is None


def test_the_group_reads_extracts_and_writes_only_what_is_the_advertisers(node: Node) -> None:
    """Files get the folder's group by themselves: the shim has no right to give it."""
    node.ledger.write(ENTRY)
    folders = (extract.FOLDER, extract.VFS, extract.PODS, ADVERTISER, VERSIONS, str(Path(READY).parent))
    assert [mode(node.run / name) for name in folders] == ["2750", "2750", "2750", "2770", "755", "755"]
    path = node.run / extract.VFS / f"{PCI}.json"
    assert (mode(path), path.stat().st_gid) == ("640", path.parent.stat().st_gid)
    assert mode(node.ledger.state / ledger_name(PCI)) == "600"


def test_the_reconciler_mends_what_a_killed_program_has_left_out(node: Node) -> None:
    """An extract that is missing, of an earlier phase, without its entry, or of an entry that cannot be read."""
    node.ledger.write(ENTRY, replace(ENTRY, pci=OTHER, vf=1))
    node.ledger.show(PCI, extract.vf_extract(replace(ENTRY, phase="taking")))
    node.ledger.show(OTHER, None)
    node.ledger.show("0000:04:00.4", extract.vf_extract(replace(ENTRY, pci="0000:04:00.4")))
    mend(node, {PCI: ENTRY, OTHER: replace(ENTRY, pci=OTHER, vf=1)}, ())
    assert [shown(node, pci) for pci in (PCI, OTHER, "0000:04:00.4")] == [
        extract.vf_extract(ENTRY),
        extract.vf_extract(replace(ENTRY, pci=OTHER, vf=1)),
        None,
    ]
    (node.ledger.state / ledger_name(PCI)).write_text("{")
    mend(node, {OTHER: replace(ENTRY, pci=OTHER, vf=1)}, [f"{PCI}.json"])
    assert shown(node) == ""


def test_a_vf_that_a_call_works_on_is_left_to_that_call(node: Node) -> None:
    """What was read before the call began is older than what the call writes."""
    node.ledger.write(ENTRY)
    with hold(node.run, PCI, limit_s=0):
        mend(node, {}, ())
        assert shown(node) is not None


def test_pods_recorded_before_there_were_extracts_are_shown(node: Node) -> None:
    """An upgrade under running pods: their VFs are not theirs by chance."""
    (node.ledger.state / "pods").mkdir(parents=True)
    (node.ledger.state / "pods/uid-1.json").write_text("{}")
    show_recorded_pods(node.ledger.state, node.run)
    assert (node.run / extract.PODS / "uid-1.json").read_text() == "{}"


def test_a_node_without_the_folders_has_no_extracts(tmp_path: Path) -> None:
    """The server makes them; until then a call does its work all the same."""
    ledger = Ledger(tmp_path / "state", tmp_path / "run")
    ledger.write(ENTRY)
    ledger.remove(PCI)
    assert not (tmp_path / "run").exists()


def test_a_boot_shows_the_results_of_earlier_hardware_tests(node: Node, tmp_path: Path) -> None:
    """The run folder begins empty with each boot, and the state folder is root's."""
    (tmp_path / "state" / hardware_result.FOLDER).mkdir(parents=True)
    (tmp_path / "state" / hardware_result.FOLDER / "0000:04:00.0.json").write_text("what the test has written")
    show_hardware_results(tmp_path / "state", node.run)
    path = node.run / hardware_result.EXTRACT_FOLDER / "0000:04:00.0.json"
    assert (path.read_text(), mode(path)) == ("what the test has written", "640")
