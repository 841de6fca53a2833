"""A cluster at one moment, as `assess` reads it: objects of the API as JSON, and the captures of nodes. Pure.

The objects were made by anybody: `at` steps into them, whatever they contain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from advertiser.formats.use_record import NodeUse
from advertiser.inventory.build_inventory import InventoryResult
from advertiser.inventory.facts import Host

Object = Mapping[str, Any]
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
ATTACHMENTS = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions"
_RESOURCE = "/apis/resource.k8s.io"
CLAIMS = tuple(f"{_RESOURCE}/{version}/resourceclaims" for version in ("v1", "v1beta2", "v1beta1"))
SLICES = tuple(f"{_RESOURCE}/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1"))


@dataclass(frozen=True, slots=True)
class NodeCapture:
    """What a node's archive has: the host, its inventory by the default offer, and how its VFs are used.

    ``use`` is None for an archive that was made without `--uses`.
    """

    host: Host
    inventory: InventoryResult
    use: NodeUse | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``lists`` are the API's objects by the path of their list, None for a list that could not be read.

    ``captures`` and ``failed`` (why an archive was skipped) are by node. ``now`` is the UNIX time.
    """

    lists: Mapping[str, Sequence[Object] | None]
    now: float
    captures: Mapping[str, NodeCapture] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    def all(self, *paths: str) -> Sequence[Object]:
        """Return the objects of the first of these lists that was read."""
        return next((found for path in paths if (found := self.lists.get(path)) is not None), ())

    @property
    def nodes(self) -> Mapping[str, Object]:
        return {name_of(node): node for node in self.all(NODES)}

    def pods(self) -> Iterator[Object]:
        """Yield the pods that have not ended."""
        for pod in self.all(PODS):
            if at(pod, "status", "phase") not in ("Succeeded", "Failed"):
                yield pod


def at(document: Any, *steps: str) -> Any:
    """Return what is at a path; None if it is absent or leads through something else."""
    for step in steps:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def fields(document: Any, *steps: str) -> Mapping[str, Any]:
    """Return the map at a path, empty if there is none."""
    found = at(document, *steps)
    return found if isinstance(found, Mapping) else {}


def items(document: Any, *steps: str) -> list[Any]:
    """Return the list at a path, empty if there is none."""
    found = at(document, *steps)
    return found if isinstance(found, list) else []


def texts(document: Any, *steps: str) -> dict[str, str]:
    """Return the texts of a map at a path, such as labels."""
    found = at(document, *steps)
    return {key: text for key, text in found.items() if isinstance(text, str)} if isinstance(found, Mapping) else {}


def name_of(item: Object) -> str:
    return str(at(item, "metadata", "name") or "")


def key_of(item: Object) -> str:
    """Return ``namespace/name``."""
    return f"{at(item, 'metadata', 'namespace') or 'default'}/{name_of(item)}"


def uid_of(item: Object) -> str:
    return str(at(item, "metadata", "uid") or "")


def annotations_of(item: Object) -> dict[str, str]:
    return texts(item, "metadata", "annotations")


def labels_of(item: Object) -> dict[str, str]:
    return texts(item, "metadata", "labels")


def unix_time(text: object) -> float | None:
    """Return a time of the API as UNIX time; None if it cannot be read."""
    try:
        read = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return None if read.tzinfo is None else read.timestamp()


def created_at(item: Object) -> float:
    return unix_time(at(item, "metadata", "creationTimestamp")) or 0.0
