"""A private snapshot of the cluster for one group decision, with the members that the decision has placed. Pure.

A search for victims also removes other pods from it. Nothing of it is in the live cache. `changed_nodes` returns what
has changed in the live cache since.
"""

from collections.abc import Collection, Sequence, Set

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.reservations import ReservedRoom
from scheduler.kube.pod_info import PodInfo


class GroupSnapshot:
    """A snapshot of the live cache and of the nominations; ``cycle`` schedules on it.

    With ``avoids_nodes``, it excludes nodes that have just refused such a member.
    """

    def __init__(
        self,
        demand: GroupDemand,
        cache: Cache,
        cycle: SchedulingCycle,
        reserved: ReservedRoom,
        *,
        avoids_nodes: bool = False,
    ) -> None:
        self._live, self._live_nominations = cache, reserved
        self._group, self._priority = demand.group.key, demand.priority
        self._has_volumes = any(kind.volumes for kind in demand.kinds)
        self.cache = cache.snapshot(has_volumes=self._has_volumes)
        self.reserved = reserved.snapshot()
        self.cycle = cycle.on(self.cache, self.reserved, avoids_nodes=avoids_nodes, keeps_few=demand.has_many_shapes)
        self._end, self._renewals_end = self.cache.nodes.changes.end, self.cache.nodes.renewals.end
        self._volume_changes = self.cache.volumes.changes
        # The members that were put on nodes, by uid.
        self.binds: dict[str, Bind] = {}
        # The removed pods with the amounts that they had, by uid.
        self._removed: dict[str, AssignedPod] = {}

    def put_on(self, bind: Bind) -> None:
        """Add a member to its node."""
        self.cache.assume(bind.assigned, 0.0)
        if bind.plan is not None:
            self.cache.volumes.assume(bind.pod_info.uid, bind.plan, is_tried=True)
        self.binds[bind.pod_info.uid] = bind

    def take_off(self, uid: str) -> None:
        """Remove a member from its node."""
        bind = self.binds.pop(uid)
        self.cache.take_off(bind.assigned)
        if bind.plan is not None:
            self.cache.volumes.forget(uid)

    def remove(self, assigned_pod: AssignedPod) -> None:
        """Remove a pod that may be a victim; a pod that is not in the snapshot is skipped."""
        counted = self.cache.assigned_on(assigned_pod.node, assigned_pod.uid)
        if counted is not None:
            self.cache.take_off(counted)
            self._removed[counted.uid] = counted

    def restore(self, assigned_pod: AssignedPod) -> None:
        """Add a removed pod again."""
        removed = self._removed.pop(assigned_pod.uid, None)
        if removed is not None:
            self.cache.put_back(removed)

    def outdated(self, members: Collection[PodInfo]) -> list[str]:
        """Return the placed members that must be evaluated again: those on changed nodes.

        Return all of them if a fact changed in the live cache that rules read across nodes.
        """
        if self._rules_read_changes(members):
            return list(self.binds)
        node_names = self.changed_nodes()
        return [uid for uid, bind in self.binds.items() if not node_names.isdisjoint(_nodes_of(bind))]

    def _rules_read_changes(self, members: Collection[PodInfo]) -> bool:
        nodes, volume_changes = self._live.nodes, self._live.volumes.changes
        if self._has_volumes and (volume_changes != self._volume_changes or nodes.changes.end != self._end):
            return True
        if self.cache.pod_counts.is_outdated:
            return True
        if nodes.renewals.end == self._renewals_end:
            return False
        return bool(self._live.pod_counts.terms["anti_affinity"].row_counts) or any(map(_reads_labels, members))

    def changed_nodes(self) -> Set[str]:
        """Return the nodes that changed in the live cache, or on which nominations changed."""
        names = self.cache.nodes.names
        node_names = {names[row] for row in self._live.nodes.changes.since(self._end) if row < len(names)}
        # Room has been reserved for other pods, or is no longer reserved.
        old_rooms, new_rooms = self._nominated_uids(self.reserved), self._nominated_uids(self._live_nominations)
        nodes = old_rooms.keys() | new_rooms.keys()
        return node_names | {node for node in nodes if old_rooms.get(node) != new_rooms.get(node)}

    def _nominated_uids(self, reserved: ReservedRoom) -> dict[str, frozenset[tuple[str, float]]]:
        """Return by node the uids of the pods for which any member has to leave room, and from when on."""
        by_node = reserved.counting_for_owner(self._group, self._priority)
        return {
            node: frozenset((pod.uid, reserved.since_of(pod.uid)) for pod in pods) for node, pods in by_node.items()
        }


def _nodes_of(bind: Bind) -> Sequence[str]:
    return (bind.assigned.node,) if bind.plan is None else tuple(bind.plan.nodes())


def _reads_labels(member: PodInfo) -> bool:
    """Return whether a member has rules that read the labels of other nodes."""
    affinity_info = member.affinity_info
    return bool(affinity_info.required_affinity or affinity_info.required_anti_affinity or member.spread)
