"""Drained PFs and VFs of a node, which get no new pods: the annotations ``mooring.dev/drain`` and ``drain-reasons``.

    mooring.dev/drain: ["enp4s0f0","enp4s0f1/7"]
    mooring.dev/drain-reasons: {"enp4s0f0":"new firmware"}

The advertiser reads the first annotation. The second one is for people; entries can be without a reason.
"""

from collections.abc import Mapping

from mooring import names
from mooring.errors import AnnotationError
from mooring.parsing import dump, parse

_MOST_ENTRIES = 4096
LONGEST_REASON = 256
# `Out.why` of a drained VF.
DRAINED = "drained"
# A reason for each entry, ``<pf>`` or ``<pf>/<vf>``; empty without one.
Drain = Mapping[str, str]


def read_drain(text: str | None) -> frozenset[str]:
    """Read ``mooring.dev/drain``: ``["enp4s0f0","enp4s0f1/7"]``; raise AnnotationError."""
    if text is None:
        return frozenset()
    items = parse(text, names.DRAIN, AnnotationError).items(_MOST_ENTRIES)
    return frozenset(item.string(longest=32) for item in items)


def read_drain_with_reasons(annotations: Mapping[str, str]) -> Drain:
    """Read both annotations of a node; raise AnnotationError. A reason without its entry is ignored."""
    entries = read_drain(annotations.get(names.DRAIN))
    reasons: dict[str, str] = {}
    if (text := annotations.get(names.DRAIN_REASONS)) is not None:
        fields = parse(text, names.DRAIN_REASONS, AnnotationError).fields()
        reasons = {entry: value.string(longest=LONGEST_REASON) for entry, value in fields.items()}
    return {entry: reasons.get(entry, "") for entry in sorted(entries)}


def dump_drain(drain: Drain) -> dict[str, str | None]:
    """Return both annotations; None is one to remove."""
    reasons = {entry: reason for entry, reason in drain.items() if reason}
    return {
        names.DRAIN: dump(sorted(drain)) if drain else None,
        names.DRAIN_REASONS: dump(reasons) if reasons else None,
    }
