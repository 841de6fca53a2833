"""Nodes that have just refused a pod: its replacement goes to another node if it fits there. Pure.

A kubelet that rejects a pod on arrival (`rejectPod` in pkg/kubelet/kubelet.go), or a node on which a pod's VF is lost,
mostly does the same to the next pod, and often has more free room than the others. Pods of one controller replace each
other. So do pods of one group, whose controllers may be recreated with them, and pods without a controller in one
namespace.
"""

from collections.abc import Iterable
from math import inf

from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.filters import Among
from scheduler.kube.group import GroupKey, membership_if_readable
from scheduler.kube.objects import Pod

# Seconds for which a node is avoided.
AVOIDANCE_S = 600.0
_Key = tuple[str, str] | GroupKey


class RefusingNodes:
    """When each node is no longer avoided, by what its refused pods have in common."""

    def __init__(self) -> None:
        self._ends: dict[_Key, dict[str, float]] = {}
        self._next_end = inf

    def note(self, pod: Pod, node: str, now: float) -> None:
        """Let replacements of a pod avoid a node from now on."""
        # A standby calls nothing else.
        self.forget(now)
        for key in _keys(pod):
            self._ends.setdefault(key, {})[node] = now + AVOIDANCE_S
        self._next_end = min(self._next_end, now + AVOIDANCE_S)

    def concern(self, pods: Iterable[Pod]) -> bool:
        """Return whether one of these pods avoids a node."""
        return bool(self._ends) and any(key in self._ends for pod in pods for key in _keys(pod))

    def rows(self, pod: Pod, nodes: NodeColumns) -> list[int]:
        """Return the rows that a pod avoids."""
        names = {name for key in _keys(pod) for name in self._ends.get(key, ())} if self._ends else ()
        return [nodes.row_of[name] for name in names if name in nodes.row_of]

    def preferred_rows(self, pod: Pod, among: Among | None, nodes: NodeColumns) -> Among | None:
        """Return the rows, from those ``among`` if given, that a pod does not avoid; None if it avoids none."""
        if not (rows := self.rows(pod, nodes)):
            return None
        flags = (nodes.valid[: nodes.size] if among is None else among.flags).copy()
        flags[rows] = False
        return Among(flags, "" if among is None else among.label)

    def next_end(self) -> float | None:
        return self._next_end if self._ends else None

    def forget(self, now: float) -> None:
        """Drop entries whose time is over."""
        if now < self._next_end:
            return
        ends = {key: {node: end for node, end in nodes.items() if end > now} for key, nodes in self._ends.items()}
        self._ends = {key: nodes for key, nodes in ends.items() if nodes}
        self._next_end = min((end for nodes in self._ends.values() for end in nodes.values()), default=inf)


def _keys(pod: Pod) -> tuple[_Key, ...]:
    """Return what a pod has in common with its replacements."""
    owner, membership = pod.metadata.controller, membership_if_readable(pod)
    key = pod.metadata.namespace, owner.uid if owner is not None else ""
    return (key,) if membership is None else (key, membership.key)
