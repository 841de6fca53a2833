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
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand, needs
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
_PODS_AS_LONG, _LISTED_AS_LONG, _SORTED_AS_LONG = 4, 40, 100


@dataclass(frozen=True, slots=True)
class VictimGoal:
    """Pods ``below`` a priority may be victims; there are ``objections`` to some. A search takes ``most`` dry runs.

    With ``is_for_room``, the group waits until pods end by themselves. The nodes ``first`` come before all others.
    """

    objections: Objections
    below: int
    most: int
    is_for_room: bool = False
    first: Set[str] = frozenset()


class RowVictims:
    """The victims for one group; ``spent`` counts dry runs and work that takes as long.

    Members with VFs find no victims on ``stuck_nodes``.
    """

    def __init__(
        self,
        snapshot: GroupSnapshot,
        demand: GroupDemand,
        goal: VictimGoal,
        victims: PotentialVictims,
        stuck_nodes: Set[str],
        budget: GroupBudget,
        spent: int = 0,
    ) -> None:
        self.snapshot, self.demand, self.goal, self.budget = snapshot, demand, goal, budget
        self._stuck_nodes = stuck_nodes
        self._exempt_uids = victims.placed(demand.group.key) | demand.uids
        self._victims = victims.on(snapshot.cache, self._exempt_uids)
        self._nominated = snapshot.reserved.counting_for_owner(demand.group.key, demand.priority)
        # The anti-affinity of nominated pods, which the snapshot does not count.
        infos = {pod.affinity_info for pods in self._nominated.values() for pod in pods}
        self._nominated_terms = {term for info in infos if info is not None for term in info.required_anti_affinity}
        self._rows_of_shapes: dict[bytes, Rows] = {}
        self.spent = spent

    @property
    def is_spent(self) -> bool:
        return self.spent >= self.goal.most or self.budget.placement.is_spent

    def charge(self, dry_runs: int) -> None:
        """Count work that takes as long as this many dry runs."""
        self.spent += dry_runs
        self.budget.charge(_A_DRY_RUN * dry_runs)

    def remove_terminating(self) -> Turns[None]:
        """Remove the pods that are being deleted: they leave anyway."""
        cache, budget = self.snapshot.cache, self.budget
        for node in list(cache.nodes.row_of):
            pods = list(cache.assigned_pods_on(node))
            budget.charge(_A_POD * len(pods))
            yield from budget.move_all(self.snapshot.remove, filter(is_terminating, pods))
            if budget.turn_is_over:
                yield

    def rows_for(self, member: PodInfo, among: Among | None) -> Turns[list[int]]:
        """Return the rows that could take a member without other pods, in the order in which to evaluate them.

        First come the nodes ``first``, then those that lack the least.
        """
        nodes = self.snapshot.cache.nodes
        rows = self._rows_of_shapes.get(member.shape)
        if rows is None:
            rows = self._rows_of_shapes[member.shape] = yield from self._possible_rows(member)
        rows = rows if among is None else rows[among.flags[rows]]
        self.charge(1 + len(rows) // _SORTED_AS_LONG)
        view, amounts = nodes.view(rows), np.array(needs(member), np.int64)[:, None]
        missing = (np.maximum(amounts - view.free, 0) / np.maximum(amounts, 1)).max(axis=0)
        is_later = np.isin(rows, self.rows_of(self.goal.first), invert=True)
        pods = view.allocatable[LINES["pods"]] - view.free[LINES["pods"]]
        ordered_rows: list[int] = rows[np.lexsort((pods, missing, is_later))].tolist()
        return ordered_rows

    def kind(self, member: PodInfo) -> Hashable:
        """Return a key; the same nodes take, or do not take, members with the same key.

        Labels, such as the index of a rank, count only if the anti-affinity of other pods selects them.
        """
        info, pod_counts = member.affinity_info, self.snapshot.cache.pod_counts
        labels = pod_counts.namespace_labels(info.namespace)
        terms = {term for term in self._nominated_terms if selects(term, info, labels)}
        terms.update(pod_counts.terms["anti_affinity"].about(info, labels))
        return member.shape, info.required_anti_affinity, frozenset(terms)

    def _possible_rows(self, member: PodInfo) -> Turns[Rows]:
        cache, placement = self.snapshot.cache, self.budget.placement
        passing = partial(self.snapshot.cycle.rows_without_pods, member, placement)
        rows = DryRuns(member, cache, placement).rows_if_empty((yield from self.budget.evaluate(passing)))
        self.budget.charge_shape(cache.nodes.size)
        # Stuck nodes do not release the VFs of the pods that leave.
        return rows[np.isin(rows, self.rows_of(self._stuck_nodes), invert=True)] if member.interfaces else rows

    def rows_of(self, node_names: Set[str]) -> list[int]:
        row_of = self.snapshot.cache.nodes.row_of
        return [row_of[node] for node in node_names if node in row_of]

    def finder(self, member: PodInfo, objections: Objections) -> SelectVictims:
        """Return a function that finds the victims on a row; it is valid while nothing in the snapshot changes."""
        dry_runs = DryRuns(member, self.snapshot.cache, self.budget.placement)
        names, victims = self.snapshot.cache.nodes.names, self._victims.on(self.snapshot.cache, self._exempt_uids)

        def find(row: int) -> tuple[NodeResult, int]:
            lower = victims.below(names[row], self.goal.below)
            nominated = self._nominated.get(names[row], ())
            found = select_victims_on_node(dry_runs, row, lower, nominated, objections)
            pod_count = len(lower) // _PODS_AS_LONG + sum(len(victim.pods) for victim in lower) // _LISTED_AS_LONG
            # Rows without possible victims are not charged to the search: there may be thousands.
            self.charge(1 + pod_count if lower else 0)
            return found, len(lower) + pod_count

        return find

    def free_vfs(self, row: int) -> FreeVfs:
        """Return the free VFs of a row's PFs together with those of possible victims, as if no other pod held them."""
        cache = self.snapshot.cache
        node, free_vfs = cache.nodes.names[row], cache.nodes.free_vfs_of_row[row]
        if self.goal.is_for_room:
            # Nearly all pods are possible victims.
            return unused(free_vfs.pfs)
        leaving = node_pods_of(self._victims.below(node, self.goal.below)) if free_vfs.pfs else ()
        if leaving and free_vfs.shared_ports:
            return unused(free_vfs.pfs)
        capacities = list(free_vfs.capacities)
        for assigned_pod in leaving:
            assignment = assigned_pod.assignment
            held = cache.vf_accounting(node).held(assigned_pod.uid, assignment) if assignment is not None else ()
            for index, rate in held:
                vfs, mbps = capacities[index]
                capacities[index] = PfCapacity(vfs + 1, mbps + rate)
        shares = shares_of(free_vfs.pfs) if leaving else free_vfs.shares
        return FreeVfs(free_vfs.pfs, capacities=tuple(capacities), shares=shares)
