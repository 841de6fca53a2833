"""Choose pods of lower priority to preempt for a pod that fits nowhere: kube-scheduler's DefaultPreemption. Pure.

Of the nodes where preemption helps (`scheduler.cycle.preemption.select_victims`), it takes the one with the smallest
loss. The pod is nominated there: it waits until its victims have left, and for a limited time for their VFs.

Source: kube-scheduler's framework/preemption and plugins/defaultpreemption. kube-scheduler checks the nodes starting
from a random one. Here the pod's uid determines the first one, so that equal clusters give equal decisions.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from mooring.annotations.inventory import HELD_BY
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cache.node_columns import Rows
from scheduler.cycle.decisions import Nominate, none_available
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.potential_victims import PotentialVictims, is_terminating, node_pods_of, pods_of
from scheduler.cycle.preemption.select_victims import (
    NO_VICTIMS,
    NodeResult,
    SelectVictims,
    VictimSearch,
    select_victims_on_node,
)
from scheduler.cycle.reserved_room import Reservation, ReservedRoom, rooms_of
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo

# A node repairs a VF that was not released within 30 s, and tries a second time 20 s later (`cni.plan.orphans`). A VF
# that is not returned within this many seconds needs an administrator, and no pod waits for it.
VF_PATIENCE_S = 60.0
# Comparing this many budgets with a pod takes as long as removing it from a node and putting it back.
_COMPARISONS_PER_POD = 50
# kube-scheduler's words, except for the VFs.
POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
_POD_DELETION = "not eligible due to a terminating pod on the nominated node."
_VF_RELEASE = "not eligible due to an unreleased VF of a deleted pod on the nominated node."
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_STUCK_VFS = "node(s) did not release the VFs of deleted pods"


class Preemption:
    """Searches for victims, and remembers the nodes where preemption failed."""

    def __init__(
        self, cache: Cache, reserved_room: ReservedRoom, budgets: Budgets, groups: GroupCache | None = None
    ) -> None:
        self._victims = PotentialVictims(cache, groups or GroupCache())
        self._cache, self._reserved_room, self._budgets = cache, reserved_room, budgets
        # Nodes that did not release the VFs of deleted pods for which a pod waited.
        self._stuck_nodes: set[str] = set()

    def seek(
        self, dry_runs: DryRuns, rows: Rows, by_ports: Rows, search: VictimSearch, now: float
    ) -> Nominate | Refused | None:
        """Return where the pod waits for room and its victims, or why nowhere; None if the search needs another turn.

        ``rows`` are those whose refusals may change when pods are removed; of these, host ports refuse ``by_ports``.
        """
        pod_info = dry_runs.pod_info
        nomination = self._present_nomination(dry_runs, rows, now)
        if nomination is not None:
            return nomination
        if _never_preempts(pod_info):
            return Refused(POLICY_NEVER)
        rows = dry_runs.rows_if_empty(rows)
        if len(by_ports):
            # kube-scheduler compares ports before room: removing pods may help there, however small the node is.
            rows = np.union1d(rows, by_ports)
        if not self._victims.has_below(pod_info.priority) and self._reserved_room.of(pod_info.uid) is None:
            return self._refusal({NO_VICTIMS: len(rows)}, len(rows))
        return self._choose(dry_runs, _rotate(rows, pod_info.uid, self._cache.nodes.size), search)

    def _choose(self, dry_runs: DryRuns, rows: Sequence[int], search: VictimSearch) -> Nominate | Refused | None:
        select_victims = self._victim_selection(dry_runs)
        if not search.turn(self._cache.nodes, rows, select_victims):
            return None
        best = search.best()
        if best is None:
            return self._refusal(search.refusals(rows), len(rows))
        if not search.is_valid(best, select_victims):
            return None
        assigned_pod = self._assigned_pod_on(dry_runs, best.row, node_pods_of(best.victims))
        pods = pods_of(best.victims)
        reservation = Reservation(
            assigned_pod.uid, rooms_of([assigned_pod]), victims=frozenset(pod.uid for pod in pods)
        )
        return Nominate(reservation, tuple(pod for pod in pods if not is_terminating(pod)))

    def _refusal(self, counts: Mapping[str, int], helpful: int) -> Refused:
        """Return the reasons against the ``helpful`` nodes, and that preemption is not helpful on all others."""
        total = len(self._cache.nodes.row_of)
        return Refused(none_available(total, {**counts, _NOT_HELPFUL: total - helpful}))

    def awaits_vf(self, node: str) -> bool:
        """Return whether a node still holds VFs of deleted pods for which a pod may wait."""
        return node not in self._stuck_nodes and self.holds_vf(node)

    def holds_vf(self, node: str) -> bool:
        """Return whether a node still holds VFs of deleted pods."""
        return any(self._vfs_of_deleted_pods(node))

    def stuck_nodes(self) -> set[str]:
        """Return the nodes that do not release VFs: victims there would not help."""
        self._stuck_nodes = set(filter(self.holds_vf, self._stuck_nodes))
        return self._stuck_nodes

    def end_wait(self, node: str) -> str:
        """Record that a node does not release VFs for which a pod waits; return a message that names the VFs."""
        self._stuck_nodes.add(node)
        vfs = ", ".join(self._vfs_of_deleted_pods(node))
        return f"node {node!r} did not release within {VF_PATIENCE_S:.0f} s: {vfs}"

    def _vfs_of_deleted_pods(self, node: str) -> Iterator[str]:
        """Yield descriptions of the VFs that a node still holds for deleted pods."""
        node_info = self._cache.node(node)
        inventory = node_info.inventory if node_info is not None else None
        for pf in inventory.pfs if inventory is not None else ():
            for entry in pf.out:
                if entry.why.startswith(HELD_BY) and self._cache.assigned(entry.why.removeprefix(HELD_BY)) is None:
                    yield f"VF {entry.vfs} of PF {pf.name!r} ({entry.why})"

    def pods_in_deletion(self, reservation: Reservation, node: str, priority: int) -> list[AssignedPod]:
        """Return the pods on a nominated node that are being deleted for its owner, or preempted below its priority."""
        return [
            assigned_pod
            for assigned_pod in self._cache.assigned_pods_on(node)
            if assigned_pod.uid in reservation.victims or (assigned_pod.preempted and assigned_pod.priority < priority)
        ]

    def _present_nomination(self, dry_runs: DryRuns, rows: Rows, now: float) -> Nominate | None:
        """Return the pod's nomination, assigned as now, if it may still fit there without further victims."""
        pod_info = dry_runs.pod_info
        reservation, room = self._reserved_room.of(pod_info.uid), self._reserved_room.room_of(pod_info.uid)
        row = self._cache.nodes.row_of.get(room.node) if room is not None else None
        if reservation is None or room is None or row is None or row not in rows:
            return None
        pods, vfs_by = self.pods_in_deletion(reservation, room.node, pod_info.priority), None
        if _never_preempts(pod_info):
            reason = POLICY_NEVER
        elif pods:
            reason = _POD_DELETION
        elif pod_info.interfaces and self.awaits_vf(room.node):
            reason, vfs_by = _VF_RELEASE, reservation.vfs_by or now + VF_PATIENCE_S
        else:
            return None
        assigned_pod = self._assigned_pod_on(dry_runs, row, pods)
        if assigned_pod.assignment is None and room.assignment is not None:
            assigned_pod = room
        rooms = rooms_of([assigned_pod])
        return Nominate(Reservation(pod_info.uid, rooms, victims=reservation.victims, vfs_by=vfs_by), reason=reason)

    def _assigned_pod_on(self, dry_runs: DryRuns, row: int, victims: Iterable[AssignedPod]) -> AssignedPod:
        nominated_pods = self._reserved_room.counting_for(dry_runs.pod_info)
        with dry_runs.on(row, nominated_pods.get(self._cache.nodes.names[row], ())) as dry_run:
            dry_run.take_off(*victims)
            return dry_run.assigned_pod()

    def _victim_selection(self, dry_runs: DryRuns) -> SelectVictims:
        pod_info, names, priority = dry_runs.pod_info, self._cache.nodes.names, dry_runs.pod_info.priority
        nominated_pods = self._reserved_room.counting_for(pod_info)
        stuck_nodes = self.stuck_nodes() if pod_info.interfaces else frozenset[str]()
        potential_victims, budgets = self._victims.on(self._cache), self._budgets

        def select_victims(row: int) -> tuple[NodeResult, int]:
            node = names[row]
            if node in stuck_nodes:
                return (_STUCK_VFS,), 0
            lower, comparisons = potential_victims.below(node, priority), budgets.comparisons
            result = select_victims_on_node(dry_runs, row, lower, nominated_pods.get(node, ()), budgets)
            return result, len(lower) + (budgets.comparisons - comparisons) // _COMPARISONS_PER_POD

        return select_victims


def _never_preempts(pod_info: PodInfo) -> bool:
    return pod_info.pod.spec.preemption_policy == "Never"


def _rotate(rows: Rows, uid: str, size: int) -> Sequence[int]:
    """Return the rows rotated, starting at one that the pod's uid determines."""
    sorted_rows = np.sort(rows)
    start = int(np.searchsorted(sorted_rows, zlib.crc32(uid.encode()) % max(size, 1)))
    rotation: list[int] = np.roll(sorted_rows, -start).tolist()
    return rotation
