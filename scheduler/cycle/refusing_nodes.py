"""Nodes that refused a pod just now: what replaces it goes elsewhere, if it fits elsewhere. Pure.

A kubelet that rejects a pod on arrival (`rejectPod` in pkg/kubelet/kubelet.go), or a node on which a pod's VF is lost,
mostly does the same to the next one, and often looks emptier than the others. Pods of one controller replace each
other; so do pods without a controller, in one namespace.
"""

from math import inf

from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.refusals import Among
from scheduler.kube.objects import Pod

# As long a node is avoided.
AVOIDED_S = 600.0


class RefusingNodes:
    """When each node is no longer avoided, by what its refused pods have in common."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], dict[str, float]] = {}
        self._next_end = inf

    def note(self, pod: Pod, node: str, now: float) -> None:
        """Let what replaces a pod avoid a node from now on."""
        self._ends.setdefault(_replaced_by(pod), {})[node] = now + AVOIDED_S
        self._next_end = min(self._next_end, now + AVOIDED_S)

    def elsewhere(self, pod: Pod, among: Among | None, nodes: NodeColumns) -> Among | None:
        """Return the rows, of those ``among`` if given, that a pod does not avoid; None if it avoids none."""
        names = self._ends.get(_replaced_by(pod), ()) if self._ends else ()
        rows = [nodes.row_of[name] for name in names if name in nodes.row_of]
        if not rows:
            return None
        flags = (nodes.valid[: nodes.size] if among is None else among.flags).copy()
        flags[rows] = False
        return Among(flags, "" if among is None else among.label)

    def next_end(self) -> float | None:
        return self._next_end if self._ends else None

    def forget(self, now: float) -> None:
        """Forget what is over."""
        if now < self._next_end:
            return
        ends = {key: {node: end for node, end in nodes.items() if end > now} for key, nodes in self._ends.items()}
        self._ends = {key: nodes for key, nodes in ends.items() if nodes}
        self._next_end = min((end for nodes in self._ends.values() for end in nodes.values()), default=inf)


def _replaced_by(pod: Pod) -> tuple[str, str]:
    owners = pod.metadata.owner_references or ()
    return pod.metadata.namespace, next((owner.uid for owner in owners if owner.controller), "")
