"""NodeVolumeLimits: a node's CSI drivers say how many volumes they can attach to it.

A volume counts once, however many pods use it there, and also while it is attached to the node for no pod.
Source: kube-scheduler's nodevolumelimits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from scheduler.cache.node_columns import Nodes, Rows
from scheduler.cache.volumes.csi_migration import Handle, driver_of, handle_of
from scheduler.cache.volumes.volume_cache import Catalogue
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import Filter, Refusals, VolumeRule, refuse_where
from scheduler.queue import Happening

_REASON = "node(s) exceed max volume count"


def prepare(task: Task, nodes: Nodes, catalogue: Catalogue) -> Filter | str | None:
    wanted = _handles((use.key for use in task.volumes.claims), catalogue)
    if not wanted or not catalogue.has_limits:
        return None

    def is_full(row: int) -> bool:
        return _exceeds(wanted, nodes.names[row], catalogue)

    def refuse(rows: Rows) -> Refusals | None:
        return refuse_where(np.fromiter(map(is_full, rows.tolist()), np.bool_, len(rows)), _REASON)

    return refuse


def _exceeds(wanted: frozenset[Handle], node: str, catalogue: Catalogue) -> bool:
    limits = catalogue.limits(node)
    lowest = min((limits[driver] for driver, _ in wanted if driver in limits), default=None)
    claims, attached = catalogue.usage.claims_on(node), catalogue.attached_to(node)
    if lowest is None or len(wanted) + len(claims) + len(attached) <= lowest:
        # However they are told apart, there are not so many.
        return False
    present = _handles(claims, catalogue) | _attached(node, catalogue)
    counts: Mapping[str, int] = Counter(driver for driver, _ in present)
    added = Counter(driver for driver, _ in wanted - present)
    return any(counts[driver] + count > limits[driver] for driver, count in added.items() if driver in limits)


def _handles(claims: Iterable[str], catalogue: Catalogue) -> frozenset[Handle]:
    found = (_handle(key, catalogue) for key in claims)
    return frozenset(one for one in found if one is not None)


def _handle(key: str, catalogue: Catalogue) -> Handle | None:
    """Return what a claim's volume is to its driver; one that is not made yet is told apart by its claim."""
    claim = catalogue.claim(key)
    if claim is None:
        return None
    volume = catalogue.shelf.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return handle_of(volume.spec)
    storage_class = catalogue.storage_class(claim.storage_class)
    return (driver_of(storage_class.provisioner), key) if storage_class is not None else None


def _attached(node: str, catalogue: Catalogue) -> frozenset[Handle]:
    names = (one.spec.source.persistent_volume_name for one in catalogue.attached_to(node))
    volumes = (catalogue.shelf.get(name) for name in names if name)
    handles = (handle_of(volume.spec) for volume in volumes if volume is not None)
    return frozenset(handle for handle in handles if handle is not None)


_HELPED_BY = Happening.NODE_ADDED | Happening.ATTACHMENTS | Happening.VOLUMES_FREED | Happening.CLAIM
RULE = VolumeRule("NodeVolumeLimits", prepare, _HELPED_BY)
