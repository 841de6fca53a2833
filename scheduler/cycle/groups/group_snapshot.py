"""A private snapshot of the cluster for one group decision, with the members that the decision has placed. Pure.

A search for victims also removes other pods from it. Nothing of it is in the live cache.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence, Set

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind, Decision, Unschedulable
from scheduler.cycle.filters import Among
from scheduler.cycle.groups.domains import rows_of
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, kind_of
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.cycle.reserved_room import ReservedRoom
from scheduler.kube.pod_info import PodInfo

# Why members do not fit, for one member of each kind.
Refusals = Mapping[Hashable, Unschedulable]


class GroupSnapshot:
    """The cluster at one moment, for a group's ``demand``; work on it counts in the ``budget``.

    With ``avoids_nodes``, nodes that have just refused such a member are excluded.
    """

    def __init__(
        self, live: SchedulingCycle, demand: GroupDemand, budget: GroupBudget, *, avoids_nodes: bool = False
    ) -> None:
        self.demand, self.budget, self._live = demand, budget, live
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

    def place_member(self, member: PodInfo, among: Among | None) -> Turns[Decision]:
        """Choose a member's node, with the members that are already there."""
        budget = self.budget
        while True:
            if budget.turn_is_over:
                yield
            step_count = budget.placement.spent
            try:
                return self.cycle.place(member, budget.placement, among, budget.record_phase)
            except TurnSpent:
                pass
            finally:
                budget.charge_member(member, self.nodes.size, budget.placement.spent - step_count)
            yield

    def place_on(self, member: PodInfo, node_name: str) -> Turns[bool]:
        rows = rows_of([node_name], self.nodes)
        decision = yield from self.place_member(member, Among(self.nodes.flags(rows)))
        if isinstance(decision, Bind):
            self.put_on(decision)
        return isinstance(decision, Bind)

    def place_members(
        self, members: Sequence[PodInfo], min_members: int, place: Callable[[PodInfo], Turns[Decision | None]]
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
            if len(self.binds) + rest < min_members:
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
        live = self._live.cache
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
        node_names = {names[row] for row in self._live.cache.nodes.changes.since(self._end) if row < len(names)}
        rooms_before, rooms_now = self._other_rooms(self.reserved), self._other_rooms(self._live.reserved_room)
        return node_names | {node for node, _, _ in rooms_before ^ rooms_now}

    def _other_rooms(self, reserved: ReservedRoom) -> Set[tuple[str, str, float]]:
        """Return the nodes and uids of the pods for which any member has to leave room, and from when on."""
        by_node = reserved.counting_for_owner(self.demand.group.key, self.demand.priority)
        return {(node, pod.uid, reserved.since_of(pod.uid)) for node, pods in by_node.items() for pod in pods}
