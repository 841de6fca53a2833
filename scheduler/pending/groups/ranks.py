"""The priorities and creation times of groups' waiting members, and the lowest of each group. Pure.

A job may have any number of pods, and each of them comes and goes by itself. They have few priorities, and as many
creation times as there were seconds in which some were made: these are counted, and looked through for the lowest.
"""

from collections import Counter
from collections.abc import Set

from scheduler.kube.group_membership import GroupKey

# A pod's priority, and the RFC 3339 time of its creation.
Rank = tuple[int, str]


class GroupRanks:
    """The ranks by uid, and how many members of each group have each priority and each creation time."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[GroupKey, Rank]] = {}
        self._counts: dict[GroupKey, tuple[Counter[int], Counter[str]]] = {}
        # The latest creation of a member that has been seen: the API server's time, as far as it is visible here.
        self._latest = ""
        # Of members that moved to their group: the latest creation of then.
        self._join_times: dict[str, str] = {}

    def uids(self) -> Set[str]:
        return self._of.keys()

    def join(self, uid: str) -> None:
        """Let a member be no older than the latest that was seen until now, until it is forgotten."""
        self._join_times[uid] = self._latest

    def forget(self, uid: str) -> None:
        """Forget when a pod that is gone has come."""
        self._join_times.pop(uid, None)

    def put(self, uid: str, key: GroupKey, rank: Rank) -> None:
        """Record a waiting member, or that it has changed."""
        self.drop(uid)
        self._latest = max(self._latest, rank[1])
        rank = rank[0], max(rank[1], self._join_times.get(uid, ""))
        self._of[uid] = key, rank
        self._count(key, rank, 1)

    def drop(self, uid: str) -> None:
        """Forget a member that does not wait any more."""
        if (entry := self._of.pop(uid, None)) is not None:
            self._count(*entry, -1)

    def lowest(self, key: GroupKey) -> Rank:
        """Return the lowest priority and the earliest creation of a group's waiting members; there are some."""
        priorities, creations = self._counts[key]
        return min(priorities), min(creations)

    def _count(self, key: GroupKey, rank: Rank, change: int) -> None:
        priorities, creations = self._counts.setdefault(key, (Counter(), Counter()))
        priorities[rank[0]] += change
        creations[rank[1]] += change
        if not priorities[rank[0]]:
            del priorities[rank[0]]
        if not creations[rank[1]]:
            del creations[rank[1]]
        if not priorities:
            del self._counts[key]
