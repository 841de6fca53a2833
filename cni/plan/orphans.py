"""Decide which ledger entries are orphans, and why: values in, values out.

An entry is an orphan when its sandbox cannot be alive any more. The rules, first match wins:

    other_boot    of another boot: its namespaces and processes ended with that boot
    killed_add    `taking`, and the VF's lock is free (the caller checks that): its ADD died
    not_returned  `returning`: a release began and did not finish
    netns_gone    the namespace that the VF was given to is gone, and the VF is back on the host
    record_gone   the shim has removed the pod's record: no sandbox of that pod was listed for ten minutes

If a VF is neither back on the host nor reachable by its namespace's path, a process keeps the namespace, or the pod has
moved the VF to another one. Such a VF is not taken away. Exceptions are an entry of another boot, one whose container
the runtime has deleted (``deleted``), and one whose pod record is gone: then `cni.vf.detach.move_out` binds its driver
again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mooring.records.ledger import LedgerEntry

Reason = Literal["other_boot", "killed_add", "not_returned", "netns_gone", "record_gone"]
REASONS: Mapping[Reason, str] = {
    "other_boot": "it is from an earlier boot",
    "killed_add": "its ADD was killed",
    "not_returned": "its release did not finish",
    "netns_gone": "its network namespace is gone",
    "record_gone": "its pod's record is gone",
}
# The place of a VF: its namespace is still at its entry's path; that is gone and the VF is on the host; neither.
Place = Literal["pod", "host", "away"]
# One pass that finds no record proves little; two passes this far apart suffice. In seconds; with a pass every 10 s an
# orphan is repaired within 30.
UNRECORDED_S = 10.0
# Retry freeing a VF by force after 20 s, 40 s, …: each try takes the VF's driver away from programs that read it.
FIRST_BACKOFF_S, MAX_BACKOFF_S = 20.0, 600.0


Orphan = tuple[LedgerEntry, Reason]


@dataclass(frozen=True, slots=True)
class Backoff:
    """For how many seconds a VF that could not be freed is not tried again, and until when (monotonic)."""

    seconds: float
    until: float


def next_backoff(backoff: Backoff | None, now: float) -> Backoff:
    """Return the backoff after one more failed try: twice the last one, up to a limit."""
    seconds = FIRST_BACKOFF_S if backoff is None else min(2 * backoff.seconds, MAX_BACKOFF_S)
    return Backoff(seconds, now + seconds)


def is_due(backoff: Backoff | None, now: float) -> bool:
    return backoff is None or now >= backoff.until


@dataclass(frozen=True, slots=True)
class OrphanScan:
    """The orphans among the entries, and since when (monotonic seconds) each ``(pci, container)`` has no record."""

    orphans: Sequence[Orphan]
    unrecorded: Mapping[tuple[str, str], float]


def find_orphans(
    entries: Mapping[str, tuple[LedgerEntry, Place]],
    records: Collection[str] | None,
    boot: str,
    unrecorded: Mapping[tuple[str, str], float],
    now: float,
) -> OrphanScan:
    """Find the orphans of one pass.

    ``entries`` are by PCI address; ``unrecorded`` is what the previous pass returned. ``records`` holds the uids that
    have a pod record, readable or not. It is None if even the folder of records is missing, which proves nothing about
    pods.
    """
    since = {
        (pci, entry.container): unrecorded.get((pci, entry.container), now)
        for pci, (entry, _) in entries.items()
        if records is not None and entry.uid not in records
    }
    judged = (
        (entry, _reason(entry, place, boot, now - since.get((pci, entry.container), now)))
        for pci, (entry, place) in entries.items()
    )
    return OrphanScan([(entry, reason) for entry, reason in judged if reason is not None], since)


def _reason(entry: LedgerEntry, place: Place, boot: str, unrecorded_s: float) -> Reason | None:
    if entry.boot != boot:
        return "other_boot"
    is_unrecorded = unrecorded_s >= UNRECORDED_S
    if place == "away" and not entry.deleted:
        return "record_gone" if is_unrecorded else None
    if entry.phase == "taking":
        return "killed_add"
    if entry.phase == "returning":
        return "not_returned"
    if place == "host":
        return "netns_gone"
    return "record_gone" if is_unrecorded else None
