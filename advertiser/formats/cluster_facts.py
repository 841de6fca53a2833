"""Read from the node object what the advertiser needs: annotations, extended resources and conditions."""

from collections.abc import Mapping, Sequence

import msgspec


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
