"""Promise 8 at ADD where two PFs are on one cable: min rates count over all VFs of both."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.plan.attachment import check_rates, reserved_mbps
from cni.spec.skel import NIC_REFUSAL, CniError
from cni.vf.attach.attach import set_vfs
from cni.vf.attach.move_in import PendingAttachment
from cni.vf.ledger import Ledger
from cni.vf.node import Node, pfs_of_port
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.files import write_shared
from mooring.locks import LockBusyError, hold
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.run_folder import ADVERTISER_VERSION
from mooring.records.shared_ports import FILE, dump_shared_ports


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A host with two Ethernet PFs of 100,000 Mb/s."""
    build(tmp_path / "sys", HOST)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(HOST)
    (tmp_path / "run").mkdir()
    return Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")


def share(node: Node) -> None:
    write_shared(node.run / FILE, dump_shared_ports(((PFS["enp4s0f0"], PFS["enp4s0f1"]),)))


HOST = describe_host("n1", 1, vfs=4)
PFS = {pf.name: pf.pci for pf in HOST.pfs}
VFS = {(one.pf.name, one.vf): one.pci for one in HOST.functions() if one.vf is not None}


def pending(pf: str, vf: int, rate: int) -> PendingAttachment:
    """Return a VF that was entered in the ledger, with the rate to set."""
    settings, pci = VfSettings(min_tx_rate=rate), VFS[pf, vf]
    assigned = AssignedVf(pf, vf, pci, "ethernet", "default", settings)
    entry = LedgerEntry(pci, pf, vf, "taking", "b", "u", "ns/p", "c", "net1", Netns("", 1), Original(), settings)
    return PendingAttachment(assigned, PFS[pf], entry, settings)


def put(node: Node, *all_pending: PendingAttachment) -> None:
    set_vfs(node, all_pending)


def held(node: Node, pfs: Sequence[str] = tuple(PFS)) -> int:
    return sum(reserved_mbps(node.vf_settings.read_all(pf), {}) for pf in pfs)


def test_without_a_record_each_pf_has_its_own_cable(node: Node) -> None:
    put(node, pending("enp4s0f0", 0, 70_000), pending("enp4s0f1", 0, 70_000))
    assert held(node) == 140_000
    assert pfs_of_port(node, PFS["enp4s0f0"]) == (PFS["enp4s0f0"],)


def test_what_the_other_pf_has_reserved_counts(node: Node) -> None:
    """The refusal names both; the last Mb/s of the cable is given."""
    share(node)
    put(node, pending("enp4s0f0", 0, 70_000))
    with pytest.raises(
        CniError, match="100001 Mb/s, 70000 of them on other PFs of the same cable, would exceed"
    ) as refused:
        put(node, pending("enp4s0f1", 0, 30_001))
    assert refused.value.code == NIC_REFUSAL
    put(node, pending("enp4s0f1", 0, 30_000))
    assert held(node) == 100_000


def test_a_vf_that_reserves_nothing_does_not_wait_for_the_other_pf(node: Node) -> None:
    """`init` may hold that one's lock for minutes; an unreadable record of the cables is none of its concern."""
    share(node)
    with hold(node.run, PFS["enp4s0f1"], 0):
        put(node, pending("enp4s0f0", 0, 0))
    write_shared(node.run / FILE, "{")
    put(node, pending("enp4s0f0", 1, 0))
    with pytest.raises(RecordError):
        put(node, pending("enp4s0f0", 1, 1))


def test_two_vfs_of_one_pod_on_both_pfs_count_together(node: Node) -> None:
    """Before the first one is set: a call that is refused has set nothing."""
    share(node)
    with pytest.raises(CniError, match="would exceed its line rate"):
        put(node, pending("enp4s0f0", 0, 60_000), pending("enp4s0f1", 0, 60_000))
    assert held(node) == 0


def test_a_vf_that_wants_no_rate_is_not_refused(node: Node) -> None:
    """A cable that was given more than it has keeps nobody else from starting."""
    put(node, pending("enp4s0f0", 0, 70_000), pending("enp4s0f1", 0, 70_000))
    share(node)
    put(node, pending("enp4s0f1", 1, 0))


def test_an_add_on_either_pf_waits_for_one_on_the_other(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two calls would each see the other's rate too late."""
    share(node)
    monkeypatch.setattr("cni.vf.attach.attach._LOCK_S", 0.1)
    with hold(node.run, PFS["enp4s0f0"], 1.0), pytest.raises(LockBusyError):
        put(node, pending("enp4s0f1", 0, 1000))


def test_a_record_that_cannot_be_read_is_not_taken_for_none(node: Node) -> None:
    write_shared(node.run / FILE, "{")
    with pytest.raises(RecordError, match=FILE):
        put(node, pending("enp4s0f1", 0, 1000))


@pytest.mark.parametrize("kind", ["link", "pipe", "long", "folder"])
def test_what_the_advertiser_may_put_in_the_records_place_is_refused_at_once(node: Node, kind: str) -> None:
    """It serves with fewer rights: a link would have root read another file, and a pipe wait for ever."""
    path = node.run / FILE
    path.parent.mkdir()
    match kind:
        case "link":
            (node.run / "other").write_text(dump_shared_ports(((PFS["enp4s0f0"], PFS["enp4s0f1"]),)))
            path.symlink_to(node.run / "other")
        case "pipe":
            os.mkfifo(path)
        case "long":
            path.write_text(" " * 70_000 + "{}")
        case "folder":
            path.mkdir()
    with pytest.raises(RecordError, match=FILE):
        put(node, pending("enp4s0f1", 0, 1000))


def test_the_record_of_an_earlier_advertiser_counts_until_it_is_another(node: Node) -> None:
    """It wrote to the run folder itself; a newer one writes its version where its record is."""
    shared = (PFS["enp4s0f0"], PFS["enp4s0f1"])
    write_shared(node.run / "ports.json", dump_shared_ports((shared,)))
    assert pfs_of_port(node, shared[0]) == shared
    write_shared(node.run / ADVERTISER_VERSION, "0.1.0")
    assert pfs_of_port(node, shared[0]) == shared[:1]


def test_rates_beside_are_added() -> None:
    """What VFs of the other PF on the cable reserve counts against the same line rate."""
    check_rates("eth0", 100, {}, {0: VfSettings(min_tx_rate=40)}, 60)
    with pytest.raises(CniError, match="101 Mb/s"):
        check_rates("eth0", 100, {}, {0: VfSettings(min_tx_rate=41)}, 60)
