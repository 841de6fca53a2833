"""The nominated pods, each on one node, and which pods to requeue when a nomination ends. Pure.

Named after kube-scheduler's nominator, which keeps the same map beside its queue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler.cache.cache import AssignedPod
from scheduler.cycle.nominations import Nomination
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.event_hints import of_leaving
from scheduler.queue.queue import Queue


class Nominator:
    """The nominations by pod uid; few, so a search checks all of them.

    It implements `scheduler.cycle.nominations.NominatedPods` for decisions. The end of a nomination frees room: the
    pods in the queue that this can help are requeued.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._of: dict[str, Nomination] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def of(self, uid: str) -> Nomination | None:
        """Return a pod's nomination; None if it has none."""
        return self._of.get(uid)

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated on; empty if none."""
        known = self._of.get(uid)
        return known.node if known is not None else ""

    def on(self, node: str) -> list[AssignedPod]:
        """Return the pods that are nominated on a node."""
        return [one.assigned for one in self._of.values() if one.node == node]

    def counting_for(self, pod_info: PodInfo) -> Mapping[str, list[AssignedPod]]:
        """Return by node the other nominated pods of the same or a higher priority.

        Those of the pod's own group do not count: their places are looked for together with its own. A group's members
        have the group's priority here.
        """
        if not self._of:
            return {}
        group = pod_info.membership.key if pod_info.membership is not None else None
        others = (one for one in self._of.values() if one.assigned.uid != pod_info.uid)
        priority = pod_info.priority if pod_info.group_priority is None else pod_info.group_priority
        return _by_node(others, group, priority)

    def counting_for_group(self, group: GroupKey, priority: int) -> Mapping[str, list[AssignedPod]]:
        """Return by node the nominated pods of the same or a higher priority that are not in the group."""
        return _by_node(self._of.values(), group, priority)

    def add(self, nomination: Nomination) -> None:
        """Keep room for a pod, in place of its earlier nomination."""
        self._of[nomination.assigned.uid] = nomination

    def nominate(self, nomination: Nomination, now: float) -> None:
        """Keep room for a pod; reject the nominations of less important pods on its node."""
        self.nominate_all((nomination,), now)

    def nominate_all(self, nominations: Sequence[Nomination], now: float) -> None:
        """Keep room for several pods at once; what was kept for others of their groups is free again."""
        priorities: dict[str, int] = {}
        for one in nominations:
            if self.node_of(one.assigned.uid) != one.node:
                self.delete(one.assigned.uid, now)
        groups, uids = {one.group for one in nominations} - {None}, {one.assigned.uid for one in nominations}
        for group in {one.group for uid, one in self._of.items() if one.group in groups and uid not in uids}:
            assert group is not None, "pods without a group are left out"
            self.delete_group(group, now)
        for one in nominations:
            self.add(one)
            priorities[one.node] = max(one.assigned.priority, priorities.get(one.node, one.assigned.priority))
        for other in list(self._of.values()) if priorities else ():
            # Room that is kept for the same group is shared as its decision says, whatever its members' priorities.
            is_less = other.assigned.priority < priorities.get(other.node, other.assigned.priority)
            if is_less and other.group not in groups:
                self.reject(other.assigned.uid, now)

    def delete(self, uid: str, now: float) -> None:
        """Delete a pod's nomination, if it has one; others may take the room.

        The nominations of a group stand and fall as one.
        """
        ended = self._of.pop(uid, None)
        if ended is None:
            return
        self._queue.move_on_event(of_leaving(ended.assigned), now)
        if ended.group is not None:
            self.delete_group(ended.group, now)

    def groups(self) -> set[GroupKey]:
        """Return the groups that have nominations."""
        return {one.group for one in self._of.values() if one.group is not None}

    def delete_group(self, group: GroupKey, now: float) -> None:
        """Delete all nominations of a group."""
        for one in [each for each in self._of.values() if each.group == group]:
            del self._of[one.assigned.uid]
            self._queue.move_on_event(of_leaving(one.assigned), now)

    def delete_kept(self, group: GroupKey, now: float) -> None:
        """Delete the nominations of a group that only keep room."""
        if any(one.is_kept for one in self._of.values() if one.group == group):
            self.delete_group(group, now)

    def reject(self, uid: str, now: float) -> None:
        """Delete a pod's nomination and requeue the pod, so that it is scheduled again."""
        self.delete(uid, now)
        self._queue.requeue(uid)

    def delete_node(self, node: str, now: float) -> None:
        """Reject all nominations on a deleted node."""
        for assigned in self.on(node):
            self.reject(assigned.uid, now)

    def overdue(self, now: float) -> list[Nomination]:
        """Return the nominations that have waited long enough for VFs."""
        return [one for one in self._of.values() if one.until is not None and one.until <= now]

    def next_due(self) -> float | None:
        """Return when the first of them is overdue; None if none waits for VFs."""
        return min((one.until for one in self._of.values() if one.until is not None), default=None)


def _by_node(nominations: Iterable[Nomination], group: GroupKey | None, priority: int) -> dict[str, list[AssignedPod]]:
    """Return the pods of the same or a higher priority by node, without those of a group."""
    found: dict[str, list[AssignedPod]] = {}
    for one in nominations:
        if one.assigned.priority >= priority and (one.group is None or one.group != group):
            found.setdefault(one.node, []).append(one.assigned)
    return found
