"""Publish transient reasons of VFs only after they have lasted.

A VF moves between host and pod in several steps, and the API server's watch reports them later. For some milliseconds a
ledger entry has no assignment, or a VF has neither netdev nor pod. A reason that can be transient is published only if
another scan after `CONFIRM_S` finds it again.

No event may report the end of a published reason, so it is scanned again too: after as long as it has lasted, but at
most `LONGEST_S`. A permanent reason therefore costs few scans.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from advertiser.inventory.vf_state import may_be_transient
from mooring.annotations.inventory import Inventory, Out, Pf
from mooring.indexes import Indexes

# Seconds until a reason is confirmed. A VF's move and the events about it take well under a second.
CONFIRM_S = 1.5
LONGEST_S = 10.0
# The PCI address of a PF and the index of its VF.
VfKey = tuple[str, int]
_Reason = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A reason that every scan has found since ``since_s``; ``published`` is published until it is confirmed."""

    reason: _Reason
    since_s: float
    published: _Reason | None = None

    def due_s(self, now_s: float) -> float:
        """Return when to scan again, in seconds of the clock of ``since_s``."""
        age_s = now_s - self.since_s
        return self.since_s + CONFIRM_S if age_s < CONFIRM_S else now_s + min(age_s, LONGEST_S)


@dataclass(frozen=True, slots=True)
class DebounceResult:
    """The inventory with confirmed reasons only.

    ``sightings`` are for the next call, ``due_s`` is when to scan again (None: no need). ``pending``: a reason waits
    for confirmation.
    """

    inventory: Inventory
    sightings: Mapping[VfKey, Sighting] = field(default_factory=dict)
    due_s: float | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True)
class ScanPeriod:
    """When a scan began and ended, in seconds of a monotonic clock."""

    began_s: float
    ended_s: float


def debounce(inventory: Inventory, before: Mapping[VfKey, Sighting], at: ScanPeriod) -> DebounceResult:
    """Return the debounced result of one scan; ``before`` are the sightings of the previous scan."""
    sightings: dict[VfKey, Sighting] = {}
    pfs = tuple(_debounced(pf, before, sightings, at) for pf in inventory.pfs)
    return DebounceResult(
        replace(inventory, pfs=pfs),
        sightings,
        min((sighting.due_s(at.ended_s) for sighting in sightings.values()), default=None),
        any(sighting.published != sighting.reason for sighting in sightings.values()),
    )


def _debounced(pf: Pf, before: Mapping[VfKey, Sighting], sightings: dict[VfKey, Sighting], at: ScanPeriod) -> Pf:
    reasons: dict[_Reason, list[int]] = {}
    for index, reason in _reasons(pf):
        public_reason: _Reason | None = reason
        if may_be_transient(reason[0]):
            sightings[pf.pci, index] = sighting = _sighted(before.get((pf.pci, index)), reason, at)
            public_reason = sighting.published
        if public_reason is not None:
            reasons.setdefault(public_reason, []).append(index)
    return replace(pf, out=tuple(Out(Indexes.of(indexes), *reason) for reason, indexes in reasons.items()))


def _reasons(pf: Pf) -> Iterator[tuple[int, _Reason]]:
    """Yield index and reason of each VF that is out, ordered by index."""
    yield from sorted((index, (out.why, out.min_tx_rate)) for out in pf.out for index in out.vfs)


def _sighted(before: Sighting | None, reason: _Reason, at: ScanPeriod) -> Sighting:
    if before is None:
        return Sighting(reason, at.ended_s)
    if before.reason != reason:
        return Sighting(reason, at.ended_s, before.published)
    return replace(before, published=reason) if at.began_s - before.since_s >= CONFIRM_S else before
