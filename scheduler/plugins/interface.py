"""What a rule is: it looks at one pod and many nodes, and says in words why a node will not do.

A `FilterPlugin` and a `ScorePlugin` judge each node by itself, so their judgement of a node holds until that node
changes: it is kept, and asked for again for changed rows only. Those that judge what a node is take rows of
`scheduler.cache.node_columns.NodeColumns`; those that judge what its pods leave (`UsageFilterPlugin`,
`UsageScorePlugin`) take a `NodeView`, because that changes with every pod. A `ClusterFilterPlugin` looks at the pods of
all nodes and is asked for every pod. Rules come in the order in which kube-scheduler runs them; a node's reasons are
those of the first rule that refuses it. All are pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.node_columns import Amounts, Column, Flags, NodeColumns
from scheduler.cache.node_view import Fact, Measure, NodeView, Rows
from scheduler.cache.pod_counts import PodCounts
from scheduler.cache.volumes.volume_cache import VolumeCache
from scheduler.kube.pod_info import PodInfo
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
    """``judge`` gives a mark, 0 where the node passes; ``tell`` puts the reasons for any other mark in words."""

    judge: Callable[[NodeView], Measure]
    tell: Callable[[int], Texts]


@dataclass(frozen=True, slots=True)
class FilterPlugin:
    """A named rule; ``requeue_on`` is what can turn a refusal around.

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
    """A named score plugin; ``pre_filter`` returns the scorer for one pod, None where there is nothing to say about it.

    Scores go from 0 (worst) to 100 and count ``weight`` times. A scorer that counts in a measure of its own has them
    brought there over the nodes that pass the rules: the ``largest`` becomes 100, or 0 with ``reverse``.
    """

    name: str
    weight: int
    pre_filter: Callable[[PodInfo, NodeColumns], Scorer | None]
    normalise: Literal["largest", "reverse"] | None = None


@dataclass(frozen=True, slots=True)
class UsageScorePlugin:
    """A score plugin about what a node's pods leave; scores go from 0 to 100 and count ``weight`` times."""

    name: str
    weight: int
    pre_filter: Callable[[PodInfo, NodeColumns], UsageScorer | None]


class ClusterFilter(Protocol):
    """A rule about other pods, ready for one pod."""

    def filter(self, rows: Rows) -> Refusals | None:
        """Refuse rows."""

    def score(self, rows: Rows) -> Amounts | None:
        """Score rows that pass every rule from 0 to 100; None where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class ClusterFilterPlugin:
    """A named rule about other pods; ``pre_filter`` returns None for a pod about which it has nothing to say.

    ``lasting`` are the reasons that no pod's going turns around.
    """

    name: str
    weight: int
    pre_filter: Callable[[PodInfo, NodeColumns, PodCounts], ClusterFilter | None]
    requeue_on: ClusterEvent
    lasting: frozenset[Texts] = frozenset()


@dataclass(frozen=True, slots=True)
class VolumeFilterPlugin:
    """A named rule about a pod's volumes, asked for every pod that has any.

    ``pre_filter`` returns the filter, None where there is nothing to say, or why no node at all will do. A ``slow``
    rule is asked about a few rows at a time.
    """

    name: str
    pre_filter: Callable[[PodInfo, NodeColumns, VolumeCache], Filter | str | None]
    requeue_on: ClusterEvent
    slow: bool = False


def none_available(total: int, counts: Mapping[str, int]) -> str:
    """Return how many of all nodes have which reason against them, as kube-scheduler words it."""
    listed = ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count))
    return f"0/{total} nodes are available: {listed}."


def normalised(raw: Amounts, kind: Literal["largest", "reverse"] | None) -> Amounts:
    """Bring scores to 0..100 as kube-scheduler's DefaultNormalizeScore does."""
    if kind is None:
        return raw
    largest = int(raw.max(initial=0))
    if largest == 0:
        return raw if kind == "largest" else np.full(len(raw), 100, np.int64)
    scaled = raw * 100 // largest
    return scaled if kind == "largest" else 100 - scaled
