"""A node's GPUs: the annotation ``mooring.dev/inventory.gpu``, written by the node's advertiser.

    {"v":1,"gpus":[{"pci":"0000:1b:00.0","uuid":"GPU-…","vendor":"nvidia","model":"NVIDIA H100 80GB HBM3",
      "memory_mb":81559,"numa":0,"pcie":["0000:15:01.0","0000:16:00.0"],"link":0}],
      "out":[{"pci":"0000:43:00.0","why":"MIG is on"}]}

``gpus`` are those on offer, ordered by PCI address; ``out`` are the others, each with its reason. A reader that ignores
``out`` assigns none of them. Readers ignore unknown fields.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mooring import names
from mooring.errors import AnnotationError
from mooring.parsing import Fields, Value, dump, parse

KEY = f"{names.INVENTORY_OF}gpu"
# A host with PCIe expansion boxes has some dozens of GPUs.
MOST_GPUS = 64
MOST_INVENTORY_CHARACTERS = 128 * 1024
# No path has as many bridges: each needs a bus number, and a domain has 256.
_DEEPEST = 64
LONGEST_MODEL, LONGEST_WHY = 128, 256
MOST_MEMORY_MB = 1 << 24
MOST_NUMA = 4095
_UUID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,63}", re.ASCII)
Vendor = Literal["nvidia", "amd"]
VENDORS: tuple[Vendor, Vendor] = ("nvidia", "amd")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gpu:
    """A GPU on offer, with PCI address and UUID.

    ``memory_mb`` is in MiB; ``pcie`` are the bridges from the root down, as for a PF. GPUs with the same ``link`` reach
    each other by NVLink, NVSwitch or xGMI; None without known links.
    """

    pci: str
    uuid: str
    vendor: Vendor
    model: str | None = None
    memory_mb: int | None = None
    numa: int | None = None
    pcie: tuple[str, ...] = ()
    link: int | None = None

    def __hash__(self) -> int:
        # Fast, because a node's free GPUs are hashed for each pod that gets some.
        return hash((self.pci, self.uuid))


@dataclass(frozen=True, slots=True)
class GpuOut:
    """A GPU that cannot be used now, and why."""

    pci: str
    why: str


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """A node's GPUs, each either on offer or out."""

    gpus: tuple[Gpu, ...] = ()
    out: tuple[GpuOut, ...] = ()


def common_bridges(path: Sequence[str], other_path: Sequence[str]) -> int:
    """Return how many bridges two paths share, counted from the root; the last one is the lowest above both devices.

    Devices below one switch share at least its upstream port. Devices with different root ports share none: their
    traffic passes the CPU.
    """
    return next(
        (depth for depth, (left, right) in enumerate(zip(path, other_path, strict=False)) if left != right),
        min(len(path), len(other_path)),
    )


def uuid(value: Value) -> str:
    """Read a GPU's UUID in its vendor's form: ``GPU-`` and hexadecimal digits."""
    return value.match(_UUID, "a GPU's UUID (at most 64 of A-Z a-z 0-9 -, alphanumeric first)")


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def read_gpu_inventory(text: str) -> GpuInventory:
    """Read the annotation's value; raise AnnotationError."""
    if len(text) > MOST_INVENTORY_CHARACTERS:
        raise AnnotationError(KEY, "", f"longer than {MOST_INVENTORY_CHARACTERS} characters")
    whole = parse(text, KEY, AnnotationError).version(1)
    document = whole.fields()
    gpus = tuple(_gpu(item) for item in document.required("gpus").items(MOST_GPUS))
    out = document.optional("out", lambda value: tuple(_out(item) for item in value.items(MOST_GPUS))) or ()
    _refuse_duplicates(whole, (*(gpu.pci for gpu in gpus), *(gpu.pci for gpu in out)), "PCI address")
    _refuse_duplicates(whole, (gpu.uuid for gpu in gpus), "UUID")
    return GpuInventory(gpus, out)


def dump_gpu_inventory(inventory: GpuInventory) -> str:
    """Return an inventory as the annotation's value; equal inventories give equal strings."""
    document: dict[str, object] = {"v": 1, "gpus": [_dump_gpu(gpu) for gpu in inventory.gpus]}
    if inventory.out:
        document["out"] = [{"pci": gpu.pci, "why": gpu.why} for gpu in inventory.out]
    return dump(document)


def _gpu(value: Value) -> Gpu:
    document = value.fields()
    return Gpu(
        pci=names.address(document.required("pci")),
        uuid=uuid(document.required("uuid")),
        vendor=document.required("vendor").choice(*VENDORS),
        model=document.optional("model", lambda model: model.string(longest=LONGEST_MODEL)),
        memory_mb=_optional_integer(document, "memory_mb", MOST_MEMORY_MB),
        numa=_optional_integer(document, "numa", MOST_NUMA),
        pcie=document.optional("pcie", bridges) or (),
        link=_optional_integer(document, "link", MOST_GPUS),
    )


def bridges(value: Value) -> tuple[str, ...]:
    """Read the PCI addresses of a path of bridges."""
    return tuple(names.address(item) for item in value.items(_DEEPEST))


def _optional_integer(document: Fields, name: str, high: int) -> int | None:
    return document.optional(name, lambda value: value.integer(0, high))


def _out(value: Value) -> GpuOut:
    document = value.fields()
    return GpuOut(names.address(document.required("pci")), document.required("why").string(longest=LONGEST_WHY))


def _refuse_duplicates(whole: Value, entries: Iterable[str], kind: str) -> None:
    previous: set[str] = set()
    for entry in entries:
        if entry in previous:
            whole.fail(f"{kind} {entry!r} appears twice")
        previous.add(entry)


def _dump_gpu(gpu: Gpu) -> dict[str, object]:
    optional: dict[str, object] = {
        "model": gpu.model,
        "memory_mb": gpu.memory_mb,
        "numa": gpu.numa,
        "pcie": list(gpu.pcie) or None,
        "link": gpu.link,
    }
    present = {name: value for name, value in optional.items() if value is not None}
    return {"pci": gpu.pci, "uuid": gpu.uuid, "vendor": gpu.vendor} | present
