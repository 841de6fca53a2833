"""Cache scores by pod signature from decision to decision: the most recently used shapes, within limits.

At most 64 MiB in all; a shape is dropped a minute after its last use.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import msgspec

from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import SignatureScores, bytes_of, row_capacity
from scheduler.kube.objects import Affinity, Container, OwnedMetadata, Pod, PodSpec
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import NO_AFFINITY

# Limit in bytes, about 150 shapes on 20,000 nodes; and how many fit if few are kept.
_MOST_BYTES, _FEW = 64 << 20, 8
# Bytes that a character of a shape takes, with the part of a pod that is kept for it.
_A_CHARACTER = 6
# Seconds after which an unused shape is dropped: the next of its pods may come soon.
_UNUSED_S = 60.0


class KeptSignatureScores:
    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._on_overrun: Callable[[], None] = self._count_overrun
        # With the time of the last use, and the bytes; the most recently used is last.
        self._shapes: OrderedDict[bytes, tuple[SignatureScores, float, int]] = OrderedDict()
        self._now, self._byte_count = 0.0, 0
        self._most_bytes = _MOST_BYTES
        # For a snapshot: what it was made from, and the numbers of the first changes and renewals that it lacks.
        self._live: tuple[KeptSignatureScores, int, int] | None = None
        # How many searches for a placement have run out of steps.
        self.overruns = 0

    def snapshot(self, nodes: NodeColumns, *, keeps_few: bool = False) -> "KeptSignatureScores":
        """Return a snapshot's scores; with ``keeps_few``, the last ones, and shapes are evaluated only there."""
        snapshot = KeptSignatureScores(nodes)
        snapshot._on_overrun = self._on_overrun
        if keeps_few:
            snapshot._most_bytes = _FEW * bytes_of(row_capacity(nodes))
        else:
            snapshot._live = self, self._nodes.changes.end, self._nodes.renewals.end
        return snapshot

    def tick(self, now: float) -> None:
        self._now = now
        while self._shapes and next(iter(self._shapes.values()))[1] < now - _UNUSED_S:
            self._drop_first()

    def of(self, pod_info: PodInfo, budget: PlacementBudget) -> SignatureScores:
        shape = pod_info.shape
        scores, _, old_byte_count = self._shapes.get(shape, (None, 0.0, 0))
        if scores is None:
            scores = self._new(pod_info, budget)
        else:
            scores.refresh(budget)
        byte_count = scores.byte_count + _A_CHARACTER * len(shape)
        self._byte_count += byte_count - old_byte_count
        self._shapes[shape] = scores, self._now, byte_count
        self._shapes.move_to_end(shape)
        while self._byte_count > self._most_bytes and len(self._shapes) > 1:
            self._drop_first()
        return scores

    def _new(self, pod_info: PodInfo, budget: PlacementBudget) -> SignatureScores:
        if self._live is not None:
            live, changes_end, renewals_end = self._live
            if live._nodes.renewals.end == renewals_end:
                return live.of(pod_info, budget).snapshot(self._nodes, changes_end, budget)
        return SignatureScores(_shape_part(pod_info), self._nodes, budget, self._on_overrun)

    def _drop_first(self) -> None:
        _, (_, _, byte_count) = self._shapes.popitem(last=False)
        self._byte_count -= byte_count

    def _count_overrun(self) -> None:
        self.overruns += 1


def _shape_part(pod_info: PodInfo) -> PodInfo:
    """Return the part of a pod that the plugins read which evaluate each node by itself; this part is in its shape."""
    spec, request = pod_info.pod.spec, pod_info.request
    own_spec = PodSpec(
        containers=[Container("", image=image) for image in spec.images],
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        affinity=Affinity(node_affinity=spec.affinity.node_affinity) if spec.affinity is not None else None,
        tolerations=spec.tolerations,
        runtime_class_name=spec.runtime_class_name,
    )
    if request is not None and any(interface.containers for interface in request.interfaces):
        request = replace(
            request, interfaces=tuple([replace(interface, containers=None) for interface in request.interfaces])
        )
    pod = Pod(OwnedMetadata(name=""), own_spec)
    return msgspec.structs.replace(pod_info, pod=pod, affinity_info=NO_AFFINITY, spread=(), volumes=(), request=request)
