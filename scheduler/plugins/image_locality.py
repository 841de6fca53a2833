"""ImageLocality: prefer nodes that already have the pod's images, the more so the more nodes have them.

The share of the nodes that have an image scales its size, so that one node with it does not attract all pods.
"""

from collections.abc import Sequence

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import NodeColumns, Rows
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import ScorePlugin, Scorer

# Bytes. Images that are smaller than this together count as none; the second is the maximum for each container.
_MIN_BYTES = 23 << 20
_MAX_CONTAINER_BYTES = 1000 << 20


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> Scorer | None:
    images = [full_name(image) for image in pod_info.pod.spec.images]
    return (lambda rows: score(images, nodes, rows)) if images else None


def score(images: Sequence[str], nodes: NodeColumns, rows: Rows) -> Amounts:
    valid = nodes.valid[: nodes.size]
    total, weighted_bytes = np.count_nonzero(valid), np.zeros(len(rows), np.int64)
    for image in images:
        sizes = nodes.image(image)
        node_count = np.count_nonzero((sizes > 0) & valid)
        if node_count:
            weighted_bytes += (sizes[rows] * (node_count / total)).astype(np.int64)
    if not weighted_bytes.any():
        return weighted_bytes
    max_bytes = _MAX_CONTAINER_BYTES * len(images)
    scores: Amounts = 100 * (np.clip(weighted_bytes, _MIN_BYTES, max_bytes) - _MIN_BYTES) // (max_bytes - _MIN_BYTES)
    return scores


def full_name(image: str) -> str:
    # Nodes report an image without a tag with the default one.
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


SCORE = ScorePlugin("ImageLocality", pre_filter)
