"""The units of each kind that each node has, and those that its pods leave: a column for each kind.

A unit is free if the node's inventory names it and no bound or assumed pod on the node has it in its assignment.
Nothing is counted up or down: a unit that two pods claim is free again once both are gone. The scheduler itself reads a
pod's claims, so claims count even if the constraint fails.
"""

import enum
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mooring.annotations.assignment import Assignment
from scheduler.cache.column import shallow_copy
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_info import InventoryFault, NodeInfo
from scheduler.constraints.kinds import Fault, Inventory, Kind, Kinds, words
from scheduler.constraints.protocol import NodeSide, Proposal, Units
from scheduler.placement.joint import section
from scheduler.placement.vf_accounting import Claim

_NO_UNITS: Units[Hashable] = Units()


class UnitFault(enum.Enum):
    """Why nothing new may be assigned of a node's units; the texts are in `scheduler.plugins.device_rules`."""

    NO_INVENTORY = enum.auto()
    UNREADABLE = enum.auto()
    CONSTRAINT_FAILED = enum.auto()
    NOT_READY = enum.auto()


@dataclass(frozen=True, slots=True)
class UnitPool:
    """One node's free units of one kind; ``fault`` is why nothing may be assigned, None if it may."""

    fault: UnitFault | None = None
    units: Units[Hashable] = _NO_UNITS


EMPTY = UnitPool()


class Unit(NamedTuple):
    """Something that only one pod may have: a unit of a kind by its id, or a VF by its PCI address."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class _Read:
    """A parsed inventory and its text: the same text is not parsed again."""

    side: NodeSide
    units: Inventory = ()
    # The parts of them on which a placement depends.
    placing: Inventory = ()
    fault: UnitFault | None = None
    error: str = ""


class UnitPools:
    """Updates the columns ``nodes.unit_pools`` when nodes and assignments are added and removed."""

    def __init__(self, kinds: Kinds, nodes: NodeColumns) -> None:
        self._kinds = kinds
        for kind in kinds:
            nodes.add_unit_pool(kind.name, EMPTY)
        self._nodes = nodes
        self._naming = {kind.name: kind.naming for kind in kinds if kind.naming is not None}
        self._read: dict[str, dict[str, _Read]] = {}

    def snapshot(self, nodes: NodeColumns) -> "UnitPools":
        snapshot = shallow_copy(self)
        snapshot._nodes, snapshot._read = nodes, self._read.copy()
        return snapshot

    def put(self, row: int, node_info: NodeInfo, assignments: Collection[Assignment]) -> None:
        previous = self._read.get(node_info.name, {})
        pfs = node_info.inventory.pfs if node_info.inventory is not None else ()
        self._read[node_info.name] = {
            kind.name: _read(kind, NodeSide(node_info.others[kind.name], pfs), previous.get(kind.name))
            for kind in self._kinds
            if kind.name in node_info.others
        }
        self.show(row, node_info.name, assignments)

    def remove(self, row: int, name: str) -> None:
        self._read.pop(name, None)
        for column in self._nodes.unit_pools.values():
            column[row] = EMPTY

    def show(self, row: int, name: str, assignments: Collection[Assignment]) -> None:
        """Record what is left on a node whose pods have these assignments; nothing of one that is not Ready."""
        for kind, column in self._nodes.unit_pools.items():
            column[row] = self._unit_pool(kind, row, name, assignments)

    def section_of(self, name: str, kind: str, proposal: Proposal) -> dict[str, object]:
        """Return the value of ``ext.<kind>`` in the assignment for units of a node."""
        value, naming = section(proposal), self._naming.get(kind)
        if naming is not None:
            units = dict(self._read[name][kind].units)
            value |= naming([units[unit] for unit in proposal.units])
        return value

    def unreadable(self, name: str) -> list[tuple[str, str]]:
        """Return the kinds whose inventory of this node is ignored, with the message of each constraint."""
        return [(kind, read.error) for kind, read in self._read.get(name, {}).items() if read.error]

    def disputes(self, name: str, claims: Iterable[Claim]) -> dict[Unit, tuple[str, ...]]:
        claimants: dict[Unit, set[str]] = {}
        for claim in claims:
            for kind in claim.assignment.ext:
                for unit in claimed_units(claim.assignment, kind):
                    claimants.setdefault(Unit(kind, unit), set()).add(claim.uid)
        disputes = {unit: tuple(sorted(uids)) for unit, uids in claimants.items() if len(uids) > 1}
        inventories = self._read.get(name, {}) if disputes else {}
        units = {Unit(kind, unit) for kind, read in inventories.items() for unit, _ in read.units}
        return {unit: uids for unit, uids in disputes.items() if unit in units}

    def check(self, row: int, name: str, assignments: Collection[Assignment]) -> None:
        for kind, column in self._nodes.unit_pools.items():
            assert column[row] == self._unit_pool(kind, row, name, assignments), f"node {name!r}: free {kind} differ"

    def _unit_pool(self, kind: str, row: int, name: str, assignments: Iterable[Assignment]) -> UnitPool:
        read = self._read.get(name, {}).get(kind)
        if read is None:
            return UnitPool(UnitFault.NO_INVENTORY)
        if self._nodes.models[row][0] is InventoryFault.NOT_READY:
            return UnitPool(UnitFault.NOT_READY)
        if read.fault:
            return UnitPool(read.fault)
        claims = {unit for assignment in assignments for unit in claimed_units(assignment, kind)}
        return UnitPool(None, Units(tuple([unit for unit in read.placing if unit[0] not in claims]), len(read.units)))


def claimed_units(assignment: Assignment, kind: str) -> list[str]:
    """Return the units of a kind that an assignment gives its pod, skipping values that are not unit ids."""
    section = assignment.ext.get(kind) if assignment.ext else None
    units = section.get("units") if isinstance(section, dict) else None
    return [unit for unit in units if isinstance(unit, str)] if isinstance(units, list) else []


def _read(kind: Kind, side: NodeSide, previous: _Read | None) -> _Read:
    if previous is not None and previous.side == side:
        return previous
    try:
        units = kind.read_inventory(side)
        placing = units if kind.placing is None else tuple([(unit, kind.placing(value)) for unit, value in units])
        return _Read(side, units, placing)
    except Fault as fault:
        return _Read(side, fault=UnitFault.CONSTRAINT_FAILED, error=str(fault))
    except ValueError as unreadable:
        return _Read(side, fault=UnitFault.UNREADABLE, error=words(str(unreadable)))
