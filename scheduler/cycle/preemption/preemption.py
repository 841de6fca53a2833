"""Choose pods of lower priority to preempt for a pod that fits nowhere: kube-scheduler's DefaultPreemption. Pure.

Of the nodes where preemption helps (`scheduler.cycle.preemption.select_victims`), it takes the one with the smallest
loss. The pod is nominated there: it waits until its victims have left and the node has their VFs again. For the VFs it
waits only for a limited time.

Source: kube-scheduler's framework/preemption and plugins/defaultpreemption. kube-scheduler checks the nodes starting
from a random one. Here the pod's uid determines the first one, so that equal clusters give equal decisions.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mooring.annotations.inventory import HELD_BY
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cache.node_columns import Rows
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.potential_victims import PotentialVictims, here, is_terminating
from scheduler.cycle.preemption.select_victims import (
    NO_VICTIMS,
    Found,
    SelectVictims,
    VictimSearch,
    select_victims_on_node,
)
from scheduler.cycle.refusals import none_available
from scheduler.cycle.reservations import Reservation, ReservedRoom, reserve
from scheduler.kube.pod_info import PodInfo

# A node repairs a VF that was not released within 30 s, and tries a second time 20 s later (`cni.plan.orphans`). A VF
# that is not returned within this many seconds needs an administrator, and no pod waits for it.
VF_PATIENCE_S = 60.0
# Comparing this many budgets with a pod takes as long as removing it from a node and putting it back.
_BUDGETS_AS_LONG = 50
# kube-scheduler's words, except for the VFs.
NEVER = "not eligible due to preemptionPolicy=Never."
_TERMINATING = "not eligible due to a terminating pod on the nominated node."
_VF_AWAITED = "not eligible due to an unreleased VF of a deleted pod on the nominated node."
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_STUCK = "node(s) did not release the VFs of deleted pods"


@dataclass(frozen=True, slots=True)
class Nominate:
    """Let the pod wait for room on a node; ``victims`` must be deleted for it, empty if they are already being deleted.

    ``reason`` is why there are no further victims, if the pod already waits. ``why`` names the victims as data.
    """

    reservation: Reservation
    victims: tuple[AssignedPod, ...] = ()
    reason: str = ""

    @property
    def node(self) -> str:
        (room,) = self.reservation.rooms.values()
        return room.node

    @property
    def why(self) -> Mapping[str, object]:
        return {"node": self.node, "victims": [assigned_pod.pod for assigned_pod in self.victims]}


@dataclass(frozen=True, slots=True)
class Futile:
    """Preemption does not help the pod; ``reason`` is why, in kube-scheduler's words."""

    reason: str


class Preemption:
    """Searches for victims, and remembers the nodes where preemption failed."""

    def __init__(
        self,
        cache: Cache,
        reserved: ReservedRoom,
        budgets: Budgets,
        groups: GroupCache | None = None,
    ) -> None:
        self._victims = PotentialVictims(cache, groups or GroupCache())
        self._cache = cache
        self._reserved = reserved
        self._budgets = budgets
        # Nodes where a pod waited without success: they have not released the VFs of deleted pods.
        self._stuck: set[str] = set()

    def concerns(self, pod_info: PodInfo) -> bool:
        """Return whether a pod of lower priority is assigned, or the pod is nominated already."""
        return self._victims.has_below(pod_info.priority) or self._reserved.of(pod_info.uid) is not None

    def seek(
        self, dry_runs: DryRuns, rows: Rows, by_ports: Rows, search: VictimSearch, now: float
    ) -> Nominate | Futile | None:
        """Return where the pod waits for room and its victims, or why nowhere; None if the search needs another turn.

        ``rows`` are those whose refusals may change when pods are removed; of these, host ports refuse ``by_ports``.
        """
        pod_info = dry_runs.pod_info
        wait_reason = self._wait_reason(pod_info, rows)
        if wait_reason:
            return self._wait(pod_info, dry_runs, wait_reason, now)
        if pod_info.pod.spec.preemption_policy == "Never":
            return Futile(NEVER)
        rows = dry_runs.large_enough(rows)
        if len(by_ports):
            # kube-scheduler compares ports before room: removing pods may help there, however small the node is.
            rows = np.union1d(rows, by_ports)
        if not self.concerns(pod_info):
            return self._futile({NO_VICTIMS: len(rows)}, len(rows))
        return self._choose(dry_runs, _rotate(rows, pod_info.uid, self._cache.nodes.size), search)

    def _choose(self, dry_runs: DryRuns, rows: Sequence[int], search: VictimSearch) -> Nominate | Futile | None:
        """Search for victims of a pod that is not nominated yet."""
        find = self._victim_finder(dry_runs)
        if not search.turn(self._cache.nodes, rows, find):
            return None
        best = search.best()
        if best is None:
            return self._futile(search.refusals(rows), len(rows))
        if not search.is_valid(best, find):
            return None
        assigned_pod = self._assignment_on(dry_runs, best.row, here(best.chosen))
        victims = tuple(victim for victim in best.victims if not is_terminating(victim))
        uids = frozenset(victim.uid for victim in best.victims)
        return Nominate(reserve(assigned_pod.uid, [assigned_pod], victims=uids), victims)

    def hopeless(self, pod_info: PodInfo) -> Futile:
        """Return that victims help on no node."""
        return Futile(NEVER) if pod_info.pod.spec.preemption_policy == "Never" else self._futile({}, 0)

    def awaits_vf(self, node: str) -> bool:
        """Return whether a node still holds VFs of deleted pods for which a pod may wait."""
        return node not in self._stuck and any(self._held_for_gone_pods(node))

    def stuck_nodes(self) -> set[str]:
        """Return the nodes that do not release VFs: victims there would not help."""
        self._stuck = {node for node in self._stuck if any(self._held_for_gone_pods(node))}
        return self._stuck

    def stop_waiting(self, node: str) -> str:
        """Record that a node does not release VFs for which a pod waits; return a message that names the VFs."""
        self._stuck.add(node)
        vfs = ", ".join(self._held_for_gone_pods(node))
        return f"node {node!r} did not release within {VF_PATIENCE_S:.0f} s: {vfs}"

    def _futile(self, counts: Mapping[str, int], helpful: int) -> Futile:
        """Return why preemption helps on no node: the reasons on these nodes, and for all others that it is not
        helpful.
        """
        total = len(self._cache.nodes.row_of)
        return Futile(none_available(total, {**counts, _NOT_HELPFUL: total - helpful}))

    def _wait_reason(self, pod_info: PodInfo, rows: Rows) -> str:
        """Return what the pod waits for on its nominated node, if it may still fit there without further victims."""
        reservation, node = self._reserved.of(pod_info.uid), self._reserved.node_of(pod_info.uid)
        row = self._cache.nodes.row_of.get(node)
        if reservation is None or row is None or row not in rows:
            return ""
        if pod_info.pod.spec.preemption_policy == "Never":
            return NEVER
        if self.pods_in_deletion(reservation, node, pod_info.priority):
            return _TERMINATING
        return _VF_AWAITED if pod_info.interfaces and self.awaits_vf(node) else ""

    def pods_in_deletion(self, reservation: Reservation, node: str, priority: int) -> list[AssignedPod]:
        """Return the pods on a nominated node that are being deleted for its owner, or that another owner preempts
        below its priority.
        """
        return [
            assigned_pod
            for assigned_pod in self._cache.assigned_pods_on(node)
            if assigned_pod.uid in reservation.victims or (assigned_pod.preempted and assigned_pod.priority < priority)
        ]

    def _held_for_gone_pods(self, node: str) -> Iterator[str]:
        """Yield descriptions of the VFs that a node still holds for deleted pods."""
        node_info = self._cache.node(node)
        inventory = node_info.inventory if node_info is not None else None
        for pf in inventory.pfs if inventory is not None else ():
            for entry in pf.out:
                if entry.why.startswith(HELD_BY) and self._cache.assigned(entry.why.removeprefix(HELD_BY)) is None:
                    yield f"VF {entry.vfs} of PF {pf.name!r} ({entry.why})"

    def _wait(self, pod_info: PodInfo, dry_runs: DryRuns, reason: str, now: float) -> Nominate:
        """Keep the nomination; compute the pod's assignment there from the current state."""
        reservation = self._reserved.of(pod_info.uid)
        assert reservation is not None, "only a nominated pod must wait"
        room = reservation.rooms[pod_info.uid]
        row = self._cache.nodes.row_of[room.node]
        pods = self.pods_in_deletion(reservation, room.node, pod_info.priority)
        assigned_pod = self._assignment_on(dry_runs, row, pods)
        keeps = assigned_pod.assignment is None and room.assignment is not None
        deadline = (reservation.vfs_by or now + VF_PATIENCE_S) if reason == _VF_AWAITED else None
        assigned_pod = room if keeps else assigned_pod
        own_room = reserve(assigned_pod.uid, [assigned_pod], victims=reservation.victims, vfs_by=deadline)
        return Nominate(own_room, reason=reason)

    def _assignment_on(self, dry_runs: DryRuns, row: int, victims: Iterable[AssignedPod]) -> AssignedPod:
        nominated = self._reserved.counting_for(dry_runs.pod_info)
        with dry_runs.on(row, nominated.get(self._cache.nodes.names[row], ())) as dry_run:
            dry_run.take_off(*victims)
            return dry_run.assigned()

    def _victim_finder(self, dry_runs: DryRuns) -> SelectVictims:
        pod_info, names, priority = dry_runs.pod_info, self._cache.nodes.names, dry_runs.pod_info.priority
        nominated = self._reserved.counting_for(pod_info)
        stuck = self.stuck_nodes() if pod_info.interfaces else frozenset[str]()
        potential_victims = self._victims.on(self._cache)

        def find(row: int) -> tuple[Found, int]:
            node = names[row]
            if node in stuck:
                return (_STUCK,), 0
            lower, comparisons = potential_victims.below(node, priority), self._budgets.compared
            result = select_victims_on_node(dry_runs, row, lower, nominated.get(node, ()), self._budgets)
            return result, len(lower) + (self._budgets.compared - comparisons) // _BUDGETS_AS_LONG

        return find


def _rotate(rows: Rows, uid: str, size: int) -> Sequence[int]:
    """Return the rows rotated, starting at one that the pod's uid determines."""
    sorted_rows = np.sort(rows)
    start = int(np.searchsorted(sorted_rows, zlib.crc32(uid.encode()) % max(size, 1)))
    rotation: list[int] = np.roll(sorted_rows, -start).tolist()
    return rotation
