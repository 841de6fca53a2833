"""Find the victims on a row for one more member of a group, on the snapshot of its decision. Pure.

Method: the dry run of a preempting pod (`scheduler.cycle.preemption.select_victims`), for a member in addition to those
that the snapshot has already.

Correctness: a member of the group is never a victim, whether it is placed or was just put on the snapshot; otherwise
fewer members would be placed. A pod that was removed from the snapshot leaves anyway, and is not counted as a victim
again.
"""

from collections.abc import Set

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import Rows
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import Turns
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import PotentialVictims, here
from scheduler.cycle.preemption.select_victims import NO_VICTIMS, Found, SelectVictims, select_victims_on_node
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import PfCapacity
from scheduler.placement.shares import shares_of
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs, unused

# This many pods that are removed and put back, or only listed (such as those of whole groups on other nodes), and this
# many steps of a search for VFs, take as long as one dry run.
_PODS_AS_LONG, _LISTED_AS_LONG, _STEPS_AS_LONG = 4, 40, 60
# Number of nodes that are evaluated between two turns.
_NODES_AT_ONCE = 64


class RowVictims:
    """The victims for one group; ``spent`` counts dry runs and work that takes as long, up to ``most``.

    Pods ``below`` a priority may be victims. Members with VFs find no victims on ``stuck_nodes``.
    """

    def __init__(
        self,
        snapshot: GroupSnapshot,
        demand: GroupDemand,
        victims: PotentialVictims,
        below: int,
        stuck_nodes: Set[str],
        budget: GroupBudget,
        most: int,
    ) -> None:
        self._snapshot, self._below, self._stuck_nodes = snapshot, below, stuck_nodes
        self._budget, self._most = budget, most
        self._exempt_uids = victims.placed(demand.group.key) | demand.uids
        self._victims = victims.on(snapshot.cache, self._exempt_uids)
        self._nominated = snapshot.reserved.counting_for_owner(demand.group.key, demand.priority)
        self._rows_of_shapes: dict[bytes, Rows] = {}
        self._steps = Steps()
        self.spent = 0

    @property
    def is_spent(self) -> bool:
        return self.spent >= self._most

    def charge(self, dry_runs: int) -> None:
        """Count work that takes as long as this many dry runs."""
        self.spent += dry_runs
        self._budget.charge_dry_runs(dry_runs)

    def remove_terminating(self) -> Turns[None]:
        """Remove the pods that are being deleted: they leave anyway."""
        cache = self._snapshot.cache
        for number, node in enumerate(cache.nodes.row_of, 1):
            self._snapshot.remove(list(filter(is_terminating, cache.assigned_pods_on(node))))
            if number % _NODES_AT_ONCE == 0:
                self._budget.charge_column(_NODES_AT_ONCE)
                if self._budget.turn_is_over:
                    yield

    def rows_for(self, member: PodInfo) -> Turns[Rows]:
        """Return the rows that could take a member without other pods, and release the VFs of the pods that leave."""
        rows = self._rows_of_shapes.get(member.shape)
        while rows is None:
            if self._budget.turn_is_over:
                yield
            try:
                rows = self._snapshot.cycle.passing_without_pods(member, self._budget.placement)
            except TurnSpent:
                yield
                continue
            nodes = self._snapshot.cache.nodes
            rows = DryRuns(member, self._snapshot.cache, self._steps).large_enough(rows)
            if member.interfaces and self._stuck_nodes:
                stuck = [nodes.row_of[node] for node in self._stuck_nodes if node in nodes.row_of]
                rows = rows[np.isin(rows, stuck, invert=True)]
            self._rows_of_shapes[member.shape] = rows
            self._budget.charge_shape(nodes.size)
        return rows

    def finder(self, member: PodInfo, objections: Objections) -> SelectVictims:
        """Return a function that finds the victims on a row; it is valid while nothing in the snapshot changes."""
        dry_runs = DryRuns(member, self._snapshot.cache, self._steps)
        names, victims = self._snapshot.cache.nodes.names, self._victims.on(self._snapshot.cache, self._exempt_uids)

        def find(row: int) -> tuple[Found, int]:
            old_steps, lower = self._steps.spent, victims.below(names[row], self._below)
            if not lower:
                # This takes time, but is not charged to the search: there may be thousands of such nodes.
                self._budget.charge_move()
                return (NO_VICTIMS,), 0
            nominated = self._nominated.get(names[row], ())
            found = select_victims_on_node(dry_runs, row, lower, nominated, objections)
            pod_count = len(lower) // _PODS_AS_LONG + sum(len(victim.pods) for victim in lower) // _LISTED_AS_LONG
            self.charge(1 + pod_count + (self._steps.spent - old_steps) // _STEPS_AS_LONG)
            return found, len(lower)

        return find

    def free_vfs(self, row: int) -> FreeVfs:
        """Return the free VFs of a row's PFs together with those of possible victims, as if no other pod held them.

        Call it before pods are removed for a member.
        """
        nodes = self._snapshot.cache.nodes
        node, free_vfs = nodes.names[row], nodes.free_vfs_of_row[row]
        leaving = here(self._victims.below(node, self._below)) if free_vfs.pfs else ()
        if not leaving:
            return free_vfs
        if free_vfs.shared_ports:
            return unused(free_vfs.pfs)
        accounting, capacities = self._snapshot.cache.vf_accounting(node), list(free_vfs.capacities)
        for assigned_pod in leaving:
            assignment = assigned_pod.assignment
            for index, rate in accounting.held(assigned_pod.uid, assignment) if assignment is not None else ():
                vfs, mbps = capacities[index]
                capacities[index] = PfCapacity(vfs + 1, mbps + rate)
        return FreeVfs(free_vfs.pfs, capacities=tuple(capacities), shares=shares_of(free_vfs.pfs))


def is_terminating(assigned_pod: AssignedPod) -> bool:
    """Return whether a pod is being deleted."""
    return assigned_pod.affinity_info is not None and assigned_pod.affinity_info.terminating
