"""Pods that wait for room which others make for them, each on the node where it is nominated. Pure.

For pods of the same or a lower priority a nominated pod counts as if it sat there already, VFs and rates included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scheduler.cache.cache import AssignedPod


@dataclass(frozen=True, slots=True)
class Nomination:
    """``assigned`` is what the pod counts for on its node, ``victims`` the uids of those who make room for it.

    They are gone, and only their VFs are missed, where it is known ``until`` when those are waited for.
    """

    assigned: AssignedPod
    victims: frozenset[str] = field(default=frozenset())
    until: float | None = None

    @property
    def node(self) -> str:
        return self.assigned.node


class Nominations:
    """The nominations by pod uid; few, so that they are looked through."""

    def __init__(self) -> None:
        self._of: dict[str, Nomination] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def of(self, uid: str) -> Nomination | None:
        return self._of.get(uid)

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated on; empty if none."""
        known = self._of.get(uid)
        return known.node if known is not None else ""

    def put(self, nomination: Nomination) -> None:
        self._of[nomination.assigned.uid] = nomination

    def end(self, uid: str) -> Nomination | None:
        return self._of.pop(uid, None)

    def on(self, node: str) -> list[AssignedPod]:
        """Return the pods that are nominated on a node."""
        return [one.assigned for one in self._of.values() if one.node == node]

    def overdue(self, now: float) -> list[Nomination]:
        """Return those that have waited long enough for VFs."""
        return [one for one in self._of.values() if one.until is not None and one.until <= now]

    def next_due(self) -> float | None:
        """Return when the first of them has; None if none waits for VFs."""
        return min((one.until for one in self._of.values() if one.until is not None), default=None)

    def rivals(self, uid: str, priority: int) -> Mapping[str, list[AssignedPod]]:
        """Return by node the nominated pods that count for a pod of this uid and priority."""
        found: dict[str, list[AssignedPod]] = {}
        for one in self._of.values():
            if one.assigned.priority >= priority and one.assigned.uid != uid:
                found.setdefault(one.node, []).append(one.assigned)
        return found
