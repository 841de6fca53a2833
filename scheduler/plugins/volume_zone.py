"""VolumeZone: where a bound volume says by labels in which zone or region it is, its node must be there too.

A node that has none of these labels is in every zone; ephemeral volumes are not asked.
Source: kube-scheduler's volumezone.
"""

import numpy as np

from scheduler.cache.node_columns import Flags, Nodes, Rows
from scheduler.cache.volumes.volume_cache import Catalogue
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import Filter, Refusals, VolumeRule, refuse_where
from scheduler.queue import Happening

_REASON = "node(s) had no available volume zone"
# The labels of old beside those that have come in their place.
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE,
    _REGION: _REGION,
}


def prepare(task: Task, nodes: Nodes, catalogue: Catalogue) -> Filter | str | None:
    demands: list[tuple[str, frozenset[str]]] = []
    for use in task.volumes.claims:
        claim = catalogue.claim(use.key)
        if use.owner or claim is None or not claim.spec.volume_name:
            continue
        volume = catalogue.shelf.get(claim.spec.volume_name)
        if volume is None:
            return f'persistentvolume "{claim.spec.volume_name}" not found'
        labels = volume.metadata.labels or {}
        demands += [(key, zones) for key in _LABELS if (zones := _zones(labels.get(key, "")))]
    return (lambda rows: _refuse(demands, nodes, rows)) if demands else None


def _refuse(demands: list[tuple[str, frozenset[str]]], nodes: Nodes, rows: Rows) -> Refusals | None:
    outside: Flags = np.zeros(len(rows), np.bool_)
    for key, zones in demands:
        newer = _lacks(nodes, rows, key) & _is_in(nodes, rows, _LABELS[key], zones)
        outside |= ~(_is_in(nodes, rows, key, zones) | newer)
    placed: Flags = np.zeros(len(rows), np.bool_)
    for key in _LABELS:
        placed |= ~_lacks(nodes, rows, key)
    return refuse_where(outside & placed, _REASON)


def _is_in(nodes: Nodes, rows: Rows, key: str, zones: frozenset[str]) -> Flags:
    found: Flags = nodes.label(key).spread(lambda value: value in zones, rows) != 0
    return found


def _lacks(nodes: Nodes, rows: Rows, key: str) -> Flags:
    found: Flags = nodes.label(key).spread(lambda value: value is None, rows) != 0
    return found


def _zones(label: str) -> frozenset[str]:
    """Return the zones that a label names, a volume may be in several; none if one of them is empty."""
    zones = frozenset(zone.strip() for zone in label.split("__"))
    return frozenset() if "" in zones else zones


_HELPED_BY = Happening.NODE_ADDED | Happening.NODE_LABELS | Happening.CLAIM | Happening.VOLUME
RULE = VolumeRule("VolumeZone", prepare, _HELPED_BY)
