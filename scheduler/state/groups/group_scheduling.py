"""Groups, from the queue to their Binds: what they ask for, the decision in progress, and its consequences.

This module keeps the first half of promise 9 of the architecture: a decision places no member unless it places enough
of the group. `scheduler.state.binding_cycle` keeps the other half.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Literal, get_args

from mooring.annotations.group import MOST_MEMBERS
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.groups.group_cache import Members
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle
from scheduler.cycle.decisions import GroupPlacement, GroupUnschedulable, Why
from scheduler.cycle.groups.group_cycle import GroupCycle
from scheduler.cycle.groups.group_demand import GroupDemand, as_member, by_size, spare_members
from scheduler.cycle.groups.group_snapshot import MEMBERS_A_TURN, GroupBudget, Turns
from scheduler.cycle.groups.preemption.preempt import NO_PREEMPTION, GroupPreemption, PreemptionResult
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.reserved_room import Reservation, rooms_of
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.group import Group, GroupKey
from scheduler.kube.member_order import by_index, ranks, ranks_by_domain
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.groups.first_call import FirstCall
from scheduler.pending.groups.group_evictions import HalfGroups
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.pending.groups.promises import NO_START
from scheduler.pending.part import Part
from scheduler.state.binding_cycle import BindingCycle
from scheduler.state.groups.backfill import Backfill
from scheduler.state.groups.group_decision import DecisionOutcome, GroupDecision, refusal_message
from scheduler.state.groups.spares import Spares
from scheduler.state.shared_state import SharedState

# The result of a decision, in the words of kube-scheduler's metrics.
DecisionResult = Literal["scheduled", "unschedulable", "error"]
_ROOM_MESSAGE = " Room is kept for the members that fit."
_LATER_ROOM_MESSAGE = " Room is kept for the group as it becomes free."
# A decision that has taken so many turns goes on after younger ones: it tries many domains.
_MANY_TURNS = 1_000
# Seconds after which a paused decision continues even if others still wait.
_RESUME_S = 0.4
# Seconds for which others wait for a decision that changes have invalidated several times.
_EXCLUSIVE_S = 0.25
# Seconds for which others of the same priority wait for an urgent group.
_URGENT_S = 0.5
# Number of messages to members per call: a few milliseconds.
PORTION = 256


class GroupScheduling(Part):
    """The groups of the machine. At most one decision runs at a time; others may be paused.

    ``decisions`` is how many decisions there were, by result, and ``placement_count`` how many members they placed.
    """

    def __init__(
        self,
        state: SharedState,
        cycle: SchedulingCycle,
        preemption: Preemption,
        binding_cycle: BindingCycle,
        options: GroupOptions,
        portion: int,
    ) -> None:
        self.state, self.portion, self._binding_cycle = state, min(portion, MEMBERS_A_TURN), binding_cycle
        self._group_cycle = GroupCycle(cycle)
        self._preemption = GroupPreemption(cycle, state.budgets, state.group_cache, preemption)
        self.first_call = FirstCall(state.pending_groups, state.reservations, options)
        self.backfill = Backfill(state, cycle, is_on=options.backfill)
        self.half_groups = HalfGroups(state.pending_groups, state.cache, options.end_half_s)
        self.spares = Spares(state)
        self.decisions = Counter[DecisionResult](dict.fromkeys(get_args(DecisionResult), 0))
        self.placement_count = 0
        self.decision: GroupDecision | None = None
        # The decisions that others have interrupted, and when the next one continues.
        self.paused_decisions: dict[GroupKey, GroupDecision] = {}
        self._resume_time = 0.0
        # Since when other pods wait for an urgent group, or have waited last.
        self._urgent_start = -inf

    def begin(self, key: GroupKey) -> None:
        assert self.decision is None, "one group is decided about at a time"
        self.paused_decisions.pop(key, None)
        demand, owners = demand_of(key, self.state)
        budget, changes = GroupBudget(self.portion), self.state.pending_groups.members(key).changes
        self.decision = GroupDecision(demand, budget, self._decide(demand, budget), owners, changes)

    def resume(self, now: float) -> str:
        """Continue a paused decision if it is time; return its queue entry, otherwise empty."""
        if not self.paused_decisions or (now < self._resume_time and self._has_others(self.paused_decisions, now)):
            return ""
        key = self._first_group()
        if key is None:
            self.paused_decisions.clear()
            return ""
        self.decision = self.paused_decisions.pop(key)
        self.decision.budget.begin_quantum()
        return key.entry

    def _first_group(self, *deciding: GroupDecision) -> GroupKey | None:
        """Return the first group by priority and age of those whose decision is paused, and of these."""
        queue, decisions = self.state.queue, (*self.paused_decisions.values(), *deciding)
        in_flight = [decision for decision in decisions if queue.is_in_flight(decision.key.entry)]
        short = [decision for decision in in_flight if decision.budget.turn_count < _MANY_TURNS]
        entries = {decision.key.entry: decision.key for decision in short or in_flight}
        return entries.get(queue.earliest(entries))

    def _give_way(self, decision: GroupDecision, now: float) -> None:
        if not decision.budget.quantum_is_over:
            return
        if decision.budget.is_exclusive and decision.exclusive_end is None:
            decision.exclusive_end = now + _EXCLUSIVE_S
        if decision.exclusive_end is not None and now < decision.exclusive_end:
            return
        # A group that has waited long starts although an older one is paused; it gives way to that one.
        is_first = self._first_group(decision) == decision.key
        if is_first and not self._has_others((decision.key,), now):
            return
        self.decision, self.paused_decisions[decision.key] = None, decision
        self._resume_time = now + _RESUME_S

    def _has_others(self, keys: Iterable[GroupKey], now: float) -> bool:
        """Return whether pods are ready that do not wait for the decision about one of these groups.

        An urgent group is half placed or has first call, and comes before all others of its priority. They would take
        its room while its decision is paused, so they wait for at most `_URGENT_S`, and then have their turn for as
        long, however often its decisions start again. Pods of higher priority do not wait.
        """
        groups = (group for key in keys if (group := self.state.pending_groups.in_queue(key)) is not None)
        urgent_group, first = next((group for group in groups if group.is_urgent), None), self.state.queue.first(now)
        if urgent_group is not None and now >= self._urgent_start + 2 * _URGENT_S:
            self._urgent_start = now
        if first is None or urgent_group is None or now >= self._urgent_start + _URGENT_S:
            return first is not None
        return first.priority > urgent_group.priority

    def proceed(self, now: float, record_phase: RecordPhase) -> list[Instruction] | None:
        """Continue the decision; return None if it needs another step, at once or after others."""
        decision = self.decision
        assert decision is not None, "a decision has begun"
        if decision.must_restart(self.state.pending_groups):
            self.abandon()
            self.state.pending_groups.requeue(decision.key, now)
            return None
        decision.budget.begin_turn(record_phase)
        try:
            next(decision.steps)
        except StopIteration as stop:
            self.decision = None
            verdict, preemption = stop.value
            if isinstance(verdict, GroupPlacement):
                return self._begin_binding(decision.demand, verdict, now)
            return self._wait(decision.demand, verdict, preemption, now)
        self._give_way(decision, now)
        return None

    def _decide(self, demand: GroupDemand, budget: GroupBudget) -> Turns[DecisionOutcome]:
        """Place a group. If too few of its members fit, search for room for all; if there is none, and the group has
        waited enough, reserve room that becomes free, or for those that fit.
        """
        verdict = yield from self._group_cycle.decide(demand, budget)
        if isinstance(verdict, GroupPlacement):
            return verdict, NO_PREEMPTION
        key, reservations, preemption = demand.group.key, self.state.reservations, NO_PREEMPTION
        room, message = [bind.assigned for bind in verdict.binds], _ROOM_MESSAGE
        if verdict.refusal.requeue_on & ClusterEvent.ROOM:
            preemption = yield from self._search_room(demand, budget)
            if preemption.reservation is None and self.first_call.holds(key, reservations.now):
                later_room = yield from self._preemption.search_room(demand, budget, room)
                room, message = (list(later_room), _LATER_ROOM_MESSAGE) if later_room else (room, message)
        if room and preemption.reservation is None and self.first_call.holds(key, reservations.now):
            # It counts against all pods that the group precedes, whatever its members' own priorities.
            rooms = rooms_of(replace(assigned_pod, priority=demand.priority) for assigned_pod in room)
            reservation = Reservation(key, rooms, "hold")
            preemption = replace(preemption, reservation=reservation, note=message + preemption.note)
        return verdict, preemption

    def _search_room(self, demand: GroupDemand, budget: GroupBudget) -> Turns[PreemptionResult]:
        """Search for victims, then for a time at which declared ends make room."""
        key, reservations = demand.group.key, self.state.reservations
        preemption = yield from self._preemption.search(demand, budget, reservations.now)
        if preemption.reservation is not None and demand.spares:
            # Nobody leaves for a spare: a lost member can preempt when it is made again.
            preemption = yield from self._preemption.search(demand.without_spares(), budget, reservations.now)
        if preemption.reservation is not None:
            cause = preemption.reservation.cause
            note = self.backfill.note(key) if cause == "backfill" else _LATER_ROOM_MESSAGE if cause == "hold" else ""
            return replace(preemption, note=note)
        if self.first_call.is_for(key):
            reservation, note = yield from self.backfill.search(demand, budget)
            return replace(preemption, reservation=reservation, note=note)
        return replace(preemption, note=NO_START) if key in self.first_call.passes else preemption

    def _begin_binding(self, demand: GroupDemand, placement: GroupPlacement, now: float) -> list[Instruction]:
        self.decisions["scheduled"] += 1
        self.placement_count += len(placement.binds)
        state, key = self.state, demand.group.key
        state.reservations.end(key, now)
        state.pending_groups.assume(key, [bind.pod_info.uid for bind in placement.binds], now)
        state.queue.move_on_event(ClusterEvent.POD_ASSIGNED, now)
        # Further members are placed by themselves, or a decision about them tells why not.
        state.pending_groups.requeue(key, now)
        binds = self.spares.keep(demand, placement, now)
        return list(self._binding_cycle.await_volumes(binds, now, demand.group))

    def _wait(
        self, demand: GroupDemand, verdict: GroupUnschedulable, preemption: PreemptionResult, now: float
    ) -> list[Instruction]:
        """Let a group wait for its victims or for free resources, and report why."""
        self.decisions["unschedulable"] += 1
        key, groups, reservation = demand.group.key, self.state.pending_groups, preemption.reservation
        if reservation is None:
            self.first_call.pass_over(key, now)
        self._requeue(demand, verdict, preemption, now)
        message = refusal_message(groups.members(key), demand, verdict, preemption, self.state.cache)
        reports = self._report(key, message, now, verdict.refusal.why)
        if not preemption.victims:
            return reports
        assert reservation is not None, "victims leave for somebody"
        first = next(iter(reservation.rooms.values()))
        return [DeleteVictims(self.state.pending_pods[first.uid].pod, first.node, preemption.victims), *reports]

    def _requeue(
        self, demand: GroupDemand, verdict: GroupUnschedulable, preemption: PreemptionResult, now: float
    ) -> None:
        """Replace the group's reservation, and put its entry back into the queue."""
        state, key, reservation = self.state, demand.group.key, preemption.reservation
        events, missed_events = verdict.refusal.requeue_on, state.queue.missed_since(demand.since)
        # The next decision needs no room for spares (`demand_of`). With another reservation, it would fail as this one.
        is_by_search = reservation is not None and reservation.cause == "victims"
        fits_without_spares = demand.needed_spares > 0 and is_by_search and not preemption.victims
        needs_retry = verdict.comes_again or preemption.comes_again or fits_without_spares
        if reservation is not None:
            state.reservations.put(reservation, now)
        elif not needs_retry:
            state.reservations.end(key, now)
        if not state.pending_groups.end_decision(key, now):
            state.queue.add_unschedulable(key.entry, events)
            if missed_events & events or needs_retry:
                state.queue.requeue(key.entry)

    def abandon(self) -> None:
        """End a decision without an outcome and without a trace."""
        if self.decision is not None:
            self.decision.steps.close()
            self.decision = None

    def give_up(self, entry: str, now: float) -> list[Instruction]:
        key = GroupKey.of_entry(entry)
        if key is not None:
            self.state.reservations.end(key, now)
        if key is None or self.state.pending_groups.in_queue(key) is None:
            return []
        self.decisions["error"] += 1
        self.state.queue.add_unschedulable(entry, NO_EVENT)
        title = self.state.pending_groups.members(key).title
        message = f"internal error while scheduling group {title}: see the scheduler's log"
        return self._report(key, message, now, is_bug=True)

    def tick(self, now: float) -> list[Instruction]:
        """Report to the next members that have not received their group's message."""
        pods, members = self.state.pending_pods, self.state.group_cache
        return [
            report
            for uid, message, why in islice(self.state.group_reports.take(), PORTION)
            if uid in pods.pending and members.state(uid) == "waiting"
            for report in pods.report_unschedulable(pods[uid], "Unschedulable", message, why)
        ]

    def _report(
        self, key: GroupKey, message: str, now: float, why: Why | None = None, *, is_bug: bool = False
    ) -> list[Instruction]:
        """Report to the waiting members: to the first ones now, and to the others later."""
        uids = self.state.pending_groups.members(key).of("waiting")
        self.state.group_reports.put(key, uids, message, now, why, is_bug=is_bug)
        return self.tick(now)


def demand_of(key: GroupKey, state: SharedState) -> tuple[GroupDemand, frozenset[str]]:
    """Return what a popped group asks for, and its waiting members' owners; count the attempt."""
    group, members = state.pending_groups.group(key), state.pending_groups.members(key)
    priority, pod_infos = state.pending_groups.priority(key), _waiting_members(key, state)
    owners = members.owners(pod_info.uid for pod_info in pod_infos)
    shortage = state.pending_groups.shortage(key, owners)
    pod_infos = _with_roles(pod_infos, members, owners, shortage)
    placed_pods = [pod for uid in members.of("placed") if (pod := state.cache.assigned(uid)) is not None]
    spares = _spares(group, pod_infos, state)
    # A group does not start without room for its spares, unless it could preempt pods there; a member that is made
    # again does not wait for them.
    reservation = state.reservations.of_owner(key)
    has_victims = reservation is not None and reservation.cause == "victims"
    is_start = members.shortage(owners, group.min) >= group.min
    needed_spares = len(spares) if is_start and not has_victims else 0
    uid_ranks, pod_infos = _ranks(group, members, placed_pods, state) if group.slices else {}, [*pod_infos, *spares]
    needed_count, spare_count = shortage + needed_spares, len(spares)
    since = state.queue.event_number
    demand = GroupDemand(
        group, pod_infos, needed_count, priority, placed_pods, since, spare_count, needed_spares, uid_ranks
    )
    return demand, owners


def _waiting_members(key: GroupKey, state: SharedState) -> list[PodInfo]:
    """Return the members to schedule next in their order, with the group's priority and run time; count the attempt."""
    # No group needs more at once: the others are scheduled after these are placed.
    members = state.pending_groups.members(key)
    uids, owners = members.of("waiting"), members.next_owners
    next_uids = islice((uid for uid in uids if members.pods[uid].owner in owners), MOST_MEMBERS)
    pending_pods = [state.pending_pods[uid] for uid in next_uids]
    for pending_pod in pending_pods:
        pending_pod.attempts += 1
    pod_infos = [pod.pod_info for pod in pending_pods if isinstance(pod.pod_info, PodInfo)]
    run_times = [pod_info.runs_s for pod_info in pod_infos if pod_info.runs_s is not None]
    # The group ends with its last member; equal members stay equal.
    runs_s = max(run_times, default=None) if len(run_times) == len(pod_infos) else None
    priority = state.pending_groups.priority(key)
    sorted_infos = sorted(pod_infos, key=lambda pod_info: by_index(pod_info.pod))
    return [as_member(pod_info, priority, runs_s) for pod_info in sorted_infos]


def _spares(group: Group, pod_infos: list[PodInfo], state: SharedState) -> list[PodInfo]:
    """Return spares as large as the largest member; none if the group keeps larger ones already."""
    if not group.spares or not pod_infos:
        return []
    largest, reservation = by_size(pod_infos)[0], state.reservations.spares_of(group.key)
    rooms = reservation.rooms.values() if reservation is not None else ()
    if any(room.assignment and len(room.assignment.vfs) > len(largest.interfaces) for room in rooms):
        return []
    return spare_members(largest, group.spares)


def _with_roles(pod_infos: list[PodInfo], members: Members, owners: frozenset[str], count: int) -> list[PodInfo]:
    """Return the members to place together: if roles lack members, the first of each, and others up to ``count``."""
    shortages, selection = members.role_shortages(owners), set[str]()
    if not shortages:
        return pod_infos
    for pod_info in pod_infos:
        role = members.pods[pod_info.uid].role
        if shortages.get(role, 0) > 0:
            shortages[role] -= 1
            selection.add(pod_info.uid)
    remainder = (pod_info.uid for pod_info in pod_infos if pod_info.uid not in selection)
    selection.update(islice(remainder, max(count - len(selection), 0)))
    return [pod_info for pod_info in pod_infos if pod_info.uid in selection]


def _ranks(group: Group, members: Members, placed_pods: Sequence[AssignedPod], state: SharedState) -> dict[str, int]:
    """Return the ranks of a group's pods, but of those of earlier runs under its name."""
    owners = members.owners(members.of("waiting", "placed", "leaving"))
    memberships = [(uid, state.group_cache.of(uid)) for uid in members.pods]
    pods = {uid: (pod.order, pod.owner) for uid, pod in memberships if pod and pod.order and pod.owner in owners}
    if index_ranks := ranks(pods, group.min):
        return index_ranks
    nodes = [(pod.uid, state.cache.node(pod.node)) for pod in placed_pods]
    keys = [level.within for level in group.slices]
    domains = {uid: [node.labels.get(key, "") if node is not None else "" for key in keys] for uid, node in nodes}
    uids = sorted(pods.keys() & members.of("waiting", "placed"), key=lambda uid: pods[uid][0])
    return ranks_by_domain(uids, [level.size for level in group.slices], domains)
