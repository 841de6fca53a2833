"""Nominated pods as a decision reads them. Pure.

A nominated pod waits on one node for the room that its victims make. For pods of the same or a lower priority it counts
as if it were assigned there already, VFs and rates included. `scheduler.pending.nominator` keeps the nominations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.cache.assigned_pod import AssignedPod
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


class NominatedPods:
    """The nominations by pod uid; few, so a search checks all of them."""

    def __init__(self, nominations: dict[str, Nomination]) -> None:
        self._of = nominations

    def snapshot(self) -> "NominatedPods":
        """Return the nominations as they are now."""
        return NominatedPods(self._of.copy())

    def of(self, uid: str) -> Nomination | None:
        """Return a pod's nomination; None if it has none."""
        return self._of.get(uid)

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated on; empty if none."""
        nomination = self._of.get(uid)
        return nomination.node if nomination is not None else ""

    def counting_for(self, pod_info: PodInfo) -> Mapping[str, list[AssignedPod]]:
        """Return by node the other nominated pods of the same or a higher priority.

        Those of the pod's own group do not count: their places are looked for together with its own. A group's members
        have the group's priority here.
        """
        if not self._of:
            return {}
        group = pod_info.membership.key if pod_info.membership is not None else None
        nominations = (nomination for nomination in self._of.values() if nomination.assigned.uid != pod_info.uid)
        priority = pod_info.priority if pod_info.group_priority is None else pod_info.group_priority
        return _by_node(nominations, group, priority)

    def counting_for_group(self, group: GroupKey, priority: int) -> Mapping[str, list[AssignedPod]]:
        """Return by node the nominated pods of the same or a higher priority that are not in the group."""
        return _by_node(self._of.values(), group, priority)


def _by_node(nominations: Iterable[Nomination], group: GroupKey | None, priority: int) -> dict[str, list[AssignedPod]]:
    """Return the pods of the same or a higher priority by node, without those of a group."""
    pods_by_node: dict[str, list[AssignedPod]] = {}
    for nomination in nominations:
        if nomination.assigned.priority >= priority and (nomination.group is None or nomination.group != group):
            pods_by_node.setdefault(nomination.node, []).append(nomination.assigned)
    return pods_by_node
