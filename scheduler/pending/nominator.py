"""The nominated pods, each on one node, and which pods to requeue when a nomination ends. Pure.

The name is that of kube-scheduler's nominator, which keeps the same map with its queue.
"""

from collections.abc import Iterator, Sequence

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.nominations import NominatedPods, Nomination
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.event_hints import of_leaving
from scheduler.queue.queue import Queue


class Nominator(NominatedPods):
    """The current nominations; the end of one requeues the pods that its room can help."""

    def __init__(self, queue: Queue) -> None:
        super().__init__({})
        self._queue = queue

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def on(self, node: str) -> list[AssignedPod]:
        """Return the pods that are nominated on a node."""
        return [nomination.assigned for nomination in self._of.values() if nomination.node == node]

    def add(self, nomination: Nomination) -> None:
        """Reserve room for a pod, in place of its earlier nomination."""
        self._of[nomination.assigned.uid] = nomination

    def nominate(self, nomination: Nomination, now: float) -> None:
        """Reserve room for a pod; reject the nominations of less important pods on its node."""
        self.nominate_all((nomination,), now)

    def nominate_all(self, nominations: Sequence[Nomination], now: float) -> None:
        """Reserve room for several pods at once; release what was reserved for other pods of their groups."""
        priorities: dict[str, int] = {}
        for nomination in nominations:
            if self.node_of(nomination.assigned.uid) != nomination.node:
                self.delete(nomination.assigned.uid, now)
        groups, uids = (
            {nomination.group for nomination in nominations} - {None},
            {nomination.assigned.uid for nomination in nominations},
        )
        for group in {
            nomination.group for uid, nomination in self._of.items() if nomination.group in groups and uid not in uids
        }:
            assert group is not None, "pods without a group are left out"
            self.delete_group(group, now)
        for nomination in nominations:
            self.add(nomination)
            priorities[nomination.node] = max(
                nomination.assigned.priority, priorities.get(nomination.node, nomination.assigned.priority)
            )
        for rival in list(self._of.values()) if priorities else ():
            # Room that is reserved for one group is shared as its decision says, whatever its members' priorities.
            is_less = rival.assigned.priority < priorities.get(rival.node, rival.assigned.priority)
            if is_less and rival.group not in groups:
                self.reject(rival.assigned.uid, now)

    def delete(self, uid: str, now: float) -> None:
        """Delete a pod's nomination, if it has one; others may take the room.

        The nominations of a group are deleted together.
        """
        nomination = self._of.pop(uid, None)
        if nomination is None:
            return
        self._queue.move_on_event(of_leaving(nomination.assigned), now)
        if nomination.group is not None:
            self.delete_group(nomination.group, now)

    def groups(self) -> set[GroupKey]:
        """Return the groups that have nominations."""
        return {nomination.group for nomination in self._of.values() if nomination.group is not None}

    def delete_group(self, group: GroupKey, now: float) -> None:
        """Delete all nominations of a group."""
        for nomination in [member for member in self._of.values() if member.group == group]:
            del self._of[nomination.assigned.uid]
            self._queue.move_on_event(of_leaving(nomination.assigned), now)

    def delete_kept(self, group: GroupKey, now: float) -> None:
        """Delete the nominations of a group that only reserve room."""
        if any(nomination.is_kept for nomination in self._of.values() if nomination.group == group):
            self.delete_group(group, now)

    def reject(self, uid: str, now: float) -> None:
        """Delete a pod's nomination and requeue the pod, so that it is scheduled again."""
        self.delete(uid, now)
        self._queue.requeue(uid)

    def delete_node(self, node: str, now: float) -> None:
        """Reject all nominations on a deleted node."""
        for assigned_pod in self.on(node):
            self.reject(assigned_pod.uid, now)

    def overdue(self, now: float) -> list[Nomination]:
        """Return the nominations that have waited too long for VFs."""
        return [
            nomination for nomination in self._of.values() if nomination.until is not None and nomination.until <= now
        ]

    def next_due(self) -> float | None:
        """Return when the first of them is overdue; None if none waits for VFs."""
        return min((nomination.until for nomination in self._of.values() if nomination.until is not None), default=None)
