"""`kubectl mooring gpus`: each node's GPUs, who has them, and the VF beside each. Pure.

A pair is a GPU and a VF of one pod that the scheduler put under one switch (``vfs: "switch"``); their bridge is the
lowest that both paths share, from the two inventories.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cli.plugin.reports.objects import Node, Pod
from cli.plugin.reports.tables import Answer, Cell, Table, Tone, cells, without_columns
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import read_inventory
from mooring.errors import AnnotationError
from mooring.gpu import inventory
from mooring.gpu.assignment import GpuAssignment, assigned_gpus
from mooring.gpu.inventory import Gpu, GpuInventory, read_gpu_inventory

_COLUMNS = ("NODE", "GPU", "MODEL", "MIB", "NUMA", "LINK", "STATE", "POD", "INTERFACE", "PF", "VF", "BRIDGE")
_WIDE = ("UUID", "CONTAINERS", "WHY-OUT")
# Left out where the others have to fit a terminal.
_ONLY_WIDE = ("MODEL", "MIB", "NUMA", "LINK", "BRIDGE")
_TONES: Mapping[str, Tone] = {"free": "good", "out": "warning", "disputed": "bad", "gone": "bad"}
# The bridges from the root to a PF, by the PF's name.
Paths = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Held:
    """A GPU that a pod has; ``vf`` is the one beside it, None if none is."""

    pod: str
    pci: str
    uuid: str
    containers: tuple[str, ...]
    interface: int | None
    vf: AssignedVf | None


@dataclass(frozen=True)
class _Row:
    """A GPU of a node as it is now; ``why`` is why it is out, empty if it is not."""

    node: str
    pci: str
    gpu: Gpu | None
    state: str
    held: Held | None
    bridge: str
    why: str

    @cached_property
    def item(self) -> dict[str, object]:
        """Return it as JSON values."""
        gpu, held = self.gpu, self.held
        known: dict[str, object] = (
            {"uuid": gpu.uuid, "vendor": gpu.vendor, "model": gpu.model, "memory_mb": gpu.memory_mb, "numa": gpu.numa}
            | {"pcie": list(gpu.pcie), "link": gpu.link}
            if gpu is not None
            else {}
        )
        has = {"pod": held.pod, "containers": list(held.containers), **_pair(held)} if held is not None else None
        return {"node": self.node, "pci": self.pci, "state": self.state, "why": self.why, **known} | {
            "held": has,
            "bridge": self.bridge,
        }


def held_by(pod: Pod) -> tuple[Held, ...]:
    """Return a pod's GPUs; empty without any, and for an assignment that is not valid."""
    return pod.derive(_held_by)


def _held_by(pod: Pod) -> tuple[Held, ...]:
    assignment, _ = pod.held()
    gpus = _gpus_of(assignment)
    if assignment is None or gpus is None:
        return ()
    return tuple(_held(pod.key, assignment, gpus, pci) for pci in gpus.units)


def report(nodes: Iterable[Node], pods: Iterable[Pod] | None, *, wide: bool) -> Answer:
    """Return one row a GPU and pod; ``pods`` is None if they could not be read."""
    found, faults = _find(nodes, pods)
    rows = [_cells(row, wide=wide) for row in found]
    rows += [_fault(name, why, wide=wide) for name, why in faults.items()]
    columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
    document = {"kind": "MooringGpus", "v": 1, "items": [row.item for row in found], "faults": faults}
    table = Table(columns, rows, empty="no node publishes GPUs", identity=("NODE", "GPU"))
    return Answer(document, (table if wide else without_columns(table, _ONLY_WIDE),), identity=("node", "pci"))


def items(nodes: Iterable[Node], pods: Iterable[Pod] | None) -> list[Mapping[str, object]]:
    """Return the GPUs of a report as JSON values."""
    return [row.item for row in _find(nodes, pods)[0]]


def _find(nodes: Iterable[Node], pods: Iterable[Pod] | None) -> tuple[list[_Row], dict[str, str]]:
    """Return the GPUs, and by node why an inventory cannot be read."""
    holders = _holders(pods or ())
    found, faults = list[_Row](), dict[str, str]()
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        text = (node.metadata.annotations or {}).get(inventory.KEY)
        if text is None:
            continue
        name = node.metadata.name
        of_node, fault = node.derive(_of_node, text, holders.get(name, {}), pods is not None)
        found += of_node
        if fault:
            faults[name] = fault
    return found, faults


def _of_node(node: Node, text: str, holders: Mapping[str, Sequence[Held]], is_known: bool) -> tuple[list[_Row], str]:
    """Return a node's GPUs, and why its inventory cannot be read; empty if it can."""
    known, fault = GpuInventory(), ""
    try:
        known = read_gpu_inventory(text)
    except AnnotationError as unreadable:
        fault = str(unreadable)
    return list(_rows(node.metadata.name, known, holders, paths_of(node), is_known=is_known)), fault


def pairs(gpus: Sequence[Held], node: Node | None) -> Table:
    """Return a pod's GPUs with the VF and bridge of each; ``node`` is None if it could not be read."""
    paths, known = ({}, {}) if node is None else (paths_of(node), _known(node))
    rows = [
        cells(gpu.pci, gpu.uuid, ",".join(gpu.containers), *_beside(gpu), bridge_of(known.get(gpu.pci), gpu, paths))
        for gpu in gpus
    ]
    return Table(("GPU", "UUID", "CONTAINERS", "INTERFACE", "PF", "VF", "BRIDGE"), rows, title="GPUs")


def bridge_of(gpu: Gpu | None, holder: Held, paths: Paths) -> str:
    """Return the lowest bridge that a GPU and the VF beside it share; empty if it is unknown."""
    if gpu is None or holder.vf is None:
        return ""
    bridges = inventory.common_bridges(gpu.pcie, paths.get(holder.vf.pf, ()))
    return gpu.pcie[bridges - 1] if bridges else ""


def paths_of(node: Node) -> Paths:
    """Return the bridges above each PF of a node; empty if its inventory cannot be read."""
    try:
        pfs = read_inventory((node.metadata.annotations or {})[names.INVENTORY]).pfs
    except (KeyError, AnnotationError):
        return {}
    return {pf.name: pf.pcie for pf in pfs}


def as_items(gpus: Sequence[Held]) -> list[dict[str, object]]:
    """Return a pod's GPUs as JSON values."""
    return [{"pci": gpu.pci, "uuid": gpu.uuid, "containers": list(gpu.containers), **_pair(gpu)} for gpu in gpus]


def _known(node: Node) -> Mapping[str, Gpu]:
    try:
        listed = read_gpu_inventory((node.metadata.annotations or {})[inventory.KEY]).gpus
    except (KeyError, AnnotationError):
        return {}
    return {gpu.pci: gpu for gpu in listed}


def _gpus_of(assignment: Assignment | None) -> GpuAssignment | None:
    try:
        return assigned_gpus(assignment) if assignment is not None else None
    except AnnotationError:
        return None


def _held(pod: str, assignment: Assignment, gpus: GpuAssignment, pci: str) -> Held:
    interface = gpus.beside.get(pci)
    vf = assignment.vfs[interface] if interface is not None and interface < len(assignment.vfs) else None
    containers = tuple(name for name, units in gpus.containers.items() if pci in units)
    return Held(pod, pci, gpus.uuid_of(pci), containers, interface, vf)


def _holders(pods: Iterable[Pod]) -> dict[str, dict[str, list[Held]]]:
    """Return who has each GPU, by node and PCI address."""
    found = dict[str, dict[str, list[Held]]]()
    for pod in pods:
        if pod.is_over:
            continue
        for held in held_by(pod):
            found.setdefault(pod.spec.node_name or "", {}).setdefault(held.pci, []).append(held)
    return found


def _rows(
    node: str, known: GpuInventory, holders: Mapping[str, Sequence[Held]], paths: Paths, *, is_known: bool
) -> Iterator[_Row]:
    """Yield a node's GPUs, each with its holders, and those that pods have and the node does not show."""
    by_pci = {gpu.pci: gpu for gpu in known.gpus}
    out = {gpu.pci: gpu.why for gpu in known.out}
    for pci in sorted({*by_pci, *out, *holders}):
        gpu, why, gpu_holders = by_pci.get(pci), out.get(pci, ""), holders.get(pci, ())
        state = _state(pci in by_pci, why, len(gpu_holders)) if is_known or why else "?"
        for holder in gpu_holders or (None,):
            bridge = bridge_of(gpu, holder, paths) if holder is not None else ""
            yield _Row(node, pci, gpu, state, holder, bridge, why)


def _state(is_offered: bool, why: str, holders: int) -> str:
    if holders > 1:
        return "disputed"
    if why:
        return "out"
    if not is_offered:
        return "gone"
    return "used" if holders else "free"


def _cells(row: _Row, *, wide: bool) -> tuple[Cell, ...]:
    gpu, holder = row.gpu, row.held
    about = (gpu.model, gpu.memory_mb, gpu.numa, gpu.link) if gpu is not None else (None,) * 4
    state = Cell(row.state, _TONES.get(row.state, "warning" if row.state == "?" else ""))
    who = (holder.pod, *_beside(holder)) if holder is not None else (None,) * 4
    uuid = gpu.uuid if gpu is not None else holder.uuid if holder is not None else None
    wide_values = (uuid, ",".join(holder.containers) if holder is not None else None, row.why) if wide else ()
    return cells(row.node, row.pci, *about, state, *who, row.bridge, *wide_values)


def _fault(node: str, why: str, *, wide: bool) -> tuple[Cell, ...]:
    at = _COLUMNS.index("STATE")
    blanks = [None] * (len(_COLUMNS) - at - 1 + (len(_WIDE) if wide else 0))
    return cells(node, *[None] * (at - 1), Cell(why, "bad"), *blanks)


def _beside(holder: Held) -> tuple[object, object, object]:
    vf = holder.vf
    return (None, None, None) if vf is None else (holder.interface, vf.pf, vf.vf)


def _pair(holder: Held) -> dict[str, object]:
    vf = holder.vf
    return {"interface": holder.interface, "pf": vf.pf if vf else None, "vf": vf.vf if vf else None}
