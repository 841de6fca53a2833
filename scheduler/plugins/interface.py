"""The extension points of a plugin: the interface by which it evaluates a pod and the nodes.

A `FilterPlugin` and a `ScorePlugin` evaluate each node by itself. Their result is kept until that node changes, and
only changed rows are evaluated again. Plugins about a node's properties take rows of
`scheduler.cache.node_columns.NodeColumns`. Plugins about what its pods leave (`UsageFilterPlugin`, `UsageScorePlugin`)
take a `NodeView`, because that changes with every pod. A `ClusterFilterPlugin` reads the pods of all nodes and runs for
every pod, a `VolumeFilterPlugin` for every pod with volumes. In a dry run, these two run again when a pod was moved
that they read: one whose volumes or labels and terms count. All plugins are pure. The reasons against a node are those
of the first filter that rejects it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mooring.annotations.assignment import Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.column import Amounts, Column, Fact, Judgements, Measure, NodeView, Rows
from scheduler.cache.node_columns import Flags, NodeColumns
from scheduler.cache.pod_counts import PodCounts
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import Placement
from scheduler.placement.steps import Steps

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusals:
    """For each row 0 if the node passes, otherwise 1 + the index into ``texts`` of the reasons against it."""

    codes: NDArray[np.signedinteger[Any]]
    texts: tuple[Texts, ...]


def refuse_where(flags: Flags, text: str) -> Refusals | None:
    """Reject the flagged rows for one reason; return None if no row is flagged."""
    return Refusals(flags.astype(np.int64), ((text,),)) if np.count_nonzero(flags) else None


def refuse_by(
    column: Column[Fact], judge: Callable[[Fact], str], rows: Rows, by: Hashable = None, steps: Steps | None = None
) -> Refusals | None:
    """Reject the rows for whose fact ``judge`` returns a reason; return None if no row is rejected.

    With ``by``, the reasons are kept; it identifies the judge and everything on which its reasons depend besides the
    fact.
    """
    judgements = Judgements() if by is None else column.judgements(by)

    def code(fact: Fact) -> int:
        return judgements.code(judge(fact))

    codes = column.spread(code, rows, by, steps)
    return Refusals(codes, tuple((text,) for text in judgements.texts)) if codes.any() else None


Filter = Callable[[Rows], Refusals | None]
# A rule that takes long for each different node counts the evaluated values in the steps.
NodeFilter = Callable[[Rows, Steps], Refusals | None]
# Scores are 0 (worst) to 100.
Scorer = Callable[[Rows], Amounts]
UsageScorer = Callable[[NodeView], Measure]
# Returns the pod's exact devices on a row, or the reason why they do not fit together there; the search spends steps.
Reserve = Callable[[int, Steps], Placement | Refused]
_PreFilter = TypeVar("_PreFilter")


class UsageFilter(NamedTuple):
    """``judge`` returns a mark, 0 if the node passes; ``reasons`` returns the reasons for any other mark."""

    judge: Callable[[NodeView], Measure]
    reasons: Callable[[int], Texts]


class ClusterFilter(Protocol):
    """A rule about other pods, prepared for one pod."""

    def filter(self, rows: Rows) -> Refusals | None:
        """Return the rejected rows."""

    def score(self, rows: Rows) -> Amounts | None:
        """Score rows that pass every rule from 0 to 100; return None if the rule does not apply."""


@dataclass(frozen=True, slots=True)
class ExtensionPoint(Generic[_PreFilter]):
    """What a plugin does at one point; ``pre_filter`` prepares it for one pod, or returns None if it does not apply."""

    name: str
    pre_filter: _PreFilter


@dataclass(frozen=True, slots=True)
class _Filter(ExtensionPoint[_PreFilter]):
    """``requeue_on`` lists the events that can reverse a rejection; a new node always can."""

    requeue_on: ClusterEvent


class FilterPlugin(_Filter[Callable[[PodInfo, NodeColumns], NodeFilter | None]]):
    """A rule about a node's properties."""


class UsageFilterPlugin(_Filter[Callable[[PodInfo, NodeColumns], UsageFilter | None]]):
    """A rule about what a node's pods leave."""


class VolumeFilterPlugin(_Filter[Callable[[PodInfo, NodeColumns, VolumeCache], Filter | Refused | None]]):
    """A rule about a pod's volumes; ``pre_filter`` may return why every node is excluded."""


class ReservePlugin(_Filter[Callable[[PodInfo, NodeColumns], Reserve | None]]):
    """Finds exact devices on a node that passes all filters and is about to be chosen.

    If they do not fit together, the next best node is tried; kube-scheduler would return the pod to its queue. At most
    one plugin applies to a pod.
    """


@dataclass(frozen=True, slots=True)
class ClusterFilterPlugin(_Filter[Callable[[PodInfo, NodeColumns, PodCounts], ClusterFilter | None]]):
    """A rule about other pods, which may also score.

    ``permanent`` are the reasons that hold whichever pods are removed. ``needs_others`` returns whether a pod has
    required affinity: nominated pods do not count for it, because they may never arrive. ``keeps_others_off`` returns
    whether an assigned pod can exclude pods that have no such terms themselves.
    """

    permanent: frozenset[Texts] = frozenset()
    needs_others: Callable[[PodInfo], bool] = lambda _: False
    keeps_others_off: Callable[[AssignedPod], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class ScorePlugin(ExtensionPoint[Callable[[PodInfo, NodeColumns], Scorer | None]]):
    """A score by a node's properties.

    If a scorer has its own scale, its scores are scaled over the nodes that pass the filters: the ``largest`` becomes
    100, or 0 with ``reverse``.
    """

    scale: Literal["largest", "reverse"] | None = None

    def normalise(self, raw: Amounts) -> Amounts:
        """Scale scores to 0..100 as kube-scheduler's DefaultNormalizeScore does."""
        if self.scale is None:
            return raw
        largest = int(raw.max(initial=0))
        scores = raw * 100 // max(largest, 1)
        return scores if self.scale == "largest" else 100 - scores


class UsageScorePlugin(ExtensionPoint[Callable[[PodInfo, NodeColumns], UsageScorer | None]]):
    """A score by what a node's pods leave."""


class PreFilterExtensions(ABC):
    """One plugin's part of a dry run: its reasons against a node while pods are added and removed there.

    ``moves_cache``: pods are moved in the cache itself, so each must be moved back when the dry run ends, and then the
    part is closed. Source of the name: kube-scheduler's framework.
    """

    moves_cache: ClassVar[bool] = False

    @abstractmethod
    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        """Add pods to the node (``sign`` 1), or remove them (-1)."""

    @abstractmethod
    def filter(self) -> Texts:
        """Return the reasons against the node in its current state; empty if it passes."""

    def has_room_for(self, assigned_pods: Sequence[AssignedPod]) -> bool:
        """Return whether the pod, which fits now, would still fit with these; True if only `filter` can decide."""
        return True

    def assignment(self) -> Assignment | None:
        """Return the exact devices that the pod would get; None if this plugin assigns none, or has too few."""
        return None

    def close(self) -> None:  # noqa: B027  most parts have nothing to do
        """Restore the cache's own state, once all pods are back; called if ``moves_cache``."""


class DryRun(NamedTuple):
    """A plugin's part of all dry runs of one pod.

    ``on`` creates its part for a row; with ``by_sums`` (its second argument) it uses sums if they give the same result
    as exact devices. ``fits_empty`` returns for rows whether the pod would fit there if it had the node to itself.
    ``has_exact_room``: its parts reject exactly if their `PreFilterExtensions.has_room_for` returned False.
    """

    on: Callable[[int, bool], PreFilterExtensions]
    fits_empty: Callable[[NodeView], Measure] | None = None
    has_exact_room: bool = False


@dataclass(frozen=True, slots=True)
class DryRunPlugin(ExtensionPoint[Callable[[PodInfo, Cache, Steps], DryRun | None]]):
    """A plugin whose result on a node depends on the pods there; ``reserves`` if it assigns exact devices."""

    reserves: bool = False
