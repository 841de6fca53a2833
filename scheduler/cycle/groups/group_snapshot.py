"""What one group decision works on: a private snapshot of the cluster, and a budget of work. Pure.

The snapshot has the members that the decision has placed. A search for victims also removes other pods from it. Nothing
of it is in the live cache.

The budget counts work and not time, so equal clusters give equal decisions. The unit is the evaluation of one node,
about 0.15 µs. At the end of a turn, events are processed; at the end of a quantum, others are scheduled.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence, Set
from typing import TypeVar

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle, ignore_phase
from scheduler.cycle.decisions import Bind, Decision, Unschedulable
from scheduler.cycle.filters import Among
from scheduler.cycle.groups.domains import rows_of
from scheduler.cycle.groups.group_demand import GroupDemand, kind_of
from scheduler.cycle.placement_budget import A_DECISION, PlacementBudget, TurnSpent
from scheduler.cycle.reserved_room import ReservedRoom
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import SEARCH_TURN

Outcome = TypeVar("Outcome")
Item = TypeVar("Item")
# Why members do not fit, for one member of each kind.
Refusals = Mapping[Hashable, Unschedulable]
# Generators that yield between turns, so that events can be processed.
Turns = Generator[None, None, Outcome]
# A group has this many times the steps of a single pod to search for VFs.
_STEPS = 8
# Costs in units of one node: a member before any node is evaluated, a step of a search for VFs, a node when something
# is read of all nodes (such as a label), a value that is evaluated for the first time (such as the PFs of a node for a
# request), and a member that is put on a known node.
_A_MEMBER, _A_STEP, _A_READ, _A_VALUE, _A_MOVE = 1_000, 8, 10, 250, 150
# Maximum number of members that one turn tries. A machine with smaller turns also has smaller quanta.
MEMBERS_A_TURN = 16
# About 15 ms.
A_TURN = 100_000
VALUES_A_TURN = A_TURN // _A_VALUE
# Work before the end of a quantum. The first quantum is short: many groups may arrive at once, and most need less.
FIRST_QUANTUM, LATER_QUANTUM = 2 * A_TURN, 8 * A_TURN


class GroupBudget:
    """What one decision may do in one turn and in one quantum; ``placement`` limits its searches for VFs.

    ``is_exclusive``: changes invalidated the decision several times, and others wait until it ends, for a limited time.
    ``turn_count`` is the number of turns so far.
    """

    def __init__(self, portion: int = MEMBERS_A_TURN) -> None:
        self.record_phase: RecordPhase = ignore_phase
        self.is_exclusive = False
        self._portion = portion
        self._turn_work = self._quantum_work = self._members_of_turn = self.turn_count = 0
        self._later_quantum = LATER_QUANTUM if portion >= MEMBERS_A_TURN else portion * _A_MEMBER
        self._quantum = min(FIRST_QUANTUM, self._later_quantum)
        self.placement = _search_budget()
        # Of the values that ``placement`` has counted, those that are charged.
        self._value_count = 0

    def begin_turn(self, record_phase: RecordPhase = ignore_phase) -> None:
        self.placement.begin_turn()
        self.record_phase = record_phase
        self._turn_work = self._members_of_turn = 0
        self.turn_count += 1
        self._value_count = self.placement.value_count

    def begin_quantum(self) -> None:
        self._quantum_work, self._quantum = 0, self._later_quantum

    def renew_placement(self) -> None:
        """Restore the full number of search steps, to try members again without some pods."""
        self._charge_values()
        self.placement, self._value_count = _search_budget(), 0

    def charge(self, work: int) -> None:
        self._turn_work += work
        self._quantum_work += work

    def charge_member(self, member: PodInfo, nodes: int, steps: int) -> None:
        affinity_info = member.affinity_info
        terms = (affinity_info.required_affinity, affinity_info.required_anti_affinity, affinity_info.preferences)
        self._members_of_turn += 1
        self.charge(_A_MEMBER + nodes * (1 + len(member.spread) + sum(map(len, terms))) + _A_STEP * steps)

    def charge_nodes(self, nodes: int) -> None:
        """Charge something that was read of all nodes."""
        self.charge(_A_READ * (_A_MEMBER + nodes))

    @property
    def turn_is_over(self) -> bool:
        self._charge_values()
        return self._turn_work >= A_TURN or self._members_of_turn >= self._portion

    @property
    def quantum_is_over(self) -> bool:
        self._charge_values()
        return self._quantum_work >= self._quantum

    def _charge_values(self) -> None:
        last_count, self._value_count = self._value_count, self.placement.value_count
        self.charge(_A_VALUE * (self._value_count - last_count))

    def checkpoint(self, work: int = 0) -> Turns[None]:
        """Count work that was done; yield if the turn is over."""
        self.charge(work)
        if self.turn_is_over:
            yield

    def move_all(self, move: Callable[[Item], None], items: Iterable[Item]) -> Turns[None]:
        for item in items:
            if self.turn_is_over:
                yield
            move(item)
            self.charge(_A_MOVE)

    def evaluate(self, evaluate: Callable[[], Outcome]) -> Turns[Outcome]:
        """Evaluate nodes, in several turns if the values to evaluate for the first time are too many for one."""
        while True:
            if self.turn_is_over:
                yield
            try:
                return evaluate()
            except TurnSpent:
                yield


def _search_budget() -> PlacementBudget:
    return PlacementBudget(SEARCH_TURN, _STEPS * A_DECISION, values=VALUES_A_TURN)


class GroupSnapshot:
    """The cluster at one moment, for a group's ``demand``; work on it counts in the ``budget``.

    With ``avoids_nodes``, nodes that have just refused such a member are excluded.
    """

    def __init__(
        self, live: SchedulingCycle, demand: GroupDemand, budget: GroupBudget, *, avoids_nodes: bool = False
    ) -> None:
        self.demand, self.budget, self._live_cycle = demand, budget, live
        self._has_volumes = any(member.volumes for member in demand.kinds)
        self.cache = live.cache.snapshot(has_volumes=self._has_volumes)
        self.nodes, self.reserved = self.cache.nodes, live.reserved_room.snapshot()
        self.cycle = live.on(self.cache, self.reserved, avoids_nodes=avoids_nodes, keeps_few=demand.has_many_shapes)
        self._end, self._renewals_end = self.nodes.changes.end, self.nodes.renewals.end
        self._volume_changes = self.cache.volumes.changes
        # The members that were put on nodes, by uid.
        self.binds: dict[str, Bind] = {}
        # The removed pods with the amounts that they had, by uid.
        self._removed_pods: dict[str, AssignedPod] = {}

    def choose_node(self, member: PodInfo, among: Among | None) -> Turns[Decision]:
        """Choose a member's node, with the members that are already there."""
        budget = self.budget
        while True:
            if budget.turn_is_over:
                yield
            step_count = budget.placement.spent
            try:
                return self.cycle.choose_node(member, budget.placement, among, budget.record_phase)
            except TurnSpent:
                pass
            finally:
                budget.charge_member(member, self.nodes.size, budget.placement.spent - step_count)
            yield

    def place_on(self, member: PodInfo, node_name: str) -> Turns[bool]:
        rows = rows_of([node_name], self.nodes)
        decision = yield from self.choose_node(member, Among(self.nodes.flags(rows)))
        if isinstance(decision, Bind):
            self.put_on(decision)
        return isinstance(decision, Bind)

    def place_members(
        self, members: Sequence[PodInfo], needed_count: int, place: Callable[[PodInfo], Turns[Decision | None]]
    ) -> Turns[tuple[Refusals, int]]:
        """Put members on the nodes that ``place`` chooses, until it returns None or too few members are left.

        Members that equal one that fits nowhere are not tried. Return why, and how many were tried.
        """
        refusals, count = dict[Hashable, Unschedulable](), 0
        for number, member in enumerate(members, start=1):
            if refusals and kind_of(member) in refusals:
                continue
            decision = yield from place(member)
            if decision is None:
                break
            count += 1
            if isinstance(decision, Bind):
                self.put_on(decision)
                continue
            refusals[kind_of(member)] = decision
            rest = sum(kind_of(member) not in refusals for member in members[number:])
            if len(self.binds) + rest < needed_count:
                break
        return refusals, count

    def put_on(self, bind: Bind) -> None:
        self.cache.assume(bind.assigned, 0.0)
        if bind.plan is not None:
            self.cache.volumes.assume(bind.pod_info.uid, bind.plan, is_tried=True)
        self.binds[bind.pod_info.uid] = bind

    def take_off(self, uid: str) -> None:
        bind = self.binds.pop(uid)
        self.cache.take_off(bind.assigned)
        if bind.plan is not None:
            self.cache.volumes.forget(uid)

    def remove(self, assigned_pod: AssignedPod) -> None:
        """Remove a pod that may be a victim; a pod that is not in the snapshot is skipped."""
        own_pod = self.cache.assigned_on(assigned_pod.node, assigned_pod.uid)
        if own_pod is not None:
            self.cache.take_off(own_pod)
            self._removed_pods[own_pod.uid] = own_pod

    def restore(self, assigned_pod: AssignedPod) -> None:
        own_pod = self._removed_pods.pop(assigned_pod.uid, None)
        if own_pod is not None:
            self.cache.put_back(own_pod)

    def stale_uids(self) -> Sequence[str]:
        """Return the placed members to evaluate again: on changed nodes, or all if a fact across nodes changed."""
        if self._rules_read_changes():
            return list(self.binds)
        node_names = self.changed_nodes()
        binds = self.binds.values()
        nodes = ({bind.assigned.node} if bind.plan is None else bind.plan.nodes() for bind in binds)
        return [uid for uid, names in zip(self.binds, nodes, strict=True) if not node_names.isdisjoint(names)]

    def _rules_read_changes(self) -> bool:
        live = self._live_cycle.cache
        is_changed = live.nodes.changes.end != self._end
        if self._has_volumes and (is_changed or live.volumes.changes != self._volume_changes):
            return True
        if self.cache.pod_counts.is_outdated:
            return True
        if live.nodes.renewals.end == self._renewals_end:
            return False
        infos = [member.affinity_info for member in self.demand.kinds]
        has_terms = any(info.required_affinity or info.required_anti_affinity for info in infos)
        has_spread = any(member.spread for member in self.demand.kinds)
        return has_terms or has_spread or bool(live.pod_counts.terms["anti_affinity"].row_counts)

    def changed_nodes(self) -> Set[str]:
        """Return the nodes that changed in the live cache, or on which nominations changed."""
        names = self.nodes.names
        node_names = {names[row] for row in self._live_cycle.cache.nodes.changes.since(self._end) if row < len(names)}
        rooms_before, rooms_now = self._other_rooms(self.reserved), self._other_rooms(self._live_cycle.reserved_room)
        return node_names | {node for node, _, _ in rooms_before ^ rooms_now}

    def _other_rooms(self, reserved: ReservedRoom) -> Set[tuple[str, str, float]]:
        """Return the nodes and uids of the pods for which any member has to leave room, and from when on."""
        by_node = reserved.counting_for_owner(self.demand.group.key, self.demand.priority)
        return {(node, pod.uid, reserved.since_of(pod.uid)) for node, pods in by_node.items() for pod in pods}
