"""The input of a decision about a group, as data. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.sources import MOST_SHAPES, Group
from scheduler.cycle.groups.members import by_shape, by_size, distinct
from scheduler.kube.pod_info import PodInfo, without_identity


@dataclass(frozen=True)
class GroupDemand:
    """A group and its waiting ``members`` in order, of which ``needed`` must be placed.

    ``priority`` is the group's, and ``placed`` are the members that have a node. ``since`` is the number of the event
    after which the decision began; a decision that continues an earlier one at ``first_domain`` keeps the number of the
    first. The last ``spares`` of the members only reserve room; ``needed`` has those without which the group does not
    start. ``ranks`` are those of the waiting and placed members, by uid, if the group has slices.
    """

    group: Group
    members: Sequence[PodInfo]
    needed: int
    priority: int
    placed: Sequence[AssignedPod] = ()
    since: int = 0
    first_domain: int = 0
    spares: int = 0
    needed_spares: int = 0
    ranks: Mapping[str, int] = field(default_factory=dict)
    # Of many shapes: the members as sums read them, without what may differ, so that sums show no less room.
    similar_members: list[PodInfo] = field(default_factory=list, compare=False)

    @cached_property
    def has_many_shapes(self) -> bool:
        """Whether the members have more shapes than all nodes are evaluated for."""
        return len(by_shape(self.members)) > MOST_SHAPES

    def add_similar(self, member: PodInfo) -> None:
        self.similar_members.append(without_identity(member))

    @property
    def summed_members(self) -> Sequence[PodInfo]:
        return self.similar_members or self.members

    @cached_property
    def shapes(self) -> list[PodInfo]:
        return by_shape(self.summed_members)

    @cached_property
    def distinct_members(self) -> list[PodInfo]:
        """One member of each kind: members of one kind have equal rules."""
        return list(distinct(self.members))

    @cached_property
    def uids(self) -> frozenset[str]:
        return frozenset(member.uid for member in self.real_members)

    @cached_property
    def real_members(self) -> Sequence[PodInfo]:
        """The members that are pods."""
        return self.members[: len(self.members) - self.spares] if self.spares else self.members

    def without_spares(self) -> "GroupDemand":
        return replace(
            self,
            members=self.real_members,
            needed=self.needed - self.needed_spares,
            spares=0,
            needed_spares=0,
            similar_members=[],
        )

    @cached_property
    def _by_size(self) -> Sequence[PodInfo]:
        return by_size(self.real_members)

    def orders(self, wanted: int) -> list[Sequence[PodInfo]]:
        """Return the members in each order in which to try them if this many must be placed."""
        if len(self.shapes) == 1 or self.group.slices:
            return [self.members]
        orders = [self._by_size, self.real_members]
        # Small members first: most of them fit.
        orders += [self._by_size[::-1]] if wanted < len(self.members) else []
        spares = self.members[len(self.real_members) :]
        return [[*order, *spares] for order in orders] if spares else orders
