"""Put members of a group on nodes, where the least is lost, until enough fit. Pure.

What it is: for the next member every node is tried with it, beside the members that are there already. The node that
costs the least gets it, by kube-scheduler's order: violated budgets, highest priority, sum of priorities, number of
victims, then the latest start. A node on which nobody must leave costs nothing. A node that got a member is tried again
for the next one; all other results hold until the node changes.

Why it is right: a plan (`scheduler.cycle.groups.preemption.row_plan`) says that all members of a node fit together
without its victims. Nodes judge members apart from each other, because no group is searched for whose members have
rules about other pods. A group that goes as a whole stays chosen: plans of other nodes may rest on it. Where members
are put before it is chosen, its pods make room too: who leaves there is revised.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from scheduler.cache.cache import Cache
from scheduler.cycle.groups.members import alike, by_size
from scheduler.cycle.groups.preemption.row_plan import Planning, RowPlan, RowPlans, of_member
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import Loss, Victim, importance, loss_of, pods_of, since
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo

# What is lost, and since when, the latest first.
Cost = tuple[Loss, tuple[int, ...]]
_NOTHING: Cost = (0, -1, 0, 0), ()
# So many rows that are listed, and victims that are counted against budgets, take as long as a dry run.
_ROWS_AS_LONG, _COUNTED_AS_LONG = 500, 50


@dataclass(slots=True)
class _Candidates:
    """The plans of one kind of members with one more of them on each row, the cheapest first."""

    rows: frozenset[int]
    # An ordered set.
    untried: dict[int, None]
    # The cost when the plan was made, the row, and the number of the try that made it.
    heap: list[tuple[Cost, int, int]] = field(default_factory=list)
    plans: dict[int, tuple[int, RowPlan]] = field(default_factory=dict)
    # Whether nodes are others since: the rows are listed again.
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan that is being made, for one more member, or without ``candidates`` for those that are on the row."""

    candidates: _Candidates | None
    row: int
    steps: Planning


class Attempt:
    """Members that are put on rows, at least ``wanted`` of them.

    ``rows_for`` returns the rows that a member may be on; if given, ``only`` these pods may leave, and members go only
    to rows that are ``among`` these.
    """

    def __init__(
        self,
        members: Sequence[PodInfo],
        wanted: int,
        rows_for: Callable[[PodInfo], Sequence[int]],
        cache: Cache,
        budgets: Objections,
        only: Set[str] | None = None,
        among: Set[int] | None = None,
    ) -> None:
        self._rows_for, self._cache, self._budgets, self._wanted = rows_for, cache, budgets, wanted
        self._members, self._only, self._among = members, only, among
        self._todo = deque(members)
        self._candidates: dict[Hashable, _Candidates] = {}
        self._on: dict[int, list[PodInfo]] = {}
        self._groups: dict[GroupKey, Victim] = {}
        self._gone: frozenset[str] = frozenset()
        self._tries = self._placed = 0
        self._planned: _Planned | None = None
        # Rows whose victims are perhaps too many; an ordered set.
        self._to_revise: dict[int, None] = {}
        self.plans: dict[int, RowPlan] = {}

    @property
    def is_done(self) -> bool:
        """Return whether enough members fit."""
        return self._placed >= self._wanted and not self._to_revise and self._planned is None

    @property
    def has_failed(self) -> bool:
        """Return whether enough members cannot fit."""
        return self._placed + len(self._todo) < self._wanted

    @property
    def victims(self) -> list[Victim]:
        """Return who leaves, each once, the most important first."""
        singles = [one for plan in self.plans.values() for one in plan.victims if one.group is None]
        return sorted([*singles, *self._groups.values()], key=importance)

    @property
    def cost(self) -> Cost:
        """Return what is lost, in the order by which attempts are compared."""
        victims = self.victims
        broken = self._budgets.violations(pods_of(victims), {})
        return loss_of(victims, broken), _latest_first(victims)

    @property
    def nodes(self) -> set[str]:
        """Return the nodes that the result rests on."""
        names = self._cache.nodes.names
        return {names[row] for row in self.plans} | {one.node for one in pods_of(self._groups.values())}

    @property
    def members(self) -> Sequence[PodInfo]:
        return self._members

    @property
    def rows_with_room(self) -> set[int]:
        """Return the rows that may take one more member of some kind, as far as they were tried."""
        return {row for one in self._candidates.values() for row in (*one.plans, *one.untried)}

    @property
    def has_spare_groups(self) -> bool:
        """Return whether groups leave that no row's plan names: another group has made room there since."""
        return bool(self._groups.keys() - {one.group for plan in self.plans.values() for one in plan.victims})

    def rows_of(self, victims: Iterable[Victim]) -> set[int]:
        """Return the rows that some victims are on."""
        row_of = self._cache.nodes.row_of
        return {row_of[one.node] for one in pods_of(victims) if one.node in row_of}

    def without(self, victim: Victim) -> Iterator["Attempt"]:
        """Yield attempts at the same in several orders, on the same rows; this one stays, and nobody else leaves."""
        by_sizes = by_size(self._members)
        beyond = len(by_sizes) - self._wanted
        among = self.plans.keys() | self.rows_of(self._groups.values())
        for order in (self._members, by_sizes, [*by_sizes[beyond:], *by_sizes[:beyond]], by_sizes[::-1]):
            yield self._like(order, self._wanted, among, victim)

    def moving(self, victim: Victim, with_room: Set[int]) -> "Attempt":
        """Return the attempt for which this one stays and only members of its rows move, to rows with room."""
        rows = self.rows_of([victim])
        found = self._like(self._members, self._wanted, rows | with_room, victim)
        found._on = {row: list(there) for row, there in self._on.items() if row not in rows}
        found.plans = {row: plan for row, plan in self.plans.items() if row not in rows}
        found._groups = {key: one for key, one in self._groups.items() if key != victim.group}
        found._gone = frozenset(one.uid for one in pods_of(found._groups.values()))
        staying = {one.uid for there in found._on.values() for one in there}
        found._todo = deque(one for one in self._members if one.uid not in staying)
        found._placed = len(staying)
        return found

    def one_more(self, member: PodInfo) -> "Attempt":
        """Return the attempt to put one more member like this one beside those that are placed; nobody else leaves."""
        found = self._like([member], 1, self.plans.keys() | self.rows_of(self._groups.values()), None)
        found._on, found._gone = {row: list(there) for row, there in self._on.items()}, self._gone
        return found

    def _like(self, members: Sequence[PodInfo], wanted: int, among: Set[int], stays: Victim | None) -> "Attempt":
        only = {one.uid for one in pods_of(self.victims)} - {one.uid for one in (stays.pods if stays else ())}
        return Attempt(members, wanted, self._rows_for, self._cache, self._budgets, only, among)

    def heed_nodes(self) -> None:
        """List the rows again that members may be on: nodes have changed in what they are."""
        for candidates in self._candidates.values():
            candidates.is_stale = True

    def try_again(self, rows: Iterable[int]) -> None:
        """Try rows again that have changed."""
        changed = frozenset(rows)
        if self._planned is not None and self._planned.row in changed:
            self._planned = None
        for candidates in self._candidates.values():
            for row in sorted(changed & candidates.rows):
                candidates.plans.pop(row, None)
                candidates.untried[row] = None

    def step(self, plans: RowPlans) -> None:
        """Try one row, or put a member where it costs the least."""
        if self._planned is not None:
            self._go_on(self._planned, plans)
            return
        if self._to_revise:
            row = next(iter(self._to_revise))
            del self._to_revise[row]
            self._planned = _Planned(None, row, plans.plan(row, self._on[row], self._gone, self._only))
            return
        member = self._todo[0]
        candidates = self._candidates_for(member, plans)
        if candidates.untried:
            row = next(iter(candidates.untried))
            del candidates.untried[row]
            steps = plans.plan(row, [*self._on.get(row, ()), member], self._gone, self._only)
            self._planned = _Planned(candidates, row, steps)
        elif candidates.heap:
            self._put_cheapest(candidates, plans)
        else:
            kind = alike(member)
            self._todo = deque(one for one in self._todo if alike(one) != kind)

    def _candidates_for(self, member: PodInfo, plans: RowPlans) -> _Candidates:
        """Return the candidates for a member and its equals, without rows that it may not be on any more."""
        kind = alike(member)
        known = self._candidates.get(kind)
        if known is not None and not known.is_stale:
            return known
        rows = dict.fromkeys(self._rows_for(member))
        plans.charge(1 + len(rows) // _ROWS_AS_LONG)
        if self._among is not None:
            rows = {row: None for row in rows if row in self._among}
        if known is None:
            known = self._candidates[kind] = _Candidates(frozenset(rows), rows)
            return known
        for row in known.rows - rows.keys():
            known.untried.pop(row, None)
            known.plans.pop(row, None)
        known.untried |= {row: None for row in rows if row not in known.rows}
        known.rows, known.is_stale = frozenset(rows), False
        return known

    def _go_on(self, planning: _Planned, plans: RowPlans) -> None:
        """Go on with the plan of a row; file it if it is done."""
        try:
            next(planning.steps)
        except StopIteration as ended:
            self._planned = None
            if planning.candidates is None:
                self._revise(ended.value)
                return
            self._charge_comparison(plans)
            self._file(planning.candidates, planning.row, ended.value)

    def _revise(self, plan: RowPlan | None) -> None:
        """Take a plan for the members that are on a row if fewer leave by it, and nobody else."""
        if plan is not None and set(_uids(plan)) < set(_uids(self.plans[plan.row])):
            self.plans[plan.row] = plan

    def _charge_comparison(self, plans: RowPlans) -> None:
        if self._budgets.has_any:
            plans.charge(sum(len(plan.victims) for plan in self.plans.values()) // _COUNTED_AS_LONG)

    def _file(self, candidates: _Candidates, row: int, plan: RowPlan | None) -> None:
        self._tries += 1
        candidates.plans.pop(row, None)
        if plan is not None:
            candidates.plans[row] = self._tries, plan
            heapq.heappush(candidates.heap, (self._cost_of(plan), row, self._tries))

    def _put_cheapest(self, candidates: _Candidates, plans: RowPlans) -> None:
        plans.charge(1)
        self._charge_comparison(plans)
        cost, row, number = heapq.heappop(candidates.heap)
        known, plan = candidates.plans.get(row, (0, None))
        if plan is None or known != number:
            return
        now = self._cost_of(plan)
        if now > cost:
            # Victims elsewhere have used up a budget since.
            heapq.heappush(candidates.heap, (now, row, number))
            return
        member = self._todo.popleft()
        self._on.setdefault(row, []).append(member)
        # It may have been made for an equal member.
        *before, last = plan.assigned
        self.plans[row] = replace(plan, assigned=(*before, of_member(last, member)))
        self._placed += 1
        groups = {one.group: one for one in plan.victims if one.group is not None}
        self._groups |= groups
        self._gone = frozenset(one.uid for one in pods_of(self._groups.values()))
        row_of = self._cache.nodes.row_of
        emptier = {row_of[one.node] for one in pods_of(groups.values()) if one.node in row_of}
        self._to_revise |= dict.fromkeys(sorted(at for at in emptier & self.plans.keys() if at != row))
        self.try_again({row, *emptier})

    def _cost_of(self, plan: RowPlan) -> Cost:
        """Return what a plan costs beside what is lost already; nothing if nobody else must leave for it."""
        before = self.plans.get(plan.row)
        known = before.victims if before is not None else ()
        lost = {one.pods[0].uid for one in (*known, *self._groups.values())}
        own = [one for one in plan.victims if one.pods[0].uid not in lost]
        if not own:
            return _NOTHING
        broken, highest, total, count = loss_of(own, self._broken(plan.row, own))
        _, _, spent, fewer = loss_of([one for one in known if one not in plan.victims], 0)
        return (broken, highest, total - spent, count - fewer), _latest_first(own)

    def _broken(self, row: int, victims: Sequence[Victim]) -> int:
        """Return how many of the victims of a row violate a budget beside those of others."""
        if not self._budgets.has_any:
            return 0
        used: dict[int, int] = {}
        others = (one for at, plan in self.plans.items() if at != row for one in plan.victims if one.group is None)
        self._budgets.violations(pods_of([*others, *self._groups.values()]), used)
        return self._budgets.violations(pods_of(victims), used)


def _uids(plan: RowPlan) -> Iterator[str]:
    """Yield which pods leave by a plan."""
    yield from (one.uid for one in pods_of(plan.victims))


def _latest_first(victims: Sequence[Victim]) -> tuple[int, ...]:
    """Return a sort key that puts the victims first that have run for the shortest time."""
    return tuple(-ord(letter) for letter in since(victims))
