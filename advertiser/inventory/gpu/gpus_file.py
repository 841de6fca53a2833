"""Read the operator's GPU file: facts that no other source reports, and GPUs to exclude; one file for all nodes.

    v: 1
    gpus:                                  # all entries that match a GPU apply to it; the first value wins
    - match: {node: "gpu-*", pci: "0000:1b:00.0"}
      uuid: GPU-257d8671-d0e6-d1a7-dea9-952249a668fa
      model: NVIDIA H100 80GB HBM3
      memory_mb: 81559                     # MiB
      numa: 0
      pcie: ["0000:15:01.0", "0000:16:00.0"]
      link: quad0                          # GPUs of a node with the same word reach each other without PCIe
    - match: {pci: "0000:43:00.0"}
      out: for the host's own displays     # excludes the GPU, with this reason

Every value of ``match`` is a glob, and all must match. Facts from files, drivers and libraries of the host take
precedence over this file, but ``out`` always applies. Unknown fields are errors.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mooring.errors import ContractError
from mooring.gpu import inventory
from mooring.parsing import Value, parse

_MOST_ENTRIES = 1024
_FIELDS = frozenset({"match", "uuid", "model", "memory_mb", "numa", "pcie", "link", "out"})
_SELECTORS = frozenset({"node", "pci"})
_LINK = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?", re.ASCII)


class GpusFileError(ContractError):
    """The GPU file is invalid; ``key`` is its path."""

    kind = "GPU file"


@dataclass(frozen=True, slots=True)
class GpuEntry:
    """One entry, or the combined entries of a GPU; absent values are None."""

    node: str = "*"
    pci: str = "*"
    uuid: str | None = None
    model: str | None = None
    memory_mb: int | None = None
    numa: int | None = None
    pcie: tuple[str, ...] | None = None
    link: str | None = None
    out: str | None = None


def read_gpus_file(text: str, path: str) -> tuple[GpuEntry, ...]:
    """Read the file, given as JSON text; raise GpusFileError."""
    document = parse(text, path, GpusFileError).version(1).fields({"v", "gpus"})
    return tuple(_entry(item) for item in document.required("gpus").items(_MOST_ENTRIES))


def entry_of(entries: Iterable[GpuEntry], node: str, pci: str) -> GpuEntry:
    """Combine the entries that match a GPU: the first entry with a value wins."""
    matches = [entry for entry in entries if fnmatchcase(node, entry.node) and fnmatchcase(pci, entry.pci)]
    return GpuEntry(
        uuid=next((entry.uuid for entry in matches if entry.uuid is not None), None),
        model=next((entry.model for entry in matches if entry.model is not None), None),
        memory_mb=next((entry.memory_mb for entry in matches if entry.memory_mb is not None), None),
        numa=next((entry.numa for entry in matches if entry.numa is not None), None),
        pcie=next((entry.pcie for entry in matches if entry.pcie is not None), None),
        link=next((entry.link for entry in matches if entry.link is not None), None),
        out=next((entry.out for entry in matches if entry.out is not None), None),
    )


def _entry(value: Value) -> GpuEntry:
    document = value.fields(_FIELDS)
    match = document.required("match").fields(_SELECTORS)
    return GpuEntry(
        node=match.optional("node", _glob) or "*",
        pci=match.optional("pci", _glob) or "*",
        uuid=document.optional("uuid", inventory.uuid),
        model=document.optional("model", lambda model: model.string(longest=inventory.LONGEST_MODEL)),
        memory_mb=document.optional("memory_mb", lambda memory: memory.integer(1, inventory.MOST_MEMORY_MB)),
        numa=document.optional("numa", lambda numa: numa.integer(0, inventory.MOST_NUMA)),
        pcie=document.optional("pcie", inventory.bridges),
        link=document.optional("link", lambda link: link.match(_LINK, "a word (at most 63 of A-Z a-z 0-9 . _ -)")),
        out=document.optional("out", lambda out: out.string(longest=inventory.LONGEST_WHY)),
    )


def _glob(value: Value) -> str:
    return value.string(longest=253)
