"""The rows that filters reject, with their reasons; the rows that pass; the message if none passes. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.plugins.interface import ClusterFilterPlugin, Filter, Refusals, Texts, VolumeFilterPlugin

# Number of rows that volume filters check at first; the filters cost little when the best rows pass.
_FIRST_BATCH = 16
# For a group whose members share a topology domain.
OUTSIDE = "node(s) were outside the group's topology domain"


@dataclass(frozen=True, slots=True)
class Among:
    """The rows on which a member of a group is tried, and the label whose value they must share; empty for none."""

    flags: Flags
    label: str = ""


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows that a filter rejects, and its reasons; ``permanent`` if the reasons hold whichever pods are removed."""

    requeue_on: ClusterEvent
    texts: Texts
    rows: Rows
    permanent: bool = False


def rows_of(refusals: Sequence[RefusedRows]) -> Rows:
    return np.concatenate([np.zeros(0, np.intp), *(refusal.rows for refusal in refusals)])


def batches(rows: Rows) -> Iterator[Rows]:
    """Yield rows in batches of growing size."""
    start, size = 0, _FIRST_BATCH
    while start < len(rows):
        yield rows[start : start + size]
        start, size = start + size, 2 * size


def sift(
    rows: Rows, judges: Sequence[tuple[VolumeFilterPlugin | ClusterFilterPlugin, Filter]]
) -> tuple[Rows, list[RefusedRows]]:
    """Return the rows that pass all of these filters, and the reasons of the others."""
    result = list[RefusedRows]()
    for plugin, judge in judges:
        refusals = judge(rows)
        if refusals is not None:
            result += refused_by(plugin, refusals, rows)
            rows = rows[refusals.codes == 0]
    return rows, result


def refused_by(
    plugin: VolumeFilterPlugin | ClusterFilterPlugin, refusals: Refusals, rows: Rows
) -> Iterator[RefusedRows]:
    for code, texts in enumerate(refusals.texts, start=1):
        if len(matches := rows[refusals.codes == code]):
            permanent = isinstance(plugin, ClusterFilterPlugin) and texts in plugin.permanent
            yield RefusedRows(plugin.requeue_on, texts, matches, permanent)


def refused_rows(signature_scores: SignatureScores, among: Among | None, nodes: NodeColumns) -> Iterator[RefusedRows]:
    for plugin, texts, rows in signature_scores.refused():
        rows_among = rows if among is None else rows[among.flags[rows]]
        if len(rows_among):
            yield RefusedRows(plugin.requeue_on, texts, rows_among)
    if among is not None:
        yield from _outside(signature_scores.outside(among.flags), among, nodes)


def _outside(rows: Rows, among: Among, nodes: NodeColumns) -> Iterator[RefusedRows]:
    """Reject the rows outside a topology domain. Rows without the label get a reason of their own: they are in no
    domain at all.

    The domain with most placed members can change when one of their nodes is removed.
    """
    mask = nodes.label(among.label).ids[rows] == 0 if among.label else np.zeros(len(rows), np.bool_)
    parts = (f"node(s) had no label {among.label}", rows[mask]), (OUTSIDE, rows[~mask])
    for text, part in parts:
        if len(part):
            yield RefusedRows(ClusterEvent.NODE_LABELS | ClusterEvent.NODE_REMOVED, (text,), part)


def no_node_available(total: int, reasons: str) -> str:
    """Return the message that none of ``total`` nodes is available, with the reasons, in kube-scheduler's words."""
    return f"0/{total} nodes are available: {reasons}."


def for_member(reason: str, ordinal: str) -> str:
    """Return a message of `no_node_available` that names one member of a group; return other messages unchanged."""
    return reason.replace("nodes are available: ", f"nodes are available for the {ordinal} member: ", 1)


def none_available(total: int, counts: Mapping[str, int]) -> str:
    """Return the number of nodes for each reason, in kube-scheduler's words."""
    text_of_counts = ", ".join(sorted(f"{count} {text}" for text, count in counts.items() if count))
    return no_node_available(total, text_of_counts)
