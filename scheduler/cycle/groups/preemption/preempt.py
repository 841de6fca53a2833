"""Whether pods of lower priority must go for a group: all of what is needed of it fits then, or nobody goes. Pure.

The whole group is tried in one topology domain after another, and on one choice of networks after another (`search`
beside this module); the result that costs the least counts, by the order in which kube-scheduler chooses a node. Then
each of its victims stays without which the group fits too, on the same nodes (`victim_search`). The members are
nominated, and wait until their victims are gone. The group is searched for in portions. A node that changes between two
of them is tried again; if the result so far rests on it, or if disruption budgets or nominations change, the search
begins again, a few times. So it does in the end if a victim's group or priority is another by then. Nothing of it is in
the cache between two portions, so others may be decided about meanwhile.

Source: kube-scheduler 1.37's framework/preemption/podgrouppreemption.go. It removes all possible victims of the
cluster at once, places the group there, and puts back those that need not go. Here the nodes where the least is lost
come first.

For a group with first call on what becomes free (`--group-hold`) the same search finds the nodes that it waits for:
there, pods up to its own priority leave by themselves. Few nodes are looked at (`awaited_nodes` beside this module).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cache.node_columns import Rows
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.members import by_size, distinct, reads_other_nodes, requests_of
from scheduler.cycle.groups.network_sums import NetworkSums
from scheduler.cycle.groups.preemption.awaited_nodes import AwaitedNodes, LastingPods
from scheduler.cycle.groups.preemption.row_plan import RowPlans
from scheduler.cycle.groups.preemption.search import Attempt
from scheduler.cycle.groups.preemption.victim_search import GroupVictimSearch, reprieves
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.nominations import NominatedPods, Nomination
from scheduler.cycle.placement_budget import PlacementBudget, TurnSpent
from scheduler.cycle.preemption.disruption_budgets import Budgets, Objections
from scheduler.cycle.preemption.potential_victims import PotentialVictims, pods_of
from scheduler.cycle.preemption.preemption import NEVER, VF_PATIENCE_S, Preemption
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.vf_accounting import FreeVfs, unused

NOT_HELPFUL = "no pods of lower priority were found without which enough members fit."
# What one turn may spend, some 5 to 10 ms (`RowPlans.spent`).
_A_TURN = 80
# What the search for room to wait for may spend beside finding the nodes: so much, and for each member.
_ROOM, _ROOM_A_MEMBER = 2_000, 32
_MOST_RESTARTS = 10
# So many members take as long as a dry run when they are tried on other networks or in another domain; and so many
# nodes whose PFs are only counted, or that are judged all together. Who may leave is looked at on so many at once.
_MEMBERS_AS_LONG, _NODES_AS_LONG, _ROWS_AS_LONG, _NODES_AT_ONCE = 50, 50, 200, 32
_TERMINATING = "not eligible due to terminating pods on the nominated nodes."
_VF_AWAITED = "not eligible due to VFs that the nominated nodes still hold for pods that are gone."
_RULED = "no pods are preempted for a group whose members have volumes, or rules about pods on other nodes."
_SPENT = "the search for pods to preempt ran out of steps."
_UNSTEADY = "nodes change faster than pods to preempt are searched for."


@dataclass(frozen=True, slots=True)
class GroupPreempted:
    """What becomes of a group that does not fit.

    ``nominations`` are its members' nodes, and ``victims`` must go for them, empty if they are going already.
    ``reason`` is why nobody goes, in words; empty if nobody could. ``comes_again`` if another search may find more
    though nothing happens. ``room`` is where its members wait until others have left by themselves.
    """

    nominations: tuple[Nomination, ...] = ()
    victims: tuple[AssignedPod, ...] = ()
    reason: str = ""
    comes_again: bool = False
    room: tuple[AssignedPod, ...] = ()


NOBODY_PREEMPTED = GroupPreempted()


class GroupPreemption:
    """Searches for the victims of groups."""

    def __init__(
        self,
        cache: Cache,
        scheduling_cycle: SchedulingCycle,
        nominated_pods: NominatedPods,
        budgets: Budgets,
        groups: PlacedGroups,
        preemption: Preemption,
    ) -> None:
        self._preemption = preemption
        self._cache, self._cycle, self._nominated_pods, self._budgets = cache, scheduling_cycle, nominated_pods, budgets
        self._victims = PotentialVictims(cache, groups)

    def concerns(self, priority: int) -> bool:
        """Return whether a group of this priority may send anybody away."""
        return self._victims.has_below(priority)

    def begin(self, demand: GroupDemand, placement: PlacementBudget, now: float) -> GroupVictimSearch | GroupPreempted:
        """Begin to search for a group of which too few members fit, or return why there is nothing to search for."""
        if (kept := self._awaited(demand, now)) is not None:
            return kept
        if not self.concerns(demand.priority):
            return NOBODY_PREEMPTED
        if any(one.pod.spec.preemption_policy == "Never" for one in demand.members):
            return GroupPreempted(reason=NEVER)
        if any(one.volumes or reads_other_nodes(one) for one in distinct(demand.members)):
            return GroupPreempted(reason=_RULED)
        found = GroupVictimSearch(
            demand, iter(()), self._plans(demand, demand.priority, self._budgets), self._budgets, placement
        )
        self._restart(found)
        return found

    def begin_room(
        self, demand: GroupDemand, placement: PlacementBudget, fitting: Sequence[AssignedPod]
    ) -> GroupVictimSearch | None:
        """Begin to search for the nodes to wait for; None if rules about other pods decide where members may be.

        ``fitting`` are the members that fit now.
        """
        if any(one.volumes or reads_other_nodes(one) for one in distinct(demand.members)):
            return None
        nodes, lasting = self._cache.nodes, LastingPods()
        most = _ROOM + _ROOM_A_MEMBER * demand.needed
        first = {one.node for one in (*fitting, *self.room(demand))}
        awaited = AwaitedNodes(nodes, first, {one.uid: one for one in demand.members}, demand.needed)
        plans = self._plans(demand, demand.priority + 1, lasting)
        found = GroupVictimSearch(demand, iter(()), plans, lasting, placement, most, awaited)
        self._restart(found)
        return found

    def room(self, demand: GroupDemand) -> tuple[AssignedPod, ...]:
        """Return the group's members that are nominated, as they are counted."""
        kept = (self._nominated_pods.of(member.uid) for member in demand.members)
        return tuple(one.assigned for one in kept if one is not None)

    def _plans(self, demand: GroupDemand, below: int, budgets: Objections) -> RowPlans:
        return RowPlans(self._cache, self._victims, budgets, demand.group.key, demand.priority, below)

    def proceed(self, victims: GroupVictimSearch) -> GroupPreempted | None:
        """Go on for one turn; None if it takes another one."""
        self._begin_turn(victims)
        if victims.restarts > _MOST_RESTARTS:
            return GroupPreempted(reason=_UNSTEADY, comes_again=True)
        until = victims.plans.spent + _A_TURN
        victims.placement.begin_turn()
        try:
            while victims.plans.spent < until and victims.left > 0:
                if victims.attempt is not None:
                    self._step(victims, victims.attempt)
                elif not self._next(victims) and not self._begin_to_reprieve(victims):
                    return self._end(victims, NOT_HELPFUL)
        except TurnSpent:
            pass
        return self._end(victims, _SPENT) if victims.left <= 0 else None

    def _step(self, victims: GroupVictimSearch, attempt: Attempt) -> None:
        if attempt.has_failed:
            victims.attempt = None
        elif attempt.is_done:
            if attempt is not victims.probe and (victims.best is None or attempt.cost < victims.best.cost):
                victims.best = attempt
            victims.attempt = None
        else:
            attempt.step(victims.plans)

    def _next(self, victims: GroupVictimSearch) -> bool:
        """Go on to the next attempt, or a step towards it; return whether there was one."""
        try:
            victims.attempt = next(victims.attempts)
        except StopIteration:
            return False
        return True

    def _begin_to_reprieve(self, victims: GroupVictimSearch) -> bool:
        """Begin to try whether some of the victims that were found may stay; return whether that is to be tried."""
        if victims.best is None or victims.is_reprieving or victims.awaited is not None:
            return False
        victims.is_reprieving = True
        victims.attempts = reprieves(victims)
        return True

    def _begin_turn(self, victims: GroupVictimSearch) -> None:
        """Take in what has changed since the last turn."""
        nodes, plans = self._cache.nodes, victims.plans
        plans.begin_turn(self._nominated_pods)
        changed = set(nodes.changes.since(victims.seen))
        has_renewed = any(True for _ in nodes.renewals.since(victims.renewed))
        others = self._budgets.changes, plans.nominated
        victims.seen, victims.renewed = nodes.changes.end, nodes.renewals.end
        before, victims.nominated = victims.nominated, others
        names = {nodes.names[row] for row in changed}
        if victims.awaited is not None:
            victims.awaited.forget(changed)
        rested_on = [one for one in (victims.attempt, victims.best) if one is not None and one.nodes & names]
        if rested_on or (before is not None and before != others):
            victims.restarts += 1
            self._restart(victims)
        elif changed:
            victims.rows.clear()
            if victims.attempt is not None:
                victims.attempt.try_again(changed)
                if has_renewed:
                    victims.attempt.heed_nodes()

    def _restart(self, victims: GroupVictimSearch) -> None:
        victims.attempt = victims.best = None
        victims.is_reprieving = False
        victims.rows.clear()
        if victims.awaited is not None:
            victims.awaited.forget_all()
        victims.seen, victims.renewed = self._cache.nodes.changes.end, self._cache.nodes.renewals.end
        victims.attempts = self._attempts(victims)

    def _attempts(self, victims: GroupVictimSearch) -> Iterator[Attempt | None]:
        """Yield what to try in turn, and None between two steps towards it."""
        demand, nodes = victims.demand, self._cache.nodes
        placed_on = [assigned.node for assigned in demand.placed]
        orders = [demand.members] if len(demand.shapes) == 1 else [demand.members, by_size(demand.members)]
        requests = requests_of(demand.members)
        for domain in self._domains(victims, placed_on):
            rows = domain.row_numbers(nodes)
            sums, numbers = NetworkSums(nodes.size, requests), iter(rows.tolist())
            for some in self._room(domain, victims):
                list(sums.add((number, one) for one, number in zip(some, numbers, strict=False)))
                yield None
            there = networks_in(domain, nodes) if demand.group.rails == "same" else ()
            victims.plans.charge(1 + len(rows) // _NODES_AS_LONG)
            yield None
            for networks in choices(demand, demand.needed, there, partial(sums.admitted, among=rows)):
                if networks is None:
                    continue
                for order in orders:
                    victims.plans.charge(1 + len(order) // _MEMBERS_AS_LONG)
                    members = on_rails(order, demand.group, networks)
                    yield Attempt(members, demand.needed, self._rows_in(domain, victims), self._cache, victims.budgets)

    def _room(self, domain: Domain, victims: GroupVictimSearch) -> Iterator[list[FreeVfs]]:
        """Yield what the PFs of a domain's nodes have if all leave that may, some nodes at a time."""
        if victims.demand.group.rails != "same":
            return
        rows = domain.row_numbers(self._cache.nodes).tolist()
        if victims.awaited is not None:
            # The networks of all nodes are listed.
            yield self._unused(domain, victims.plans)
            return
        for start in range(0, len(rows), _NODES_AT_ONCE):
            yield victims.plans.room(rows[start : start + _NODES_AT_ONCE])

    def _unused(self, domain: Domain, plans: RowPlans) -> list[FreeVfs]:
        """Return what the PFs of a domain's nodes have if all leave: nearly all pods may."""
        nodes, rows = self._cache.nodes, domain.row_numbers(self._cache.nodes).tolist()
        plans.charge(1 + len(rows) // _NODES_AS_LONG)
        # Nodes of one model share their PFs.
        known = dict[int, FreeVfs]()
        found = [nodes.free_vfs_of_row[row].pfs for row in rows]
        return [known.get(id(pfs)) or known.setdefault(id(pfs), unused(pfs)) for pfs in found]

    def _domains(self, victims: GroupVictimSearch, placed_on: Sequence[str]) -> Iterator[Domain]:
        """Yield the topology domains to try; of a group that waits for room, those first where it has some.

        Where it can wait in one of these, and only for pods that end, the others are not looked at: there may be
        thousands.
        """
        found = domains_within(victims.demand.group, placed_on, self._cache)
        nodes, awaited = self._cache.nodes, victims.awaited
        if awaited is None:
            yield from found
            return
        within, rows = victims.demand.group.within, [nodes.row_of[one] for one in awaited.first if one in nodes.row_of]
        with_some = {((within, nodes.label(within)[row]),) for row in rows} if within else {()}

        def has_none(domain: Domain) -> bool:
            return domain.labels not in with_some

        for domain in sorted(found, key=has_none):
            best = victims.best
            if best is not None and not any(one.always_restarts for one in pods_of(best.victims)) and has_none(domain):
                return
            yield domain

    def _rows_in(self, domain: Domain, victims: GroupVictimSearch) -> Callable[[PodInfo], Sequence[int]]:
        def rows_for(member: PodInfo) -> Sequence[int]:
            plans, before = victims.plans, victims.plans.spent
            try:
                rows, among = self._large_enough(member, victims), domain.rows(self._cache.nodes)
                inside = rows if among is None else rows[among[rows]]
                if victims.awaited is not None:
                    return victims.awaited.among(inside, member, plans)
                every: list[int] = inside.tolist()
                return every
            finally:
                victims.finding += plans.spent - before

        return rows_for

    def _large_enough(self, member: PodInfo, victims: GroupVictimSearch) -> Rows:
        """Return the rows that could take a member without other pods, and give back the VFs of those that leave."""
        rows = victims.rows.get(member.shape)
        if rows is None:
            nodes = self._cache.nodes
            victims.plans.charge(1 + nodes.size // _ROWS_AS_LONG)
            rows = self._cycle.passing_without_pods(member, victims.placement)
            rows = victims.plans.of_kind(member).large_enough(rows)
            if member.interfaces and (stuck := self._preemption.stuck_nodes()):
                left_out = [nodes.row_of[name] for name in stuck if name in nodes.row_of]
                rows = rows[np.isin(rows, left_out, invert=True)]
            victims.rows[member.shape] = rows
        return rows

    def _end(self, victims: GroupVictimSearch, reason: str) -> GroupPreempted | None:
        """Return the outcome; None if victims are others by now, by what is said of their groups: begin again."""
        best = victims.best
        if best is None or all(self._victims.is_unchanged(one) for one in best.victims):
            return self._outcome(victims, reason)
        victims.restarts += 1
        self._restart(victims)
        return None

    def _outcome(self, victims: GroupVictimSearch, reason: str) -> GroupPreempted:
        best = victims.best
        if best is None:
            return GroupPreempted(reason=reason, comes_again=reason == _SPENT and victims.restarts > 0)
        gone = pods_of(best.victims)
        of_node: dict[str, set[str]] = {}
        for one in gone:
            of_node.setdefault(one.node, set()).add(one.uid)
        key, priority = victims.demand.group.key, victims.demand.priority
        nominations = tuple(
            # What is kept for it is kept from all that the group comes before.
            Nomination(
                assigned if assigned.priority == priority else replace(assigned, priority=priority),
                frozenset(of_node.get(assigned.node, ())),
                group=key,
            )
            for plan in best.plans.values()
            for assigned in plan.assigned
        )
        return GroupPreempted(nominations, gone)

    def _awaited(self, demand: GroupDemand, now: float) -> GroupPreempted | None:
        """Return a group's nominations while pods on its nodes are being deleted for it, or their VFs are not free."""
        kept = [one for member in demand.members if (one := self._nominated_pods.of(member.uid)) is not None]
        if len(kept) < demand.needed:
            return None
        if any(self._is_leaving(one, demand.priority) for one in kept):
            return GroupPreempted(tuple(replace(one, until=None) for one in kept), reason=_TERMINATING)
        # Not by their assignments: of what the last leader kept, VFs that are not free yet are not known.
        with_vfs = {member.uid for member in demand.members if member.interfaces}
        if not any(one.assigned.uid in with_vfs and self._preemption.awaits_vf(one.node) for one in kept):
            return None
        until = min((one.until for one in kept if one.until is not None), default=now + VF_PATIENCE_S)
        return GroupPreempted(tuple(replace(one, until=until) for one in kept), reason=_VF_AWAITED)

    def _is_leaving(self, nomination: Nomination, priority: int) -> bool:
        return any(
            one.uid in nomination.victims or (one.preempted and one.priority < priority)
            for one in self._cache.assigned_pods_on(nomination.node)
        )
