"""ImageLocality: prefer nodes that have the pod's images already, the more so the more nodes have them.

The share of the nodes that have an image scales its size, so that one node with it does not draw all pods.
"""

import numpy as np

from scheduler.columns import Amounts, Nodes, Rows
from scheduler.plugins.rule import Preference, Scorer
from scheduler.task import Task

_MIB = 1024 * 1024
# Images together smaller than this count as none; each container's counts up to the most. Bytes.
_LEAST = 23 * _MIB
_MOST_OF_ONE = 1000 * _MIB


def prepare(task: Task, nodes: Nodes) -> Scorer | None:
    """Return a scorer, None for a pod whose containers name no image."""
    spec = task.pod.spec
    if not any(container.image for container in (*(spec.init_containers or ()), *(spec.containers or ()))):
        return None
    return lambda rows: score(task, nodes, rows)


def score(task: Task, nodes: Nodes, rows: Rows) -> Amounts:
    """Return 0 to 100 for each row."""
    spec = task.pod.spec
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    total = np.count_nonzero(nodes.valid[: nodes.size])
    there = np.zeros(len(rows), np.int64)
    for container in containers:
        sizes = nodes.image(full_name(container.image))[: nodes.size]
        having = np.count_nonzero((sizes > 0) & nodes.valid[: nodes.size])
        there += (sizes[rows] * (having / total)).astype(np.int64)
    most = _MOST_OF_ONE * len(containers)
    scores: Amounts = 100 * (np.clip(there, _LEAST, most) - _LEAST) // (most - _LEAST)
    return scores


def full_name(image: str) -> str:
    """Return an image's name as nodes report it: with the tag that is meant where none is given."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


PREFERENCE = Preference("ImageLocality", 1, prepare)
