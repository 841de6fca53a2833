"""The VFs that the node's live pods hold, by the events received."""

import pytest

from advertiser.formats.cluster_facts import AssignedVfs, Pod, read_drain
from mooring import names
from mooring.assignment import AssignedVf, Assignment, dump_assignment
from mooring.errors import AnnotationError
from mooring.kube.events import Changed, Identity, Removed, Synced, Unreadable
from mooring.kube.watch import Decoder
from mooring.parsing import dump

PCI = "0000:04:00.5"
_decode = Decoder(Pod)


def pod(uid: str = "u1", node: str = "n1", phase: str = "Running", assigned: str | None = None) -> Pod:
    """Return a pod with one VF, assigned to the uid and node given."""
    vf = AssignedVf(pf="enp4s0f0", vf=3, pci=PCI, link="ethernet", network="default")
    text = dump_assignment(Assignment(assigned or uid, node, (vf,)))
    metadata = {"uid": uid, "annotations": {names.ASSIGNMENT: text}}
    return _decode(dump({"metadata": metadata, "status": {"phase": phase}}).encode())


def changed(item: Pod, name: str = "train") -> Changed[Pod]:
    return Changed(Identity(name, "default", item.metadata.uid), item)


def claims(*entries: Changed[Pod]) -> AssignedVfs:
    held = AssignedVfs("n1")
    held.take(Synced(entries))
    return held


def test_nothing_is_known_before_the_first_list() -> None:
    """None and empty are different: with None no inventory is published."""
    assert AssignedVfs("n1").assigned is None
    assert claims().assigned == frozenset()


def test_a_live_pod_explains_its_vfs() -> None:
    """A live pod's VFs are known by uid, PF, VF and address."""
    assert claims(changed(pod())).assigned == frozenset({("u1", "enp4s0f0", 3, PCI)})


@pytest.mark.parametrize("item", [pod(phase="Succeeded"), pod(phase="Failed"), pod(node="n2"), pod(assigned="u2")])
def test_a_finished_pod_or_a_foreign_assignment_explains_nothing(item: Pod) -> None:
    """A terminal pod's VFs are free for the scheduler; an assignment is believed for its own pod and node only."""
    assert claims(changed(item)).assigned == frozenset()


def test_events_keep_it_up() -> None:
    """Each event returns whether it changed anything."""
    held = claims()
    assert held.take(changed(pod())) is True
    assert held.take(changed(pod())) is False
    assert held.take(Removed(Identity("other", "default", "u9"))) is False
    assert held.take(Removed(Identity("train", "default", "u1"))) is True
    assert held.assigned == frozenset()


def test_a_pod_that_becomes_unreadable_explains_nothing() -> None:
    """A VF of such a pod is reported as held by it."""
    held = claims(changed(pod()))
    assert held.take(Unreadable(Identity("train", "default", "u1"), "why")) is True
    assert held.assigned == frozenset()


def test_a_new_list_replaces_the_old() -> None:
    """A pod that is missing from the new list is removed."""
    held = claims(changed(pod()), changed(pod(uid="u2"), "serve"))
    assert held.take(Synced((changed(pod(uid="u2"), "serve"),))) is True
    assert held.assigned == frozenset({("u2", "enp4s0f0", 3, PCI)})


def test_the_drain_annotation_names_pfs_and_vfs() -> None:
    """A node without the annotation drains nothing."""
    assert read_drain('["enp4s0f0","enp4s0f1/7"]') == {"enp4s0f0", "enp4s0f1/7"}
    assert read_drain(None) == frozenset()


@pytest.mark.parametrize("text", ["enp4s0f0", '{"enp4s0f0":true}', "[7]", ""])
def test_a_drain_annotation_that_is_no_list_of_names_is_refused(text: str) -> None:
    """The error names the key and the place."""
    with pytest.raises(AnnotationError, match=names.DRAIN):
        read_drain(text)
