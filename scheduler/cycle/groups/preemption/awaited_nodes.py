"""The nodes where a group with first call on what becomes free may wait, and which of them are looked at first. Pure.

What it is: nodes where a member fits once pods of at most the group's priority have left. Few are looked at: first
those where members fit now or room is kept already, then those where the least is missing. A pod whose restartPolicy
is Always does not end by itself: where such pods are in the way the group waits only if there are too few other nodes.

Why it is right: a node that cannot be waited for takes the place of no other one. What is kept already comes first, so
that it grows. Of the pods that are in the way on two nodes those count first that do not end, and the restartPolicy of
a pod never changes. Nobody else comes to a node where room is kept.

What it costs: a dry run by sums, some 20 us, for each node in that order until enough are found, in portions. What was
found out about a node holds until the node changes.

Source: getPhase in the kubelet's pkg/kubelet/kubelet_pods.go: with Always the pod is Running when all containers have
ended.
"""

from collections.abc import Hashable, Mapping, Sequence, Set

import numpy as np

from scheduler.cache.cache import AssignedPod
from scheduler.cache.node_columns import LINES, NodeColumns, Rows
from scheduler.cycle.groups.members import alike, needs
from scheduler.cycle.groups.preemption.row_plan import Leaving, RowPlans
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.kube.pod_info import PodInfo

# Nodes that are looked at closely: so many, and for each member that is needed.
_NODES, _NODES_A_MEMBER = 32, 2
# Where so many times as many nodes were found where pods are in the way that do not end, no others are searched for.
_TIMES_AS_MANY = 8
# Nodes that are judged in one turn; and those that take as long as an exact dry run to judge, or to sort.
_AT_ONCE, _JUDGED_AS_LONG, _SORTED_AS_LONG = 128, 4, 100
_PODS = LINES["pods"]


class AwaitedNodes:
    """The nodes for one search; ``first`` are the names of those to look at first, ``members`` the group's by uid."""

    def __init__(self, nodes: NodeColumns, first: Set[str], members: Mapping[str, PodInfo], needed: int) -> None:
        self._nodes, self.first, self._members = nodes, first, members
        self._most = _NODES + _NODES_A_MEMBER * needed
        # Who must leave each row, for each kind of member; whatever networks it is to be on.
        self._known: dict[Hashable, dict[int, Leaving]] = {}

    def forget(self, rows: Set[int]) -> None:
        """Judge rows again that have changed."""
        for known in self._known.values():
            for row in rows:
                known.pop(row, None)

    def forget_all(self) -> None:
        """Judge all rows again."""
        self._known.clear()

    def among(self, rows: Rows, member: PodInfo, plans: RowPlans) -> list[int]:
        """Return those of the rows to look at for a member; raise TurnSpent if that takes another turn."""
        plans.charge(1 + len(rows) // _SORTED_AS_LONG)
        asked = self._members[member.uid]
        known = self._known.setdefault(alike(asked), {})
        found: dict[Leaving, list[int]] = {"ending": [], "lasting": [], "never": []}
        judged = 0
        for row in self._in_order(rows, asked):
            if len(found["ending"]) >= self._most or len(found["lasting"]) >= _TIMES_AS_MANY * self._most:
                break
            if row not in known:
                if judged >= _AT_ONCE:
                    raise TurnSpent
                judged += 1
                plans.charge(judged % _JUDGED_AS_LONG == 0)
                known[row] = plans.leaving_for(row, asked)
            found[known[row]].append(row)
        return [*found["ending"], *found["lasting"]][: self._most]

    def _in_order(self, rows: Rows, member: PodInfo) -> Sequence[int]:
        """Return the rows, those of the first nodes before all others, then by what is missing there."""
        view, taken = self._nodes.view(rows), np.array(needs(member), np.int64)[:, None]
        missing = (np.maximum(taken - view.free, 0) / np.maximum(taken, 1)).max(axis=0)
        row_of = self._nodes.row_of
        later = np.isin(rows, [row_of[name] for name in self.first if name in row_of], invert=True)
        pods = view.allocatable[_PODS] - view.free[_PODS]
        found: list[int] = rows[np.lexsort((pods, missing, later))].tolist()
        return found


class LastingPods:
    """What speaks against waiting for pods, in the place of disruption budgets: they do not end by themselves."""

    has_any = True

    def violations(self, assigned_pods: Sequence[AssignedPod], used: dict[int, int]) -> int:
        """Return how many of these pods do not end by themselves."""
        return sum(one.always_restarts for one in assigned_pods)
