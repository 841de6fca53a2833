"""How each kind is decoded: of a node beyond any usual size without its images, which only draw pods to it.

A node may list half a million empty images in the 1.5 MiB that etcd takes of one object. To decode them takes three
times as long as to leave them out.
"""

from typing import Any, TypeVar

import msgspec

from mooring.kube.watch import Decoder, OfLarge
from scheduler.kube.objects import Condition, Metadata, Node, NodeSpec, NodeStatus, NodeSystemInfo, Quantities, Struct

T = TypeVar("T")
# 50 images, as many as a kubelet lists, have some 30 KiB, and an inventory and its like as many.
_MOST_BYTES = 512 << 10


class _LargeStatus(Struct):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[Condition] | None = None
    node_info: NodeSystemInfo | None = None


class _LargeNode(Struct):
    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: _LargeStatus = msgspec.field(default_factory=_LargeStatus)


def decoder_of(kind: type[T]) -> Decoder[T]:
    """Return the decoder of a kind that is watched."""
    of_large: Any = OfLarge(_MOST_BYTES, _LargeNode, _node) if issubclass(kind, Node) else None
    return Decoder(kind, of_large)


def _node(large: _LargeNode) -> Node:
    status = large.status
    node_status = NodeStatus(status.allocatable, status.capacity, status.conditions, status.node_info)
    return Node(large.metadata, large.spec, node_status)
