"""The priorities and creation times of groups' waiting members, and the lowest of each group. Pure.

A job may have any number of pods, and each of them comes and goes by itself: the lowest is known without a look at the
others. Each group has two heaps. An entry of a member that is gone stays until it comes to the top, or until such
entries are more than the others.
"""

from collections import Counter
from collections.abc import Set
from heapq import heappop, heappush

from scheduler.kube.group_membership import GroupKey

# A pod's priority, and the RFC 3339 time of its creation.
Rank = tuple[int, str]
# Entries of members that are gone, beyond as many as there are members.
_MAX_STALE_ENTRIES = 64


class _Lowest:
    """The heaps of one group."""

    def __init__(self) -> None:
        self.priorities: list[tuple[int, str]] = []
        self.creations: list[tuple[str, str]] = []


class GroupRanks:
    """The ranks by uid."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[GroupKey, Rank]] = {}
        self._lowest: dict[GroupKey, _Lowest] = {}
        self._counts: Counter[GroupKey] = Counter()
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
        self._latest = max(self._latest, rank[1])
        rank = rank[0], max(rank[1], self._join_times.get(uid, ""))
        entry = self._of.get(uid)
        if entry == (key, rank):
            return
        if entry is not None:
            self.drop(uid)
        self._of[uid] = key, rank
        self._counts[key] += 1
        lowest = self._lowest.setdefault(key, _Lowest())
        heappush(lowest.priorities, (rank[0], uid))
        heappush(lowest.creations, (rank[1], uid))
        if len(lowest.priorities) > 2 * self._counts[key] + _MAX_STALE_ENTRIES:
            self._compact(key, lowest)

    def drop(self, uid: str) -> None:
        """Forget a member that does not wait any more."""
        entry = self._of.pop(uid, None)
        if entry is None:
            return
        self._counts[entry[0]] -= 1
        if not self._counts[entry[0]]:
            del self._counts[entry[0]], self._lowest[entry[0]]

    def lowest(self, key: GroupKey) -> Rank:
        """Return the lowest priority and the earliest creation of a group's waiting members; there are some."""
        lowest = self._lowest[key]
        while not self._holds(key, 0, *lowest.priorities[0]):
            heappop(lowest.priorities)
        while not self._holds(key, 1, *lowest.creations[0]):
            heappop(lowest.creations)
        return lowest.priorities[0][0], lowest.creations[0][0]

    def _holds(self, key: GroupKey, field: int, value: int | str, uid: str) -> bool:
        entry = self._of.get(uid)
        return entry is not None and entry[0] == key and entry[1][field] == value

    def _compact(self, key: GroupKey, lowest: _Lowest) -> None:
        # A sorted list is a heap.
        lowest.priorities = sorted({entry for entry in lowest.priorities if self._holds(key, 0, *entry)})
        lowest.creations = sorted({entry for entry in lowest.creations if self._holds(key, 1, *entry)})
