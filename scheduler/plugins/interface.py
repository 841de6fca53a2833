"""The extension points of a plugin: what it may be asked about a pod and the nodes.

A `FilterPlugin` and a `ScorePlugin` judge each node by itself, so their judgement of a node holds until that node
changes: it is kept, and asked for again for changed rows only. Those that judge what a node is take rows of
`scheduler.cache.node_columns.NodeColumns`; those that judge what its pods leave (`UsageFilterPlugin`,
`UsageScorePlugin`) take a `NodeView`, because that changes with every pod. A `ClusterFilterPlugin` looks at the pods of
all nodes and is asked for every pod, a `VolumeFilterPlugin` for every pod with volumes. A `ReservePlugin` finds exact
devices on the node that is about to be chosen. A `DryRunPlugin` judges one node again and again while pods are taken
off and put on. `scheduler.plugins.registry` lists the plugins; a node's reasons are those of the first filter that
refuses it. All are pure.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mooring.assignment import Assignment
from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.node_columns import Amounts, Column, Flags, NodeColumns
from scheduler.cache.node_view import Fact, Measure, NodeView, Rows
from scheduler.cache.pod_counts import PodCounts
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import Placement
from scheduler.queue import ClusterEvent

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusals:
    """For each row 0 where the node passes, else 1 + the index into ``texts`` of the reasons against it."""

    codes: NDArray[np.signedinteger[Any]]
    texts: tuple[Texts, ...]


def refuse_where(refused: Flags, text: str) -> Refusals | None:
    """Refuse the flagged rows for one reason; None if no row is."""
    return Refusals(refused.astype(np.int64), ((text,),)) if np.count_nonzero(refused) else None


def refuse_by(column: Column[Fact], judge: Callable[[Fact], str], rows: Rows) -> Refusals | None:
    """Refuse the rows against whose fact ``judge`` has a reason; None if no row is refused."""
    texts: dict[str, int] = {}

    def code(fact: Fact) -> int:
        text = judge(fact)
        return texts.setdefault(text, len(texts) + 1) if text else 0

    codes = column.spread(code, rows)
    return Refusals(codes, tuple((text,) for text in texts)) if texts else None


Filter = Callable[[Rows], Refusals | None]
Scorer = Callable[[Rows], Amounts]
UsageScorer = Callable[[NodeView], Measure]


class UsageFilter(NamedTuple):
    """``judge`` gives a mark, 0 where the node passes; ``reasons`` gives the reasons for any other mark."""

    judge: Callable[[NodeView], Measure]
    reasons: Callable[[int], Texts]


@dataclass(frozen=True, slots=True)
class FilterPlugin:
    """A rule about what a node is; ``requeue_on`` is what can turn a refusal around.

    ``pre_filter`` returns the filter for one pod, None where the rule has nothing to say about it.
    """

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns], Filter | None]
    requeue_on: ClusterEvent


@dataclass(frozen=True, slots=True)
class UsageFilterPlugin:
    """A rule about what a node's pods leave."""

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns], UsageFilter | None]
    requeue_on: ClusterEvent


@dataclass(frozen=True, slots=True)
class ScorePlugin:
    """A score by what a node is; ``pre_filter`` returns the scorer for one pod, None where there is nothing to score.

    Scores go from 0 (worst) to 100; the registry says how often they count. A scorer that counts in a measure of its
    own has them brought there over the nodes that pass the filters: the ``largest`` becomes 100, or 0 with ``reverse``.
    """

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns], Scorer | None]
    normalise: Literal["largest", "reverse"] | None = None


@dataclass(frozen=True, slots=True)
class UsageScorePlugin:
    """A score by what a node's pods leave, from 0 to 100."""

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns], UsageScorer | None]


def _never(_: Any) -> bool:
    return False


class ClusterFilter(Protocol):
    """A rule about other pods, ready for one pod."""

    def filter(self, rows: Rows) -> Refusals | None:
        """Refuse rows."""

    def score(self, rows: Rows) -> Amounts | None:
        """Score rows that pass every rule from 0 to 100; None where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class ClusterFilterPlugin:
    """A rule about other pods, which scores too; ``pre_filter`` returns None where it has nothing to say about a pod.

    ``lasting`` are the reasons that stay whichever pods are removed. ``needs_others`` says whether a pod must find
    others where it goes: nominated pods do not count for it, because they may never come. ``keeps_others_off`` says
    whether an assigned pod may be a reason against pods about which the rule has otherwise nothing to say.
    """

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns, PodCounts], ClusterFilter | None]
    requeue_on: ClusterEvent
    lasting: frozenset[Texts] = frozenset()
    needs_others: Callable[[PodInfo], bool] = _never
    keeps_others_off: Callable[[AssignedPod], bool] = _never


@dataclass(frozen=True, slots=True)
class VolumeFilterPlugin:
    """A rule about a pod's volumes, asked for every pod that has any.

    ``pre_filter`` returns the filter, None where there is nothing to say, or why no node at all will do. A ``slow``
    rule is asked about a few rows at a time.
    """

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns, VolumeCache], Filter | str | None]
    requeue_on: ClusterEvent
    slow: bool = False


# Where on a row exactly a pod's devices are, or the reason why they do not fit together there.
Reserve = Callable[[int], Placement | str]


@dataclass(frozen=True, slots=True)
class ReservePlugin:
    """Finds exact devices on a node that passes all filters and is about to be chosen.

    Where they do not fit together, the next best node is asked; kube-scheduler would send the pod back to its queue.
    ``pre_filter`` returns None for a pod that asks for none; at most one plugin has a say about a pod.
    """

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns], Reserve | None]
    requeue_on: ClusterEvent


class PreFilterExtensions(ABC):
    """One plugin's part of a dry run: what it has against a node while pods are put on and taken off there.

    ``tells_room``: `filter` refuses exactly where `has_room_for` said no. ``moves_cache``: pods are moved in the cache
    itself, so each must be moved back when the dry run ends. Source of the name: kube-scheduler's framework.
    """

    tells_room: ClassVar[bool] = False
    moves_cache: ClassVar[bool] = False

    @abstractmethod
    def add_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        """Put pods on the node."""

    @abstractmethod
    def remove_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        """Take pods off the node."""

    @abstractmethod
    def filter(self) -> Texts:
        """Return the reasons against the node as it is now; none if it passes."""

    def has_room_for(self, assigned_pods: Sequence[AssignedPod]) -> bool:
        """Return whether the pod, which fits now, would fit beside these too; True where only `filter` can tell."""
        return True

    def assignment(self) -> Assignment | None:
        """Return the exact devices that the pod would get; None if this plugin gives none, or has not enough."""
        return None

    def close(self) -> None:  # noqa: B027  most parts have nothing to do
        """Let the cache show again what is there, once all pods are back."""


class DryRun(NamedTuple):
    """A plugin's part of all dry runs of one pod.

    ``on`` makes its part for a row; with ``by_sums`` (its second argument) sums do where they say the same as exact
    devices. ``fits_alone`` says of rows whether the pod would fit there if no other pod were there.
    """

    on: Callable[[int, bool], PreFilterExtensions]
    fits_alone: Callable[[NodeView], Measure] | None = None


@dataclass(frozen=True, slots=True)
class DryRunPlugin:
    """A plugin whose verdict on a node hangs on the pods there; ``reserves`` if it gives exact devices.

    ``pre_filter`` returns None where it has nothing to say about a pod.
    """

    name: str
    pre_filter: Callable[[PodInfo, Cache], DryRun | None]
    reserves: bool = False


def no_node_available(total: int, reasons: str) -> str:
    """Return that none of ``total`` nodes is available, with the reasons, as kube-scheduler words it."""
    return f"0/{total} nodes are available: {reasons}."


def none_available(total: int, counts: Mapping[str, int]) -> str:
    """Return how many of all nodes have which reason against them, as kube-scheduler words it."""
    listed = ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count))
    return no_node_available(total, listed)


def normalised(raw: Amounts, kind: Literal["largest", "reverse"] | None) -> Amounts:
    """Bring scores to 0..100 as kube-scheduler's DefaultNormalizeScore does."""
    if kind is None:
        return raw
    largest = int(raw.max(initial=0))
    if largest == 0:
        return raw if kind == "largest" else np.full(len(raw), 100, np.int64)
    scaled = raw * 100 // largest
    return scaled if kind == "largest" else 100 - scaled
