"""Read from the node object what the advertiser needs: the drain annotation, extended resources and conditions."""

from collections.abc import Mapping, Sequence

import msgspec

from mooring import names
from mooring.errors import AnnotationError
from mooring.parsing import parse

_MOST_DRAINED = 4096


class _Metadata(msgspec.Struct):
    annotations: Mapping[str, str] | None = None


class NodeCondition(msgspec.Struct):
    """A condition of the node, without its times."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _NodeStatus(msgspec.Struct):
    capacity: Mapping[str, str | int] | None = None
    allocatable: Mapping[str, str | int] | None = None
    conditions: Sequence[NodeCondition] | None = None


class Node(msgspec.Struct):
    """The fields of a node object that the advertiser uses."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


def read_drain(text: str | None) -> frozenset[str]:
    """Read ``mooring.dev/drain``: ``["enp4s0f0","enp4s0f1/7"]``; raise AnnotationError."""
    if text is None:
        return frozenset()
    items = parse(text, names.DRAIN, AnnotationError).items(_MOST_DRAINED)
    return frozenset(item.string(longest=32) for item in items)
