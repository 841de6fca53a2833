"""CDI specifications: which device nodes each of their devices brings. Pure.

Source: SPEC.md of the Container Device Interface (cncf-tags), 0.3.0 to 1.0.0: ``kind``, ``devices[].name``,
``containerEdits.deviceNodes[]`` with ``path`` and, since 0.5.0, ``hostPath``; edits at the top apply to every device.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mooring.errors import ContractError
from mooring.parsing import Fields, Value, parse

# nvidia-ctk writes one device by index, one by UUID for each GPU and each MIG slice, and `all`.
_MOST_DEVICES, _MOST_NODES = 4096, 4096
_LONGEST = 4096
# vendor.example/class, and a device's name (parser.ValidateVendorName, ValidateClassName and ValidateDeviceName).
_KIND = re.compile(r"[A-Za-z](?:[-.\w]*[A-Za-z0-9])?/[A-Za-z](?:[-\w]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[-.:\w]*[A-Za-z0-9])?", re.ASCII)
# With them comes a part of a GPU: MIG's device nodes for a GPU instance and a compute instance (nvidia-ctk, MIG).
_PARTS = "nvidia-caps/"


class CdiError(ContractError):
    """A CDI specification that cannot be read; ``key`` is the file's path."""

    kind = "CDI specification"


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device as a container runtime knows it: ``kind=name``, and the device nodes that it brings, by their paths."""

    kind: str
    name: str
    nodes: frozenset[str]

    @property
    def qualified(self) -> str:
        """The name that a CRI request takes."""
        return f"{self.kind}={self.name}"


def read_cdi(text: str, path: str) -> tuple[CdiDevice, ...]:
    """Read a specification, as JSON text; raise CdiError. Unknown fields are ignored: they are the runtime's matter."""
    document = parse(text, path, CdiError).fields()
    kind = document.required("kind").match(_KIND, "a kind such as 'vendor.com/gpu'")
    shared = _nodes(document)
    return tuple(_device(item, kind, shared) for item in document.required("devices").items(_MOST_DEVICES))


def devices_of_gpus(devices: Iterable[CdiDevice], gpus: Mapping[str, Sequence[str]]) -> dict[str, list[CdiDevice]]:
    """Return for each GPU the devices that hold exactly it: ``gpus`` has each GPU's own device nodes below /dev.

    The first of a GPU's nodes is the one that computes. A device that lacks it, brings nodes of two GPUs, or a part of
    one (MIG), does not hold the GPU.
    """
    owners = {node: pci for pci, nodes in gpus.items() for node in nodes}
    found: dict[str, list[CdiDevice]] = {pci: [] for pci in gpus}
    for device in devices:
        below = {_below_dev(node) for node in device.nodes}
        held = {owners[node] for node in below if node in owners}
        if len(held) == 1 and not any(node.startswith(_PARTS) for node in below):
            (pci,) = held
            if gpus[pci][0] in below:
                found[pci].append(device)
    return found


def _device(value: Value, kind: str, shared: frozenset[str]) -> CdiDevice:
    document = value.fields()
    name = document.required("name").match(_NAME, "a CDI device's name")
    return CdiDevice(kind, name, shared | _nodes(document))


def _nodes(document: Fields) -> frozenset[str]:
    edits = document.optional("containerEdits", lambda value: None if value.raw is None else value.fields())
    listed = edits.optional("deviceNodes", _items) if edits else None
    return frozenset(_node(item) for item in listed or ())


def _items(value: Value) -> Sequence[Value]:
    return () if value.raw is None else value.items(_MOST_NODES)


def _node(value: Value) -> str:
    document = value.fields()
    path = document.required("path").string(longest=_LONGEST)
    # What is on the host decides which GPU it is, not the name in the container.
    return document.optional("hostPath", lambda host: host.string(longest=_LONGEST)) or path


def _below_dev(path: str) -> str:
    """Return a device node's path below its /dev: a driver in a container has a /dev of its own, such as /run/x/dev."""
    return path.rpartition("/dev/")[2]
