"""The input of a decision about a group, as data. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.sources import Group
from scheduler.cycle.groups.members import by_shape, by_size, distinct
from scheduler.kube.pod_info import PodInfo


@dataclass(frozen=True)
class GroupDemand:
    """A group and its waiting ``members`` in order, of which ``needed`` must be placed.

    ``priority`` is the group's, and ``placed`` are the members that have a node. ``since`` is the number of the event
    after which the decision began; a decision that continues an earlier one at ``first_domain`` keeps the number of the
    first.
    """

    group: Group
    members: Sequence[PodInfo]
    needed: int
    priority: int
    placed: Sequence[AssignedPod] = ()
    since: int = 0
    first_domain: int = 0

    @cached_property
    def shapes(self) -> list[PodInfo]:
        """One member of each shape."""
        return by_shape(self.members)

    @cached_property
    def distinct_members(self) -> list[PodInfo]:
        """One member of each kind: members of one kind have equal rules."""
        return list(distinct(self.members))

    @cached_property
    def uids(self) -> frozenset[str]:
        return frozenset(member.uid for member in self.members)

    @cached_property
    def _by_size(self) -> Sequence[PodInfo]:
        return by_size(self.members)

    def orders(self, wanted: int) -> list[Sequence[PodInfo]]:
        """Return the members in each order in which to try them if this many must be placed."""
        if len(self.shapes) == 1:
            return [self.members]
        orders = [self._by_size, self.members]
        # Small members first: most of them fit.
        return [*orders, self._by_size[::-1]] if wanted < len(self.members) else orders
