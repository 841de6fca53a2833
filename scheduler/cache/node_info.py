"""A node as the plugins read it: parsed when it changes, and compared to distinguish a change from a heartbeat."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring import names
from mooring.annotations.inventory import CNI, CRI_SHIM, Inventory, read_inventory
from mooring.annotations.rates import read_rates_in_force
from mooring.errors import AnnotationError
from scheduler.kube.objects import Node, Taint
from scheduler.kube.resources import parse_resources

# Seconds for which a node may be not Ready before its VFs are no longer assigned.
NOT_READY_S = 60.0
# The longest name of a node. Source: apimachinery's DNS1123SubdomainMaxLength.
_LONGEST_NAME = 253
# Limits per node; a node that exceeds one is ignored. Node feature discovery sets about a hundred labels.
MOST_LABELS, MOST_TAINTS, MOST_RESOURCES = 4096, 1000, 1000
# Maximum numbers of names of one image, and of images of a node. Source: the kubelet writes 5 names,
# MaxNamesPerImageInNodeStatus of pkg/kubelet/nodestatus/setters.go, and 50 images by default (nodeStatusMaxImages).
_MOST_IMAGE_NAMES, _MOST_IMAGES = 5, 5000


class InventoryFault(enum.Enum):
    """Why nothing new may be assigned from a node's inventory; the texts are in `scheduler.plugins.device_rules`."""

    MISSING = enum.auto()
    UNREADABLE = enum.auto()
    OTHER_BOOT = enum.auto()
    # Without the shim, nothing on the node stops a pod whose VFs are not attached.
    NO_SHIM = enum.auto()
    # For over `NOT_READY_S`.
    NOT_READY = enum.auto()


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node offers. ``fault`` is why its inventory cannot be used; None if it can."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    inventory: Inventory | None
    fault: InventoryFault | None
    # The text of the annotation: an unchanged text is not parsed again.
    text: str | None
    # When this scheduler first received the node as not Ready, in monotonic seconds; None while it is Ready.
    unready_since: float | None
    # Container images on the node: name to bytes.
    images: Mapping[str, int] = field(default_factory=dict)
    # Inventories of other kinds of resource, by kind, as the texts of their annotations.
    others: Mapping[str, str] = field(default_factory=dict)
    # The generation of the changed rates of each pod, by uid; None if the node does not support rate changes. An older
    # advertiser writes an inventory that does not say so, and leaves the annotation of a newer one.
    rates_in_force: Mapping[str, int] | None = None
    # The text of that annotation and its parsed value, even if it does not count.
    rates_text: str | None = None
    node_rates: Mapping[str, int] | None = None

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """The versions of the programs that read assignments, as far as the inventory names them."""
        versions = self.inventory.programs if self.inventory is not None else {}
        return tuple((name, versions[name]) for name in (CNI, CRI_SHIM) if name in versions)

    @property
    def handlers(self) -> frozenset[str] | None:
        """The runtime handlers whose pods get VFs; None if they are unknown."""
        return self.inventory.handlers if self.inventory is not None else None

    def inventory_fault(self, now: float) -> InventoryFault | None:
        """Return why nothing new may be assigned from the inventory at the monotonic time ``now``; None if it may."""
        if self.unready_since is not None and now - self.unready_since > NOT_READY_S:
            return InventoryFault.NOT_READY
        return self.fault


def read_node(node: Node, previous: NodeInfo | None, now: float) -> tuple[NodeInfo, str]:
    if len(node.metadata.name) > _LONGEST_NAME:
        raise ValueError(f"metadata.name has {len(node.metadata.name)} characters; the limit is {_LONGEST_NAME}")
    _hold_to_bounds(node)
    annotations = node.metadata.annotations or {}
    text = annotations.get(names.INVENTORY)
    inventory, fault, error = _inventory(text, previous)
    rates_text = annotations.get(names.RATES_IN_FORCE)
    node_rates, rates_error = _read_rates(rates_text, previous)
    boot = node.status.node_info.boot_id if node.status.node_info else ""
    if inventory is not None:
        fault = _unusable(inventory, boot)
    node_info = NodeInfo(
        name=node.metadata.name,
        labels=node.metadata.labels or {},
        taints=tuple(node.spec.taints or ()),
        unschedulable=bool(node.spec.unschedulable),
        allocatable=parse_resources(node.status.allocatable),
        inventory=inventory,
        fault=fault,
        text=text,
        unready_since=_unready_start(node, previous, now),
        images=_images(node),
        others={
            key.removeprefix(names.INVENTORY_OF): inventory_text
            for key, inventory_text in annotations.items()
            if key.startswith(names.INVENTORY_OF)
        },
        rates_in_force=node_rates if inventory is not None and inventory.rates else None,
        rates_text=rates_text,
        node_rates=node_rates,
    )
    return node_info, error or rates_error


def _images(node: Node) -> dict[str, int]:
    """Return the size in bytes of each image by each of its names; names beyond the kubelet's limits do not count."""
    images = (node.status.images or ())[:_MOST_IMAGES]
    return {name: image.size_bytes for image in images for name in (image.names or ())[:_MOST_IMAGE_NAMES]}


def _hold_to_bounds(node: Node) -> None:
    for number, subject, max_number in (
        (len(node.metadata.labels or ()), "labels", MOST_LABELS),
        (len(node.spec.taints or ()), "taints", MOST_TAINTS),
        (len(node.status.allocatable or ()), "resources", MOST_RESOURCES),
    ):
        if number > max_number:
            raise ValueError(f"{number} {subject} exceed the limit of {max_number}")


def _inventory(text: str | None, previous: NodeInfo | None) -> tuple[Inventory | None, InventoryFault | None, str]:
    if text is None:
        return None, InventoryFault.MISSING, ""
    if previous is not None and previous.text == text:
        return previous.inventory, previous.fault if previous.inventory is None else None, ""
    try:
        return read_inventory(text), None, ""
    except AnnotationError as unreadable:
        return None, InventoryFault.UNREADABLE, str(unreadable)


def _read_rates(text: str | None, previous: NodeInfo | None) -> tuple[Mapping[str, int] | None, str]:
    """Return the node's report of changed rates, and the error; if it cannot be read, the previous value stays."""
    if text is None:
        return None, ""
    if previous is not None and previous.rates_text == text:
        return previous.node_rates, ""
    try:
        return read_rates_in_force(text).generations, ""
    except AnnotationError as unreadable:
        return previous.node_rates if previous is not None else None, str(unreadable)


def _unusable(inventory: Inventory, boot: str) -> InventoryFault | None:
    if inventory.boot != boot:
        return InventoryFault.OTHER_BOOT
    return InventoryFault.NO_SHIM if inventory.lacks_shim else None


def _unready_start(node: Node, previous: NodeInfo | None, now: float) -> float | None:
    ready = node.condition("Ready")
    if ready is not None and ready.status == "True":
        return None
    # Another machine wrote the condition's time, so it is not compared with our clock: a new leader counts from its
    # first list. kube-controller-manager does the same: probeTimestamp in pkg/controller/nodelifecycle.
    return now if previous is None or previous.unready_since is None else previous.unready_since
