"""The scores by signature that are kept from decision to decision, within bounds.

What it is: two lists in the order of use. The shape of a pod is first in the short one. When a second pod has it, it
moves to the long one, which holds nine times as many rows. What was dropped is remembered by its hash. So shapes that
come in turns, more than the short list holds, get into the long one all the same (2Q: Johnson and Shasha, VLDB 1994).

Why it is right: only what is judged again depends on it. A shape that is not kept is judged again over all nodes, which
gives the same scores.

What it costs: some 25 bytes a row and shape. Pods that all differ take 20 MiB at most, whoever creates them; shapes
that several pods have take 180 MiB at most. All of it goes a minute after the last use.
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
from scheduler.kube.pod_volumes import NO_VOLUMES
from scheduler.kube.selection.affinity import NO_AFFINITY

# The limits on rows of all shapes that one pod has had, and of those that several had; but at least so many are kept.
# The larger one is enough for 211 shapes on 20,000 nodes.
_MAX_SINGLE_POD_ROWS = 500_000
_MAX_SHARED_ROWS = 4_500_000
_FEWEST = 8
# Seconds after which a shape is dropped that no decision has used: the next of its pods may come soon.
_UNUSED_S = 60.0
# Shapes are dropped beyond so many characters of them all.
_MOST_CHARACTERS = 8 << 20
# Shapes of which the first pod is remembered.
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
        # The first pod of each shape, both by their hashes; also of shapes that were dropped.
        self._first_pod: OrderedDict[int, int] = OrderedDict()
        self._now = 0.0
        self._characters = 0
        # Of a snapshot, what it was made of, and the numbers of the first changes and renewals that it does not have.
        self._live: tuple[KeptSignatureScores, int, int] | None = None
        # How many searches for a placement have run out of steps.
        self.budget_spent = 0

    def snapshot(self, nodes: NodeColumns) -> "KeptSignatureScores":
        """Return the scores for a snapshot of the columns. A shape is judged here first, so that others find it."""
        snapshot = KeptSignatureScores(nodes)
        snapshot._on_budget_spent = self._on_budget_spent
        snapshot._live = self, self._nodes.changes.end, self._nodes.renewals.end
        return snapshot

    def tick(self, now: float) -> None:
        """Drop the shapes that are not used any more."""
        self._now = now
        for shapes in (self._single_pod_shapes, self._shared_shapes):
            while shapes and next(iter(shapes.values())).used_at < now - _UNUSED_S:
                self._drop_first(shapes)

    def of(self, pod_info: PodInfo, budget: PlacementBudget) -> SignatureScores:
        """Return a shape's scores as the nodes are now, for a decision that may spend this budget."""
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
        """Return the list that a pod's shape belongs in, with room for it and so many characters more."""
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
    """Return as much of a pod as the plugins that judge each node by itself read: that is in its shape."""
    spec, request = pod_info.pod.spec, pod_info.request
    own_spec = PodSpec(
        containers=[Container("", image=image) for image in spec.images],
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        affinity=Affinity(node_affinity=spec.affinity.node_affinity) if spec.affinity is not None else None,
        tolerations=spec.tolerations,
    )
    if request is not None and any(interface.containers for interface in request.interfaces):
        request = replace(
            request, interfaces=tuple([replace(interface, containers=None) for interface in request.interfaces])
        )
    pod = Pod(OwnedMetadata(name=""), own_spec)
    return msgspec.structs.replace(
        pod_info, pod=pod, affinity_info=NO_AFFINITY, spread=(), volumes=NO_VOLUMES, request=request
    )
