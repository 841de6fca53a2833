"""Nominated pods, as decisions read them. Pure.

A nominated pod waits on one node for its victims to leave. For pods of the same or a lower priority it counts as if it
were already assigned there, including VFs and rates. `scheduler.pending.nominator` keeps the nominations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Nomination:
    """``assigned`` is the pod with what it reserves on its node, ``victims`` are the uids of the pods that make room
    for it.

    If ``until`` is set, the victims have left, and the pod waits until then (monotonic seconds) for their VFs.
    ``group`` is the group whose decision made the nomination; it does not count for that group's members. ``is_kept``:
    no pod is preempted, the nomination only reserves room.
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
    """The nominations by pod uid; they are few, so a search checks all of them."""

    def __init__(self, nominations: dict[str, Nomination]) -> None:
        self._of = nominations

    def snapshot(self) -> "NominatedPods":
        """Return a copy of the current nominations."""
        return NominatedPods(self._of.copy())

    def of(self, uid: str) -> Nomination | None:
        """Return a pod's nomination; None if it has none."""
        return self._of.get(uid)

    def node_of(self, uid: str) -> str:
        """Return the node on which a pod is nominated; empty if none."""
        nomination = self._of.get(uid)
        return nomination.node if nomination is not None else ""

    def counting_for(self, pod_info: PodInfo) -> Mapping[str, list[AssignedPod]]:
        """Return by node the other nominated pods of the same or a higher priority.

        Pods of the pod's own group do not count, because they are placed together with it. Members have their group's
        priority here.
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
