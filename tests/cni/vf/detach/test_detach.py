"""Give several VFs back: one that cannot be had now does not keep the others."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cni import cmd_del
from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.skel import TRY_AGAIN, Call, CniError
from cni.vf.attach import attach
from cni.vf.detach import detach
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.errors import RecordError
from mooring.files import write_file
from mooring.locks import hold
from mooring.parsing import MAX_BYTES
from mooring.records.ledger import Ipam, LedgerEntry, Netns, Original, dump_ledger_entry
from mooring.records.pod_record import PodRecord, dump_pod_record, pod_record_name
from tests.cni.no_vf_settings import NoVfSettings

BUSY, FREE = "0000:3b:01.0", "0000:3b:01.1"
ENTRY = LedgerEntry(
    pci=BUSY,
    pf="eth0",
    vf=0,
    phase="held",
    boot="b",
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=Netns("/run/netns/mooring-no-such-netns", 4711),
    original=Original("eth2"),
)
DEL = Call(command="DEL", container="c1", netns=None, ifname="eth0", args={}, path=(), conf={})


class Unreadable(Ledger):
    """A ledger on a disk that has lost one entry."""

    def read(self, pci: str) -> LedgerEntry | None:
        if pci == BUSY:
            raise OSError(5, "Input/output error")
        return super().read(pci)


def node_with(ledger: Ledger) -> Node:
    """Return a node whose VFs have left the machine, both of them in the ledger."""
    for entry in (ENTRY, replace(ENTRY, pci=FREE, vf=1)):
        ledger.write(entry)
    return Node(Sysfs(ledger.state / "sys"), ledger, ledger.state / "run", NoVfSettings(), "b")


def left(node: Node) -> list[str]:
    return sorted(path.stem for path in (node.ledger.state / "vfs").iterdir())


def test_vfs_of_one_sandbox_are_given_back_at_once(tmp_path: Path) -> None:
    """One VF waits seconds for processes that have its device: the other one does not wait for it."""
    both = threading.Barrier(2)

    class Meeting(Ledger):
        def remove(self, pci: str) -> None:
            both.wait(90)
            super().remove(pci)

    node = node_with(Meeting(tmp_path))
    cmd_del.run(node, DEL, Conf("net", "1.0.0"))
    assert left(node) == []


def test_a_vf_whose_lock_is_busy_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DEL names the VF that failed, to be retried; the rest of the sandbox's VFs are released."""
    monkeypatch.setattr(detach, "_LOCK_S", 0.0)
    node = node_with(Ledger(tmp_path))
    with hold(node.run, BUSY, 0), pytest.raises(CniError, match=BUSY) as error:
        cmd_del.run(node, DEL, Conf("net", "1.0.0"))
    assert (error.value.code, left(node)) == (TRY_AGAIN, [BUSY])
    cmd_del.run(node, DEL, Conf("net", "1.0.0"))
    assert left(node) == []


def test_a_ledger_that_cannot_be_read_whole_fails_del(tmp_path: Path) -> None:
    """The entry that the disk, or a lack of descriptors, keeps may be the sandbox's; the rest is given back."""
    node = node_with(Unreadable(tmp_path))
    vfs = tuple(AssignedVf("eth0", index, pci, "ethernet", "default") for index, pci in enumerate((BUSY, FREE)))
    write_file(tmp_path / pod_record_name("u1"), dump_pod_record(PodRecord("ns/p", Assignment("u1", "n1", vfs))))
    with pytest.raises(CniError, match="some ledger entries cannot be read") as error:
        cmd_del.run(node, replace(DEL, args={"K8S_POD_UID": "u1"}), Conf("net", "1.0.0"))
    assert (error.value.code, left(node)) == (TRY_AGAIN, [BUSY])


def test_an_entry_that_cannot_be_read_keeps_no_sandbox_without_vfs(tmp_path: Path) -> None:
    """Its pod has no record, so that the entry is another's."""
    node = node_with(Unreadable(tmp_path))
    cmd_del.run(node, DEL, Conf("net", "1.0.0"))
    assert left(node) == [BUSY]


def test_an_entry_too_deep_to_read_keeps_no_other(tmp_path: Path) -> None:
    """The record names no owner, like any other malformed record: DEL skips it."""
    node = node_with(Ledger(tmp_path))
    (tmp_path / "vfs" / "0000:3b:02.0.json").write_text("[" * 100_000)
    cmd_del.run(node, DEL, Conf("net", "1.0.0"))
    assert left(node) == ["0000:3b:02.0"]


def test_an_entry_that_cannot_be_read_does_not_keep_a_failed_adds_others(tmp_path: Path) -> None:
    """The entry's error does not replace the error of the failed ADD."""
    node = node_with(Unreadable(tmp_path))
    vfs = [AssignedVf("eth0", index, pci, "ethernet", "default") for index, pci in enumerate((FREE, BUSY))]
    attach._detach_vfs(node, vfs)
    assert left(node) == [BUSY]


def test_an_entry_that_became_too_long_to_write_keeps_no_vf(tmp_path: Path) -> None:
    """What a tenant's IPAM configuration left no room for: DEL answered success, and nobody ever gave the VF back."""
    ledger = Ledger(tmp_path)
    bare = replace(ENTRY, ipam=Ipam("net1", {"x": ""}))
    room = MAX_BYTES - len(dump_ledger_entry(bare))
    ledger.write(replace(bare, ipam=Ipam("net1", {"x": "x" * room})))
    node = Node(Sysfs(tmp_path / "sys"), ledger, tmp_path / "run", NoVfSettings(), "b")
    with pytest.raises(RecordError):
        ledger.write(replace(next(ledger.entries()), phase="returning", deleted=True))
    cmd_del.run(node, DEL, Conf("net", "1.0.0"))
    assert left(node) == []
