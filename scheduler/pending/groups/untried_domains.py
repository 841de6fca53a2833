"""Groups whose last decision has left domains untried: the next one goes on there, not from the start. Pure.

One decision tries a bounded number of members. Without this, the domains that come last would never be tried.
"""

from collections.abc import Callable
from typing import NamedTuple

from scheduler.cycle.groups.search import GroupSearch
from scheduler.kube.group_membership import GroupKey


class _Left(NamedTuple):
    """What the last decision was about, and what it has left.

    ``since`` is the number of the event after which the first of such decisions began.
    """

    about: object
    since: int
    go_on_from: int


class UntriedDomains:
    """By group: the domains, by number, from which the next decision goes on."""

    def __init__(self) -> None:
        self._left: dict[GroupKey, _Left] = {}

    def put(self, search: GroupSearch, go_on_from: int) -> None:
        """Record where the next decision about a group goes on; 0 if nothing is left."""
        if go_on_from:
            self._left[search.group.key] = _Left(search.about, search.since, go_on_from)

    def take(self, search: GroupSearch) -> None:
        """Let a search that begins go on where the last one about the same members has ended, if it left anything."""
        left = self._left.pop(search.group.key, None)
        if left is not None and left.about == search.about:
            # What has happened since the first of them may have helped in the domains that they have tried.
            search.first_domain, search.since = left.go_on_from, left.since

    def keep(self, is_waiting: Callable[[GroupKey], bool]) -> None:
        """Forget the groups that do not wait any more."""
        for key in [key for key in self._left if not is_waiting(key)]:
            del self._left[key]
