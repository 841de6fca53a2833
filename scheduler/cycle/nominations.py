"""Nominated pods as a decision reads them. Pure.

A nominated pod waits on one node for the room that its victims make. For pods of the same or a lower priority it counts
as if it were assigned there already, VFs and rates included. `scheduler.pending.nominator` keeps the nominations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.cache.cache import AssignedPod
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Nomination:
    """``assigned`` is what the pod counts for on its node, ``victims`` the uids of the pods that make room for it.

    If ``until`` is set, the victims are gone, and the pod waits until then for their VFs. ``group`` is the group whose
    decision made it: it does not count for that group's members. ``is_kept``: nobody leaves for it, it only keeps room.
    """

    assigned: AssignedPod
    victims: frozenset[str] = field(default=frozenset())
    until: float | None = None
    group: GroupKey | None = None
    is_kept: bool = False

    @property
    def node(self) -> str:
        return self.assigned.node


class NominatedPods(Protocol):
    """The nominations by pod uid; `scheduler.pending.nominator` keeps them."""

    def of(self, uid: str) -> Nomination | None:
        """Return a pod's nomination; None if it has none."""

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated on; empty if none."""

    def counting_for(self, pod_info: PodInfo) -> Mapping[str, list[AssignedPod]]:
        """Return by node the other nominated pods of the same or a higher priority."""

    def counting_for_group(self, group: GroupKey, priority: int) -> Mapping[str, list[AssignedPod]]:
        """Return by node the nominated pods of the same or a higher priority that are not in the group."""
