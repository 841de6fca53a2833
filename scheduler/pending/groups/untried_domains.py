"""Groups whose last decision has left domains untried: the next one goes on there, not from the start. Pure.

One decision tries a bounded number of members. Without this, the domains that come last would never be tried.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.kube.group_membership import GroupKey


class _Rest(NamedTuple):
    """What the last decision was about, and what it has left.

    ``since`` is the number of the event after which the first of such decisions began.
    """

    about: object
    since: int
    go_on_from: int


class UntriedDomains:
    """By group: the domains, by number, from which the next decision goes on."""

    def __init__(self) -> None:
        self._rests: dict[GroupKey, _Rest] = {}

    def put(self, demand: GroupDemand, go_on_from: int) -> None:
        """Record where the next decision about a group goes on; 0 if nothing is left."""
        if go_on_from:
            self._rests[demand.group.key] = _Rest(demand.about, demand.since, go_on_from)

    def take(self, demand: GroupDemand) -> GroupDemand:
        """Return the demand that goes on where the last one about the same members has ended, if it left anything."""
        rest = self._rests.pop(demand.group.key, None)
        if rest is None or rest.about != demand.about:
            return demand
        # What has happened since the first of them may have helped in the domains that they have tried.
        return replace(demand, first_domain=rest.go_on_from, since=rest.since)

    def keep(self, is_waiting: Callable[[GroupKey], bool]) -> None:
        """Forget the groups that do not wait any more."""
        for key in [key for key in self._rests if not is_waiting(key)]:
            del self._rests[key]
