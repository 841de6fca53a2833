"""The nodes where a group with first call on what becomes free may wait, and which of them are looked at first. Pure.

What it is: nodes where a member fits once pods of at most the group's priority have left. Few are looked at: first
those where members fit now or room is kept already, then those where the least is missing. A pod whose restartPolicy
is Always does not end by itself: where such pods are in the way the group waits only if there are too few other nodes.

Why it is right: a node that cannot be waited for takes the place of no other one. What is kept already comes first, so
that it grows. Of the pods that are in the way on two nodes those count first that do not end, and the restartPolicy of
a pod never changes. Nobody else comes to a node where room is kept.

What it costs: a dry run by sums, some 20 us, for each node in that order until enough are found, in portions.

Source: getPhase in the kubelet's pkg/kubelet/kubelet_pods.go: with Always the pod is Running when all containers have
ended.
"""

from collections.abc import Hashable, Sequence, Set

import numpy as np

from scheduler.cache.cache import AssignedPod
from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import Steps
from scheduler.cycle.groups.members import alike, needs
from scheduler.cycle.groups.preemption.row_victims import Leaving, RowVictims
from scheduler.kube.pod_info import PodInfo

# Nodes that are looked at closely: so many, and for each member that is needed.
_NODES, _NODES_A_MEMBER = 32, 2
# Where so many times as many nodes were found where pods are in the way that do not end, no others are searched for.
_TIMES_AS_MANY = 8
# Nodes that are judged in one turn; and those that take as long as an exact dry run to judge, or to sort.
_AT_ONCE, _JUDGED_AS_LONG, _SORTED_AS_LONG = 128, 4, 100
_PODS = LINES["pods"]


class AwaitedNodes:
    """The nodes for one search on a snapshot; ``first`` are the names of those to look at first."""

    def __init__(
        self, nodes: NodeColumns, first: Set[str], demand: GroupDemand, row_victims: RowVictims, budget: GroupBudget
    ) -> None:
        self._nodes, self.first, self._row_victims, self._budget = nodes, first, row_victims, budget
        self._members = {member.uid: member for member in demand.members}
        self._most = _NODES + _NODES_A_MEMBER * demand.needed
        # Who must leave each row, for each kind of member; whatever networks it is to be on.
        self._leaving: dict[Hashable, dict[int, Leaving]] = {}

    def among(self, rows: Rows, member: PodInfo) -> Steps[Rows]:
        """Return those of the rows to look at for a member."""
        self._budget.charge_dry_runs(1 + len(rows) // _SORTED_AS_LONG)
        asked = self._members[member.uid]
        leaving = self._leaving.setdefault(alike(asked), {})
        chosen: dict[Leaving, list[int]] = {"ending": [], "lasting": [], "never": []}
        judged = 0
        for row in self._in_order(rows, asked):
            if len(chosen["ending"]) >= self._most or len(chosen["lasting"]) >= _TIMES_AS_MANY * self._most:
                break
            if row not in leaving:
                if judged >= _AT_ONCE or self._budget.turn_is_over:
                    yield
                    judged = 0
                judged += 1
                self._budget.charge_dry_runs(judged % _JUDGED_AS_LONG == 0)
                leaving[row] = self._row_victims.leaving_for(row, asked)
            chosen[leaving[row]].append(row)
        return np.array([*chosen["ending"], *chosen["lasting"]][: self._most], np.intp)

    def _in_order(self, rows: Rows, member: PodInfo) -> Sequence[int]:
        """Return the rows, those of the first nodes before all others, then by what is missing there."""
        view, taken = self._nodes.view(rows), np.array(needs(member), np.int64)[:, None]
        missing = (np.maximum(taken - view.free, 0) / np.maximum(taken, 1)).max(axis=0)
        row_of = self._nodes.row_of
        later = np.isin(rows, [row_of[name] for name in self.first if name in row_of], invert=True)
        pods = view.allocatable[_PODS] - view.free[_PODS]
        ordered: list[int] = rows[np.lexsort((pods, missing, later))].tolist()
        return ordered


class LastingPods:
    """What speaks against waiting for pods, in the place of disruption budgets: they do not end by themselves."""

    has_any = True

    def violations(self, assigned_pods: Sequence[AssignedPod], counts: dict[int, int]) -> int:
        """Return how many of these pods do not end by themselves."""
        return sum(assigned_pod.always_restarts for assigned_pod in assigned_pods)
