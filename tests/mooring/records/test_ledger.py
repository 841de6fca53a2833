"""The ledger's entries: fields that versions have added, and entries from before them."""

import json
from dataclasses import replace

import pytest

from mooring.errors import RecordError
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name, read_ledger_entry

PCI = "0000:3b:01.0"
ENTRY = LedgerEntry(
    pci=PCI,
    pf="eth0",
    vf=0,
    phase="returning",
    boot="b",
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=Netns("/run/netns/pod", 4711),
    original=Original("eth2", parent=PCI, netdev={"xdp": "", "features": "4fdd09e90000612e"}),
    deleted=True,
    rdma_only=True,
)


def read(document: dict[str, object]) -> LedgerEntry:
    return read_ledger_entry(json.dumps(document), ledger_name(PCI))


def test_what_add_noted_of_a_netdev_and_that_del_came_is_kept() -> None:
    """Both decide what a later DEL, or the reconciler, may do."""
    assert read(json.loads(dump_ledger_entry(ENTRY))) == ENTRY


def test_an_entry_of_an_earlier_version_is_read_without_them() -> None:
    """Its pod started before the upgrade: nothing is known of its netdev, and DEL has not come."""
    document = json.loads(dump_ledger_entry(ENTRY))
    del document["deleted"], document["rdma_only"]
    del document["original"]["parent"], document["original"]["netdev"]
    assert read(document) == replace(ENTRY, deleted=False, rdma_only=False, original=Original("eth2"))


@pytest.mark.parametrize(
    ("name", "rdma_only", "is_one"), [("eth2", False, True), ("eth2", True, False), (None, False, False)]
)
def test_a_vf_is_an_interface_if_it_has_a_netdev_that_the_pod_got(
    name: str | None, rdma_only: bool, is_one: bool
) -> None:
    assert replace(ENTRY, original=Original(name), rdma_only=rdma_only).has_interface == is_one


@pytest.mark.parametrize(
    ("field", "value"), [("parent", "eth2"), ("netdev", ["xdp"]), ("netdev", {"xdp": 1}), ("netdev", {"a": "x" * 1025})]
)
def test_a_note_of_another_kind_is_refused(field: str, value: object) -> None:
    document = json.loads(dump_ledger_entry(ENTRY))
    document["original"][field] = value
    with pytest.raises(RecordError, match=f"original.*{field}"):
        read(document)
