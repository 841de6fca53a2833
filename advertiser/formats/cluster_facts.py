"""The cluster's facts about this node: which VFs live pods hold by assignment, and what is drained."""

from collections.abc import Mapping

import msgspec

from advertiser.inventory.facts import AssignedVfKey
from mooring import names
from mooring.assignment import verified_assignment
from mooring.errors import AnnotationError
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from mooring.parsing import parse

_OVER = frozenset({"Succeeded", "Failed"})
_MOST_DRAINED = 4096
_Keys = frozenset[AssignedVfKey]


class _Metadata(msgspec.Struct):
    uid: str = ""
    annotations: Mapping[str, str] | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    """The fields of a pod that matter here."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status = msgspec.field(default_factory=_Status)


class _NodeStatus(msgspec.Struct):
    capacity: Mapping[str, str | int] | None = None
    allocatable: Mapping[str, str | int] | None = None


class Node(msgspec.Struct):
    """The fields of a node that matter here."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class AssignedVfs:
    """The VFs that the pods of one node hold by live assignments, updated with the pods."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._by_pod: dict[tuple[str, str], _Keys] = {}
        self.assigned: _Keys | None = None

    def take(self, event: Event[Pod]) -> bool:
        """Apply an event; return whether it changed ``assigned`` (None before the first whole list)."""
        before = self.assigned
        if isinstance(event, Synced):
            self._by_pod.clear()
        for one in event.entries if isinstance(event, Synced) else (event,):
            self._take(one)
        if before is not None or isinstance(event, Synced):
            self.assigned = frozenset().union(*self._by_pod.values())
        return before != self.assigned

    def _take(self, event: Changed[Pod] | Removed | Unreadable) -> None:
        pod = _key(event.identity)
        held = _assigned_to(event.item, self._node) if isinstance(event, Changed) else frozenset[AssignedVfKey]()
        # Most pods have no VF: no entry is kept for them.
        self._by_pod.pop(pod, None)
        if held:
            self._by_pod[pod] = held


def _key(identity: Identity) -> tuple[str, str]:
    return identity.namespace, identity.name


def _assigned_to(pod: Pod, node: str) -> _Keys:
    if pod.status.phase in _OVER:
        return frozenset()
    try:
        assignment = verified_assignment(pod.metadata.annotations or {}, pod.metadata.uid, node)
    except AnnotationError:
        # An unreadable assignment explains no VF: its VFs show up as held by this pod.
        return frozenset()
    vfs = assignment.vfs if assignment else ()
    return frozenset((pod.metadata.uid, vf.pf, vf.vf, vf.pci) for vf in vfs)


def read_drain(text: str | None) -> frozenset[str]:
    """Read ``mooring.dev/drain``: ``["enp4s0f0","enp4s0f1/7"]``; raise AnnotationError."""
    if text is None:
        return frozenset()
    items = parse(text, names.DRAIN, AnnotationError).items(_MOST_DRAINED)
    return frozenset(item.string(longest=32) for item in items)
