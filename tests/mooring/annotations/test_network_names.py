"""A network's name, which may be that of a NetworkAttachmentDefinition, in each document that has one."""

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment, read_assignment, verified_assignment
from mooring.annotations.inventory import Inventory, Pf, dump_inventory, read_inventory
from mooring.annotations.request import read_request
from mooring.errors import AnnotationError, RecordError
from mooring.indexes import Indexes
from mooring.records.ledger import (
    Attachment,
    LedgerEntry,
    Netns,
    Original,
    dump_ledger_entry,
    ledger_name,
    read_ledger_entry,
)
from mooring.records.node_offer import PfOffer, dump_node_offer, read_node_offer

NAME = "sriov/rail0"
PCI = "0000:04:00.2"


def test_a_definitions_name_is_the_same_network_in_request_inventory_assignment_offer_and_ledger() -> None:
    """Nothing translates it: what the pod asks for is what the PF is on, and what the node reads."""
    request = read_request({names.REQUEST: f'[{{"network": "{NAME}"}}]'})
    assert request is not None
    assert request.interfaces[0].network == NAME
    pf = Pf("enp4s0f0", "0000:04:00.0", "ethernet", NAME, 100_000, 100_000, up=True, vfs=Indexes.of([0]), vf0=PCI)
    assert read_inventory(dump_inventory(Inventory("b", (pf,)))).pfs[0].network == NAME
    assignment = Assignment("u1", "n1", (AssignedVf("enp4s0f0", 0, PCI, "ethernet", NAME),))
    text = dump_assignment(assignment)
    assert read_assignment(text) == assignment == verified_assignment({names.ASSIGNMENT: text}, "u1", "n1")
    offer = {"0000:04:00.0": PfOffer(network=NAME)}
    assert read_node_offer(dump_node_offer(offer)) == offer
    attachment = Attachment("net", "eth0", NAME)
    entry = LedgerEntry(
        PCI, "p", 0, "held", "b", "u", "ns/p", "c", "net1", Netns("/n", 1), Original(), attachment=attachment
    )
    assert read_ledger_entry(dump_ledger_entry(entry), ledger_name(PCI)).attachment == attachment


@pytest.mark.parametrize(
    "name",
    ["/rail0", "sriov/", "a/b/c", "Sriov/rail0", "s.riov/rail0", "-a/b", "a/../b", f"{'n' * 64}/b", f"a/{'n' * 64}"],
)
def test_what_is_no_name_of_a_definition_is_refused(name: str) -> None:
    """A namespace is a label of DNS; one slash, and something on both sides of it."""
    with pytest.raises(AnnotationError, match="or namespace/name"):
        read_request({names.REQUEST: f'[{{"network": "{name}"}}]'})
    with pytest.raises(RecordError, match="or namespace/name"):
        read_node_offer(dump_node_offer({"0000:04:00.0": PfOffer(network=name)}))
