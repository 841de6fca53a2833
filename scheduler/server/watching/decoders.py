"""The decoder of each kind; a node of unusual size is decoded without its images, which only influence scores.

A node may list half a million empty images in the 1.5 MiB that etcd accepts for one object. Decoding them takes three
times as long as skipping them.
"""

from typing import Any, TypeVar

import msgspec

from mooring.kube.watch import Decoder, OfLarge
from scheduler.kube.objects import Node, NodeHealth, NodeOutline, NodeSpec, NodeStatus, Quantities

T = TypeVar("T")
# 50 images, as many as a kubelet lists, take about 30 KiB, and an inventory with other annotations about as much.
_MOST_BYTES = 512 << 10


class _LargeStatus(NodeHealth):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None


class _LargeNode(NodeOutline):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: _LargeStatus = msgspec.field(default_factory=_LargeStatus)


def decoder_of(kind: type[T]) -> Decoder[T]:
    """Return the decoder of a watched kind."""
    of_large: Any = OfLarge(_MOST_BYTES, _LargeNode, _node) if issubclass(kind, Node) else None
    return Decoder(kind, of_large)


def _node(large: _LargeNode) -> Node:
    status = large.status
    node_status = NodeStatus(status.conditions, status.node_info, status.allocatable, status.capacity)
    return Node(large.metadata, node_status, large.spec)
