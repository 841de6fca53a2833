"""The GPUs of an assignment: ``ext.gpu``, written by the scheduler with the Binding and applied by the node.

    {"units":["0000:1b:00.0"],"uuids":["GPU-…"],"containers":{"main":["0000:1b:00.0"]},"beside":{"0000:1b:00.0":0}}

``units`` are sorted PCI addresses, ``uuids`` are in the same order. Both identify a GPU as long as the host has it;
indexes and device minors do not. ``containers`` lists the GPUs of each container; other containers get none. ``beside``
is the index of the interface below a GPU's switch. Readers reject unknown fields, as in the rest of an assignment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.request import MOST_INTERFACES
from mooring.errors import AnnotationError
from mooring.gpu.inventory import MOST_GPUS, uuid
from mooring.parsing import Value

KIND = "gpu"
_FIELDS = frozenset({"units", "uuids", "containers", "beside"})
# The limit of containers of a pod, as in the scheduler.
_MOST_CONTAINERS = 1000


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """The GPUs of one pod by PCI address and UUID, the GPUs of each container, and the interfaces beside them."""

    units: tuple[str, ...]
    uuids: tuple[str, ...]
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    beside: Mapping[str, int] = field(default_factory=dict, hash=False)

    def uuid_of(self, pci: str) -> str:
        """Return the UUID of a unit."""
        return self.uuids[self.units.index(pci)]


def details_of(gpus: GpuAssignment) -> dict[str, object]:
    """Return the fields of ``ext.gpu`` other than ``units``."""
    details: dict[str, object] = {
        "uuids": list(gpus.uuids),
        "containers": {name: list(units) for name, units in gpus.containers.items()},
    }
    return details | ({"beside": dict(gpus.beside)} if gpus.beside else {})


def assigned_gpus(assignment: Assignment) -> GpuAssignment | None:
    """Read an assignment's GPUs, None if it has none; raise AnnotationError."""
    if KIND not in assignment.ext:
        return None
    whole = Value(assignment.ext, names.ASSIGNMENT, AnnotationError, step="ext")
    return read_gpu_assignment(whole.at(KIND, assignment.ext[KIND]))


def read_gpu_assignment(value: Value) -> GpuAssignment:
    """Read ``ext.gpu``; raise the document's error."""
    document = value.fields(_FIELDS)
    units_value = document.required("units")
    units = _units(units_value)
    uuids = document.required("uuids")
    uuid_values = tuple(uuid(item) for item in uuids.items(MOST_GPUS))
    if len(uuid_values) != len(units) or len(set(uuid_values)) != len(uuid_values):
        uuids.fail(f"{len(set(uuid_values))} different UUIDs for {len(units)} GPUs")
    return GpuAssignment(
        units,
        uuid_values,
        _containers(document.required("containers"), units),
        document.optional("beside", lambda beside: _beside(beside, units)) or {},
    )


def _units(value: Value) -> tuple[str, ...]:
    items = value.items(MOST_GPUS)
    addresses = tuple(names.address(item) for item in items)
    if not addresses:
        value.fail("names no GPU")
    if list(addresses) != sorted(set(addresses)):
        value.fail("GPUs are not in the order of their PCI addresses, or one appears twice")
    return addresses


def _containers(value: Value, units: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    fields = value.fields().items()
    if len(fields) > _MOST_CONTAINERS:
        value.fail(f"{len(fields)} containers exceed the limit of {_MOST_CONTAINERS}")
    units_of_container = {}
    for name, unit_list in fields:
        names.container(unit_list.with_raw(name))
        units_of_container[name] = _units(unit_list)
        if foreign_units := sorted(set(units_of_container[name]) - set(units)):
            unit_list.fail(f"GPU {foreign_units[0]!r} is not one of the pod's")
    return units_of_container


def _beside(value: Value, units: tuple[str, ...]) -> dict[str, int]:
    interface_of_gpu = {}
    for pci, interface in value.fields().items():
        if pci not in units:
            interface.fail("is not one of the pod's GPUs")
        interface_of_gpu[pci] = interface.integer(0, MOST_INTERFACES - 1)
    return interface_of_gpu
