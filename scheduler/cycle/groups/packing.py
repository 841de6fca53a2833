"""Place the members of a group that are on one node on its PFs all together, so that one more fits beside them. Pure.

What it is: members come one after another, and each gets VFs that suit it. If rates differ, a later one may find enough
VFs and Mb/s in all, but on no PF enough. Then the members there and the new one are packed onto the node's PFs as if
they were one pod, and put on again with the VFs that this gives.

Why it is right: what a node can hold does not depend on the order in which members came, if all of them are placed by
one search. Rules about other pods read on which node a pod is, not on which PF. Members with volumes or other kinds of
resource are placed one by one only: what they need is not decided by the PFs alone.

What it costs: one search for a placement on each row that has enough in all, paid from the decision's budget. What did
not fit together is remembered until a node changes.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.cache.cache import Cache
from scheduler.cache.node_columns import Flags, Rows
from scheduler.cycle.cluster_filters import cluster_filters
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.members import alike
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import NOT_ENOUGH, Placement, demands_on
from scheduler.placement.place import PodDemands, place_pods

# Why a member has no VFs beside others though they may fit together.
_TOGETHER = (NOT_ENOUGH["combination"], NOT_ENOUGH["distinct"])
# Rows and members that were found not to fit together, which one decision remembers.
_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class GroupPacking:
    """Places one more member beside others; ``put_on`` and ``take_off`` move them in the cache."""

    cache: Cache
    cycle: SchedulingCycle
    put_on: Callable[[Bind], None]
    take_off: Callable[[Bind], None]
    failed: set[Hashable] = field(default_factory=set)

    def fit(self, member: PodInfo, placed: Iterable[Bind], among: Flags | None, budget: PlacementBudget) -> bool:
        """Place a member on a row where placed ones leave enough, but on no PF; return whether it is placed.

        Raise TurnSpent where the search goes on in another turn.
        """
        if not self._is_plain(member) or budget.is_spent:
            return False
        on: dict[str, list[Bind]] = {}
        for bind in placed:
            on.setdefault(bind.assigned.node, []).append(bind)
        for row in self._rows(member, budget).tolist():
            there = on.get(self.cache.nodes.names[row], ())
            if not there or (among is not None and not among[row]):
                continue
            beside = [bind.pod_info for bind in there]
            key = row, alike(member), frozenset(one.uid for one in beside)
            if key in self.failed or not all(map(self._is_plain, beside)):
                continue
            if budget.turn_is_spent:
                raise TurnSpent
            if self._fit_on(row, there, member, budget):
                return True
            if len(self.failed) >= _MOST_REMEMBERED:
                self.failed.clear()
            self.failed.add(key)
        return False

    def fit_together(self, row: int, members: Sequence[PodInfo], budget: PlacementBudget) -> bool:
        """Return whether the VFs of members that are not placed fit on a row's PFs together; True if not known."""
        if budget.is_spent or not all(map(self._is_plain, members)):
            return True
        return bool(self._place(row, members, budget))

    def _rows(self, member: PodInfo, budget: PlacementBudget) -> Rows:
        """Return the rows that lack nothing for a member but a way to place its VFs beside others."""
        rows = self.cycle.refused_for(member, _TOGETHER, budget)
        for _, rules in cluster_filters(member, self.cache) if len(rows) else ():
            refusals = rules.filter(rows)
            rows = rows if refusals is None else rows[refusals.codes == 0]
        return rows

    def _is_plain(self, member: PodInfo) -> bool:
        return not (member.request is None or member.wishes or member.volumes)

    def reads_others(self, member: PodInfo) -> bool:
        """Return whether a member has rules about other pods."""
        return bool(cluster_filters(member, self.cache))

    def _fit_on(self, row: int, there: Sequence[Bind], member: PodInfo, budget: PlacementBudget) -> bool:
        for bind in there:
            self.take_off(bind)
        moved = list[Bind]()
        members = [*(bind.pod_info for bind in there), member]
        for one, placement in zip(members, self._place(row, members, budget), strict=False):
            made = self.cycle.place_as(one, row, placement, budget)
            if made is None:
                break
            self.put_on(made)
            moved.append(made)
        if len(moved) == len(members):
            return True
        for bind in moved:
            self.take_off(bind)
        for bind in there:
            self.put_on(bind)
        return False

    def _place(self, row: int, members: Sequence[PodInfo], budget: PlacementBudget) -> list[Placement]:
        """Return where each member's interfaces go, of all in one search; empty if there is no way."""
        free_vfs = self.cache.nodes.free_vfs_of_row[row]
        pods: list[PodDemands] = []
        for one in members:
            found = demands_on(one.request, free_vfs.pfs) if one.request is not None else ""
            if one.request is None or isinstance(found, str):
                return []
            pods.append(PodDemands(tuple(found), one.request.pfs == "distinct"))
        return list(map(Placement, place_pods(pods, free_vfs.capacities, free_vfs.shared_ports, steps=budget) or ()))
