"""The part of a test's answers that the node keeps, and that its inventory shows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.plan.report import Subject
from mooring.records.hardware_result import MAX_RATE, MIN_RATE, HardwareResult, Outcome

# The checks whose outcome is kept, by the names of the record.
_KEPT: Mapping[str, str] = {
    "traffic.max-rate": MAX_RATE,
    "traffic.min-rate": MIN_RATE,
    "traffic.burst": "burst",
    "traffic.rate-change": "rate_change",
    "traffic.counters": "counters",
    "traffic.vlan": "vlan",
    "traffic.spoofchk": "spoofchk",
    "port.active": "port_active",
}
_OUTCOMES: Mapping[str, Outcome] = {"ok": "shown", "info": "shown", "differs": "differs"}


def result_of(
    pci: str, subject: Subject, answers: Sequence[Answer], at: datetime, earlier: HardwareResult | None
) -> HardwareResult | None:
    """Return what is kept of a test, None if it has shown nothing about the NIC.

    What it did not ask stays as an earlier test with the same driver, firmware and kernel has found it.
    """
    found = {
        _KEPT[answer.check]: _OUTCOMES.get(answer.outcome, "not_asked") for answer in answers if answer.check in _KEPT
    }
    if set(found.values()) <= {"not_asked"}:
        return None
    result = HardwareResult(pci, subject.driver, subject.kernel, at, found, subject.firmware, subject.mooring)
    if earlier is None or _tested(earlier) != _tested(result):
        return result
    kept = {name: earlier.checks.get(name, "not_asked") for name, outcome in found.items() if outcome == "not_asked"}
    return replace(result, checks={**earlier.checks, **found, **kept})


def _tested(result: HardwareResult) -> tuple[str, str, str]:
    return result.driver, result.kernel, result.firmware
