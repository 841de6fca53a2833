"""Groups whose last decision has left domains untried: the next one goes on there, not from the start. Pure.

One decision tries a bounded number of members. Without this, the domains that come last would never be tried.
"""

from collections.abc import Callable

from scheduler.cycle.groups.search import GroupSearch
from scheduler.kube.group_membership import GroupKey


class UntriedDomains:
    """By group: the decision that was made last, and the number of the domain from which the next one goes on."""

    def __init__(self) -> None:
        self._left: dict[GroupKey, tuple[GroupSearch, int]] = {}

    def put(self, search: GroupSearch, go_on_from: int) -> None:
        """Record where the next decision about a group goes on; 0 if nothing is left."""
        if go_on_from:
            self._left[search.group.key] = search, go_on_from

    def take(self, search: GroupSearch) -> None:
        """Let a search that begins go on where the last one about the same members has ended, if it left anything."""
        last, go_on_from = self._left.pop(search.group.key, (search, 0))
        if go_on_from and search.goes_on_from(last):
            # What has happened since the first of them may have helped in the domains that they have tried.
            search.first_domain, search.since = go_on_from, last.since

    def keep(self, is_waiting: Callable[[GroupKey], bool]) -> None:
        """Forget the groups that do not wait any more."""
        for key in [key for key in self._left if not is_waiting(key)]:
            del self._left[key]
