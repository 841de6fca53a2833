"""Find the victims on a row for one more member of a group, on the snapshot of its decision. Pure.

Method: the dry run of a preempting pod (`scheduler.cycle.preemption.select_victims`), for a member in addition to those
that the snapshot has already.

Correctness: a member of the group is never a victim, whether it is placed or was just put on the snapshot; otherwise
fewer members would be placed. A pod that was removed from the snapshot leaves anyway, and is not counted as a victim
again.
"""

from collections.abc import Hashable, Set
from dataclasses import dataclass
from functools import partial

import numpy as np

from scheduler.cache.node_columns import LINES, Rows
from scheduler.cache.pod_counts import selects
from scheduler.cycle.groups.group_budget import Turns
from scheduler.cycle.groups.group_demand import needs
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import PotentialVictims, is_terminating, node_pods_of
from scheduler.cycle.preemption.select_victims import NodeResult, SelectVictims, select_victims_on_node
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import shares_of
from scheduler.placement.vf_accounting import FreeVfs, unused

# Looks that a dry run takes, and a pod that is only listed.
_A_DRY_RUN, _A_POD = 700, 3
# This many pods that are removed and put back, or only listed (such as those of whole groups on other nodes), and this
# many rows that are sorted, take as long as one dry run.
_MOVES_PER_DRY_RUN, _PODS_PER_DRY_RUN, _ROWS_PER_DRY_RUN = 4, 40, 100


@dataclass(frozen=True, slots=True)
class VictimGoal:
    """Pods of lower priority than ``max_priority`` may be victims; there are ``objections`` to some.

    A search takes at most ``max_dry_runs``. With ``is_for_room``, the group waits until pods end by themselves. The
    ``first_nodes`` come before all others.
    """

    objections: Objections
    max_priority: int
    max_dry_runs: int
    is_for_room: bool = False
    first_nodes: Set[str] = frozenset()


class RowVictims:
    """The victims for one group; ``dry_run_count`` counts dry runs and work that takes as long.

    Members with VFs find no victims on ``stuck_nodes``: these do not release the VFs of the pods that leave.
    """

    def __init__(
        self,
        snapshot: GroupSnapshot,
        goal: VictimGoal,
        victims: PotentialVictims,
        stuck_nodes: Set[str],
        dry_run_count: int = 0,
    ) -> None:
        self.snapshot, self.demand, self.budget, self.goal = snapshot, snapshot.demand, snapshot.budget, goal
        self.dry_run_count = dry_run_count
        self._stuck_nodes = stuck_nodes
        self._exempt_uids = victims.placed(self.demand.group.key) | self.demand.uids
        self._victims = victims.on(snapshot.cache, self._exempt_uids)
        self._nominated_pods = snapshot.reserved.counting_for_owner(self.demand.group.key, self.demand.priority)
        # The anti-affinity of nominated pods, which the snapshot does not count.
        infos = {pod.affinity_info for pods in self._nominated_pods.values() for pod in pods}
        self._nominated_terms = {term for info in infos if info is not None for term in info.required_anti_affinity}
        self._rows_of_shapes: dict[bytes, Rows] = {}

    @property
    def is_spent(self) -> bool:
        return self.dry_run_count >= self.goal.max_dry_runs or self.budget.placement.is_spent

    def charge(self, dry_runs: int) -> None:
        """Count work that takes as long as this many dry runs."""
        self.dry_run_count += dry_runs
        self.budget.charge(_A_DRY_RUN * dry_runs)

    def remove_terminating_pods(self) -> Turns[None]:
        """Remove the pods that are being deleted: they leave anyway."""
        for node in list(self.snapshot.nodes.row_of):
            pods = list(self.snapshot.cache.assigned_pods_on(node))
            yield from self.budget.move_all(self.snapshot.remove, filter(is_terminating, pods))
            yield from self.budget.pause(_A_POD * len(pods))

    def rows_for(self, member: PodInfo, among: Among | None) -> Turns[list[int]]:
        """Return the rows that could take a member without other pods, in the order in which to evaluate them.

        After the first nodes come those that lack the least.
        """
        nodes = self.snapshot.nodes
        rows = self._rows_of_shapes.get(member.shape)
        if rows is None:
            rows = self._rows_of_shapes[member.shape] = yield from self._possible_rows(member)
        rows = rows if among is None else rows[among.flags[rows]]
        self.charge(1 + len(rows) // _ROWS_PER_DRY_RUN)
        view, amounts = nodes.view(rows), np.array(needs(member), np.int64)[:, None]
        shortage = (np.maximum(amounts - view.free, 0) / np.maximum(amounts, 1)).max(axis=0)
        is_later = np.isin(rows, self.rows_of(self.goal.first_nodes), invert=True)
        pods = view.allocatable[LINES["pods"]] - view.free[LINES["pods"]]
        ordered_rows: list[int] = rows[np.lexsort((pods, shortage, is_later))].tolist()
        return ordered_rows

    def _possible_rows(self, member: PodInfo) -> Turns[Rows]:
        placement = self.budget.placement
        rows = yield from self.budget.evaluate(partial(self.snapshot.cycle.rows_without_pods, member, placement))
        rows = DryRuns(member, self.snapshot.cache, placement).rows_if_empty(rows)
        self.budget.charge_shape(self.snapshot.nodes.size)
        return rows[np.isin(rows, self.rows_of(self._stuck_nodes), invert=True)] if member.interfaces else rows

    def rows_of(self, node_names: Set[str]) -> list[int]:
        row_of = self.snapshot.nodes.row_of
        return [row_of[node] for node in node_names if node in row_of]

    def kind(self, member: PodInfo) -> Hashable:
        """Return a key; the same nodes take, or do not take, members with the same key.

        Labels, such as the index of a rank, count only if the anti-affinity of other pods selects them.
        """
        info, pod_counts = member.affinity_info, self.snapshot.cache.pod_counts
        labels = pod_counts.namespace_labels(info.namespace)
        terms = {term for term in self._nominated_terms if selects(term, info, labels)}
        terms.update(pod_counts.terms["anti_affinity"].about(info, labels))
        return member.shape, info.required_anti_affinity, frozenset(terms)

    def finder(self, member: PodInfo, objections: Objections) -> SelectVictims:
        """Return a function that finds the victims on a row; it is valid while nothing in the snapshot changes."""
        dry_runs = DryRuns(member, self.snapshot.cache, self.budget.placement)
        names, victims = self.snapshot.nodes.names, self._victims.on(self.snapshot.cache, self._exempt_uids)

        def find(row: int) -> tuple[NodeResult, int]:
            lower = victims.below(names[row], self.goal.max_priority)
            nominated_pods = self._nominated_pods.get(names[row], ())
            result = select_victims_on_node(dry_runs, row, lower, nominated_pods, objections)
            listed_count = sum(len(victim.pods) for victim in lower)
            pod_count = len(lower) // _MOVES_PER_DRY_RUN + listed_count // _PODS_PER_DRY_RUN
            # Rows without possible victims are not charged to the search: there may be thousands.
            self.charge(1 + pod_count if lower else 0)
            return result, len(lower) + pod_count

        return find

    def free_vfs(self, row: int) -> FreeVfs:
        """Return the free VFs of a row's PFs together with those of possible victims, as if no other pod held them."""
        node, free_vfs = self.snapshot.nodes.names[row], self.snapshot.nodes.free_vfs_of_row[row]
        if self.goal.is_for_room:
            # Nearly all pods are possible victims.
            return unused(free_vfs.pfs)
        pods = node_pods_of(self._victims.below(node, self.goal.max_priority)) if free_vfs.pfs else ()
        if not pods:
            return free_vfs
        if free_vfs.shared_ports:
            return unused(free_vfs.pfs)
        accounting, capacities = self.snapshot.cache.vf_accounting(node), list(free_vfs.capacities)
        for assigned_pod in pods:
            assignment = assigned_pod.assignment
            for index, rate in accounting.held(assigned_pod.uid, assignment) if assignment is not None else ():
                vfs, mbps = capacities[index]
                capacities[index] = PfCapacity(vfs + 1, mbps + rate)
        return FreeVfs(free_vfs.pfs, capacities=tuple(capacities), shares=shares_of(free_vfs.pfs))
