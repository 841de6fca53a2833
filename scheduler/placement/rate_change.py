"""Decide whether the rates of a running pod can change on its current VFs. Pure.

A pod keeps its VFs, and only their rates change. A VF's current and new rates both count until its node has put the new
rate in force. A lower rate therefore always fits, and a higher one needs the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.rates import VfRates
from mooring.annotations.request import PodRequest, VfRequest
from mooring.errors import AnnotationError
from mooring.nic.settings import SETTING_NAMES, VfSettings
from scheduler.placement.eligibility import glob, refused_settings
from scheduler.placement.vf_accounting import FreeVfs, offers_of, sum_by_port

_RATES = ("min_tx_rate", "max_tx_rate")
_FIXED_SETTINGS = tuple(name for name in SETTING_NAMES if name not in _RATES)


@dataclass(frozen=True, slots=True)
class Fits:
    """The rates fit; ``reserved`` is what each VF reserves until they are in force, in Mb/s."""

    reserved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """The rates do not fit: Deferred while others use the port, Infeasible whatever the others do."""

    reason: Literal["Deferred", "Infeasible"]
    message: str


def is_as_assigned(interfaces: Sequence[VfRequest], vfs: Sequence[AssignedVf]) -> bool:
    """Return whether a request equals the one for which the assignment was made."""
    return len(interfaces) == len(vfs) and all(
        interface.settings == vf.settings and not _other_difference(interface, vf)
        for interface, vf in zip(interfaces, vfs, strict=True)
    )


_ONLY_RATES = "only min_tx_rate and max_tx_rate can change once the pod has a node"


def wanted_rates(request: PodRequest | None, assignment: Assignment) -> tuple[VfRates, ...]:
    """Return the rates that a request (None: removed) has; raise AnnotationError if it changes other fields too."""
    interfaces, vfs = request.interfaces if request is not None else (), assignment.vfs
    if len(interfaces) != len(vfs):
        count = "none" if request is None else len(interfaces)
        rule = f"the pod has {len(vfs)} VFs but now requests {count}: {_ONLY_RATES}"
        raise AnnotationError(names.REQUEST, "", rule)
    for index, (interface, vf) in enumerate(zip(interfaces, vfs, strict=True)):
        if field := _other_difference(interface, vf):
            rule = f"differs from the assigned VF: {_ONLY_RATES}"
            raise AnnotationError(names.REQUEST, f"[{index}].{field}", rule)
    return tuple(VfRates(interface.settings.min_tx_rate, interface.settings.max_tx_rate) for interface in interfaces)


def _other_difference(interface: VfRequest, vf: AssignedVf) -> str:
    """Return the first field, except the rates, in which a request differs from its assigned VF; empty for none."""
    if interface.settings != vf.settings:
        for name in _FIXED_SETTINGS:
            if getattr(interface.settings, name) != getattr(vf.settings, name):
                return name
    for name, value, vf_value in (("name", interface.name, vf.name), ("netdev", interface.netdev, vf.netdev)):
        if value != vf_value:
            return name
    # If these fields are not requested, any value matches.
    for name, wish, got in (
        ("network", interface.network, vf.network),
        ("link", interface.link, vf.link),
        ("containers", interface.containers, vf.containers),
    ):
        if wish is not None and wish != got:
            return name
    return "pf" if interface.pf is not None and not glob(interface.pf).match(vf.pf) else ""


def contradicts_limit(limit: int, rates: Sequence[VfRates]) -> str:
    """Return why rates contradict the containers' limit of Mb/s, which a quota counts and which cannot change."""
    sum_mbps = sum(vf_rates.min_tx_rate or 0 for vf_rates in rates)
    rule = f"the containers limit {names.RESERVED_MBPS!r} to {limit}, but the pod would reserve {sum_mbps} Mb/s"
    return rule if limit != sum_mbps else ""


def judge_rates(
    assignment: Assignment,
    allocated: Sequence[VfRates],
    rates: Sequence[VfRates],
    reserved: Sequence[int],
    free_vfs: FreeVfs,
) -> Fits | Misfit:
    """Return whether a pod's VFs can have the rates; ``reserved`` is what they reserve now, also in ``free_vfs``."""
    peaks = tuple(max(vf_rates.min_tx_rate or 0, current) for vf_rates, current in zip(rates, reserved, strict=True))
    needs = _Needs(free_vfs)
    for vf, old, new, current, peak in zip(assignment.vfs, allocated, rates, reserved, peaks, strict=True):
        if (misfit := needs.add(vf, old, new, current, peak)) is not None:
            return misfit
    return needs.misfit() or Fits(peaks)


class _Needs:
    """What a pod's VFs need on each PF: beside their current reservation, until the rates are in force, and after."""

    def __init__(self, free_vfs: FreeVfs) -> None:
        self._free_vfs = free_vfs
        self._indexes = {pf.name: index for index, pf in enumerate(free_vfs.pfs)}
        self._deltas, self._peaks, self._targets, self._increases = ([0] * len(free_vfs.pfs) for _ in range(4))

    def add(self, vf: AssignedVf, old: VfRates, new: VfRates, current: int, peak: int) -> Misfit | None:
        """Add a VF; return why it cannot have its rates, if that does not depend on the others."""
        low = new.min_tx_rate or 0
        increase = low - (old.min_tx_rate or 0)
        needs_more = peak > current or increase > 0
        index = self._indexes.get(vf.pf)
        pf = self._free_vfs.pfs[index] if index is not None else None
        if index is None or pf is None or not pf.lists(vf.vf, vf.pci):
            return Misfit("Deferred", f"VF {vf.pci} is not in its node's inventory") if needs_more else None
        if new != old and (refusal := refused_settings(_changed_rates(old, new), pf)):
            return Misfit("Infeasible", f"PF {pf.name!r}: {refusal}")
        if needs_more and not pf.up:
            return Misfit("Deferred", f"PF {pf.name!r} is down")
        self._deltas[index] += peak - current
        self._peaks[index] += peak
        self._targets[index] += low
        self._increases[index] += increase
        return None

    def misfit(self) -> Misfit | None:
        """Return why the ports cannot reserve everything; None if they can.

        If more is reserved than a port offers, others may have been given what this pod reserves above its allocated
        rates, because its node reported the lower rate as in force for a time. Then no rate can be raised there.
        """
        pfs, ports = self._free_vfs.pfs, self._free_vfs.shared_ports
        needs = self._deltas, self._peaks, self._targets, self._increases
        deltas, peaks, targets, increases = (sum_by_port(need, ports) if ports else need for need in needs)
        for index, (pf, offer) in enumerate(zip(pfs, offers_of(pfs, ports), strict=True)):
            free_mbps = self._free_vfs.capacities[index].mbps
            is_raised = free_mbps < 0 < increases[index] and self._increases[index] > 0
            if not is_raised and (not self._deltas[index] or deltas[index] <= free_mbps):
                continue
            if targets[index] > offer:
                rule = f"the pod would reserve {targets[index]} Mb/s; at most {offer} can be reserved"
                return Misfit("Infeasible", f"PF {pf.name!r}: {rule}")
            current = peaks[index] - deltas[index]
            if targets[index] - current <= free_mbps and deltas[index] > free_mbps:
                rule = (
                    "the old rates stay reserved until the lower rates are in force: lower first, then raise in a "
                    "second edit"
                )
                return Misfit("Deferred", f"PF {pf.name!r}: {rule}")
            rule = f"{max(deltas[index], increases[index])} more Mb/s are needed, but other pods reserve too much"
            return Misfit("Deferred", f"PF {pf.name!r}: {rule}")
        return None


def _changed_rates(old: VfRates, new: VfRates) -> VfSettings:
    """Return only the changed rates: a pod keeps rates that its PF would not provide again."""
    return VfSettings(
        new.min_tx_rate if new.min_tx_rate != old.min_tx_rate else None,
        new.max_tx_rate if new.max_tx_rate != old.max_tx_rate else None,
    )
