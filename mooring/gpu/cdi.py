"""Read CDI specifications: the device nodes of each device. Pure.

Source: SPEC.md of the Container Device Interface (cncf-tags), 0.3.0 to 1.0.0: ``kind``, ``devices[].name``,
``containerEdits.deviceNodes[]`` with ``path`` and, since 0.5.0, ``hostPath``; edits at the top apply to every device.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mooring.errors import ContractError
from mooring.parsing import Fields, Value, dump, parse

# Limits; nvidia-ctk writes two devices (by index and by UUID) for each GPU and each MIG slice, and `all`.
_MOST_DEVICES, _MOST_NODES = 4096, 4096
_LONGEST = 4096
# vendor.example/class, and a device's name (parser.ValidateVendorName, ValidateClassName and ValidateDeviceName).
_KIND = re.compile(r"[A-Za-z](?:[-.\w]*[A-Za-z0-9])?/[A-Za-z](?:[-\w]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[-.:\w]*[A-Za-z0-9])?", re.ASCII)
# The kinds of the vendors' generators (nvidia-ctk, amd-ctk). A device plugin can add specifications of another kind,
# with other hooks: NVIDIA's has the kind k8s.device-plugin.nvidia.com/gpu.
VENDOR_KINDS = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
# Device nodes of one GPU, below /dev: NVIDIA's, DRM's, and MIG's for GPU and compute instances, which are parts of a
# GPU (nvidia-ctk, MIG).
_OF_A_GPU = re.compile(r"nvidia[0-9]+$|dri/(?:card|renderD)[0-9]+$|nvidia-caps/", re.ASCII)


class CdiError(ContractError):
    """A CDI specification is invalid; ``key`` is the file's path."""

    kind = "CDI specification"


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A CDI device: ``kind=name``, and the paths of the device nodes that it adds to a container.

    ``edits`` is everything that it changes in a container; devices with equal edits are interchangeable.
    """

    kind: str
    name: str
    nodes: frozenset[str]
    edits: str = "{}"

    @property
    def qualified_name(self) -> str:
        """The device's name in a CRI request."""
        return f"{self.kind}={self.name}"


def read_cdi(text: str, path: str) -> tuple[CdiDevice, ...]:
    """Read a specification, given as JSON text; ignore unknown fields, which only the runtime needs. Raise CdiError."""
    document = parse(text, path, CdiError).fields()
    kind = document.required("kind").match(_KIND, "a kind such as 'vendor.com/gpu'")
    common_edits = _edits(document)
    device_of_name: dict[str, CdiDevice] = {}
    for item in document.required("devices").items(_MOST_DEVICES):
        device = _device(item, kind, common_edits)
        if device.name in device_of_name:
            # Container runtimes ignore such a file (Spec.validate of cncf-tags/container-device-interface).
            item.at("name", device.name).fail(f"{device.name!r} appears twice")
        device_of_name[device.name] = device
    return tuple(device_of_name.values())


def devices_of_gpus(devices: Iterable[CdiDevice], gpus: Mapping[str, Sequence[str]]) -> dict[str, list[CdiDevice]]:
    """Return for each GPU the devices that contain exactly it; ``gpus`` has the device nodes of each, below /dev."""
    all_devices = tuple(devices)
    return {pci: [device for device in all_devices if holds(device, nodes)] for pci, nodes in gpus.items()}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two CDI devices with the same GPU but different edits, by their qualified names."""

    first: str
    second: str


def choose(devices: Iterable[CdiDevice], uuid: str | None) -> CdiDevice | Contradiction | None:
    """Choose the device for a GPU among those that contain exactly it; None if there are none.

    Devices of the vendor's own kind are preferred. Among devices with equal edits, the one with the UUID as name is
    chosen or, without it, the first by name. Advertiser and shim both use this function.
    """
    candidates = sorted(devices, key=lambda device: device.qualified_name)
    candidates = [device for device in candidates if device.kind in VENDOR_KINDS] or candidates
    if not candidates:
        return None
    rival = next((device for device in candidates if device.edits != candidates[0].edits), None)
    if rival is not None:
        return Contradiction(candidates[0].qualified_name, rival.qualified_name)
    return next((device for device in candidates if device.name == uuid), candidates[0])


def holds(device: CdiDevice, nodes: Sequence[str]) -> bool:
    """Return whether a device contains exactly the GPU with these device nodes; the first is the compute node.

    False if the device lacks that node, or has a node of another GPU or of a part of a GPU (MIG).
    """
    below = {_below_dev(node) for node in device.nodes}
    other_nodes = below.difference(nodes)
    return bool(nodes) and nodes[0] in below and not any(_OF_A_GPU.match(node) for node in other_nodes)


def _device(value: Value, kind: str, common_edits: Fields | None) -> CdiDevice:
    document = value.fields()
    name = document.required("name").match(_NAME, "a CDI device's name")
    edits = [edit for edit in (common_edits, _edits(document)) if edit is not None]
    nodes = frozenset(node for edit in edits for node in _nodes(edit))
    return CdiDevice(kind, name, nodes, _join([edit.raw for edit in edits]))


def _edits(document: Fields) -> Fields | None:
    return document.optional("containerEdits", lambda value: None if value.raw is None else value.fields())


def _nodes(edits: Fields) -> Iterator[str]:
    yield from (_node(item) for item in edits.optional("deviceNodes", _items) or ())


def _join(edits: Sequence[Mapping[str, object]]) -> str:
    """Return edits as a text that is equal for equal edits; the order matters only for hooks, which run in turn."""
    items_of_field: dict[str, list[str]] = {}
    for edit in edits:
        for name, value in edit.items():
            if value:
                items_of_field.setdefault(name, []).extend(map(dump, value if isinstance(value, list) else [value]))
    return dump(
        {
            name: list(dict.fromkeys(items if name == "hooks" else sorted(items)))
            for name, items in items_of_field.items()
        }
    )


def _items(value: Value) -> Sequence[Value]:
    return () if value.raw is None else value.items(_MOST_NODES)


def _node(value: Value) -> str:
    document = value.fields()
    path = document.required("path").string(longest=_LONGEST)
    # The path on the host determines the GPU, not the path in the container.
    return document.optional("hostPath", lambda host: host.string(longest=_LONGEST)) or path


def _below_dev(path: str) -> str:
    """Return a node's path below its /dev; a driver in a container has its own /dev, such as /run/x/dev."""
    return path.rpartition("/dev/")[2]
