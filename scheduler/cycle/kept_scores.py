"""Cache scores by pod signature from decision to decision, within limits.

Method: two lists in the order of use. A new shape enters the short list. When a second pod has it, it moves to the long
list, which holds nine times as many rows. Dropped shapes are remembered by hash, so shapes that alternate, more than
the short list holds, still reach the long list (2Q: Johnson and Shasha, VLDB 1994).

Correctness: the cache only decides what is evaluated again. A shape that is not cached is evaluated on all nodes, with
the same scores.

Cost: about 25 bytes per row and shape. Shapes of one pod each take at most 20 MiB, whoever creates them; shapes that
several pods have take at most 180 MiB. All are dropped a minute after their last use.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from scheduler.cache.node_columns import NodeColumns
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import SignatureScores, rows_kept
from scheduler.kube.objects import Affinity, Container, OwnedMetadata, Pod, PodSpec
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import NO_AFFINITY

# Limits on the rows of all shapes of one pod, and of all shapes of several pods; but at least these numbers of shapes
# are kept. The larger limit is enough for 211 shapes on 20,000 nodes.
_MAX_SINGLE_POD_ROWS = 500_000
_MAX_SHARED_ROWS = 4_500_000
_FEWEST = 8
# Seconds after which an unused shape is dropped: the next of its pods may come soon.
_UNUSED_S = 60.0
# Limit in characters on the sum of all shapes.
_MOST_CHARACTERS = 8 << 20
# Number of shapes whose first pod is remembered.
_MAX_FIRST_PODS = 4096


@dataclass(slots=True)
class _Entry:
    scores: SignatureScores
    used_at: float


_Shapes = OrderedDict[bytes, _Entry]


class KeptSignatureScores:
    """The scores of the most recently used shapes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._on_budget_spent: Callable[[], None] = self._count_spent
        self._single_pod_shapes: _Shapes = OrderedDict()
        self._shared_shapes: _Shapes = OrderedDict()
        # The first pod of each shape, both by hash, including shapes that were dropped.
        self._first_pod: OrderedDict[int, int] = OrderedDict()
        self._now = 0.0
        self._characters = 0
        # For a snapshot: what it was made from, and the numbers of the first changes and renewals that it does not
        # have.
        self._live: tuple[KeptSignatureScores, int, int] | None = None
        # How many searches for a placement have run out of steps.
        self.budget_spent = 0

    def snapshot(self, nodes: NodeColumns) -> "KeptSignatureScores":
        """Return the scores for a snapshot of the columns. A shape is evaluated here first, so that other snapshots
        find it.
        """
        snapshot = KeptSignatureScores(nodes)
        snapshot._on_budget_spent = self._on_budget_spent
        snapshot._live = self, self._nodes.changes.end, self._nodes.renewals.end
        return snapshot

    def tick(self, now: float) -> None:
        """Drop the shapes that are no longer used."""
        self._now = now
        for shapes in (self._single_pod_shapes, self._shared_shapes):
            while shapes and next(iter(shapes.values())).used_at < now - _UNUSED_S:
                self._drop_first(shapes)

    def of(self, pod_info: PodInfo, budget: PlacementBudget) -> SignatureScores:
        """Return a shape's scores for the current nodes, for a decision with this budget."""
        shape = pod_info.shape
        entry = self._shared_shapes.get(shape)
        if entry is not None:
            self._shared_shapes.move_to_end(shape)
        else:
            entry = self._single_pod_shapes.pop(shape, None)
            into = self._make_room(pod_info, 0 if entry is not None else len(shape))
            if entry is None:
                scores = self._new(pod_info, budget)
                into[shape] = _Entry(scores, self._now)
                self._characters += len(shape)
                return scores
            into[shape] = entry
        entry.used_at = self._now
        entry.scores.refresh(budget)
        entry.scores.begin(budget)
        return entry.scores

    def _new(self, pod_info: PodInfo, budget: PlacementBudget) -> SignatureScores:
        if self._live is not None:
            live, changes_end, renewals_end = self._live
            if live._nodes.renewals.end == renewals_end:
                return live.of(pod_info, budget).snapshot(self._nodes, changes_end, budget)
        return SignatureScores(_judged_alone(pod_info), self._nodes, budget, self._on_budget_spent)

    def _make_room(self, pod_info: PodInfo, characters: int) -> _Shapes:
        """Return the list for a pod's shape, after making room for it and its characters."""
        first = self._first_pod.setdefault(hash(pod_info.shape), hash(pod_info.uid))
        if len(self._first_pod) > _MAX_FIRST_PODS:
            self._first_pod.popitem(last=False)
        into, rows = self._single_pod_shapes, _MAX_SINGLE_POD_ROWS
        if first != hash(pod_info.uid):
            into, rows = self._shared_shapes, _MAX_SHARED_ROWS
        while len(into) >= max(rows // rows_kept(self._nodes), _FEWEST):
            self._drop_first(into)
        max_characters = _MOST_CHARACTERS - characters
        while self._characters > max_characters and (shapes := self._single_pod_shapes or self._shared_shapes):
            self._drop_first(shapes)
        return into

    def _drop_first(self, shapes: _Shapes) -> None:
        shape, _ = shapes.popitem(last=False)
        self._characters -= len(shape)

    def _count_spent(self) -> None:
        self.budget_spent += 1


def _judged_alone(pod_info: PodInfo) -> PodInfo:
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
