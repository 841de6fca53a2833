"""Decide which ledger entries are orphans, and why: values in, values out.

An entry is an orphan if its sandbox cannot be alive any more. The first rule that matches counts:

    other_boot    the entry is from an earlier boot: its namespaces and processes ended with that boot
    killed_add    the entry is `taking`, and the VF's lock is free (the caller checks that): its ADD was killed
    not_returned  the entry is `returning`: a release began and did not finish
    netns_gone    the namespace that got the VF is gone, and the VF is back on the host
    record_gone   the shim removed the pod's record: the runtime listed no sandbox of that pod for ten minutes

If a VF is neither on the host nor reachable by the path of its namespace, a process keeps the namespace, or the pod
moved the VF to another one. Such a VF stays there, with three exceptions: the entry is from an earlier boot, the
runtime has deleted its container (``deleted``), or its pod record is gone. Then `cni.vf.detach.move_out` rebinds its
driver.
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
# Where a VF is: "pod", if its entry's path still names its namespace; "host", if not and the VF is on the host; or
# "away", neither.
Place = Literal["pod", "host", "away"]
# Seconds for which a record must be missing: one pass without it proves little. With a pass every 10 s an orphan is
# repaired within 30 s.
UNRECORDED_S = 10.0
# Seconds between attempts that rebind a VF's driver, because each disturbs the programs that read the device.
FIRST_BACKOFF_S, MAX_BACKOFF_S = 20.0, 600.0


Orphan = tuple[LedgerEntry, Reason]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a VF that could not be released is not tried again, in seconds, and until when (monotonic seconds)."""

    seconds: float
    until: float


def next_backoff(backoff: Backoff | None, now: float) -> Backoff:
    """Return the backoff after another failed attempt: twice the last one, up to MAX_BACKOFF_S."""
    seconds = FIRST_BACKOFF_S if backoff is None else min(2 * backoff.seconds, MAX_BACKOFF_S)
    return Backoff(seconds, now + seconds)


def is_due(backoff: Backoff | None, now: float) -> bool:
    return backoff is None or now >= backoff.until


@dataclass(frozen=True, slots=True)
class OrphanScan:
    """The orphans of one pass, and the entries without a pod record.

    ``record_gaps`` has, by ``(pci, container)``, the time (monotonic seconds) since which an entry has no record.
    """

    orphans: Sequence[Orphan]
    record_gaps: Mapping[tuple[str, str], float]


def find_orphans(
    entries: Mapping[str, tuple[LedgerEntry, Place]],
    records: Collection[str] | None,
    boot: str,
    record_gaps: Mapping[tuple[str, str], float],
    now: float,
) -> OrphanScan:
    """Find the orphans of one pass.

    ``entries`` are by PCI address; ``record_gaps`` is from the previous pass; ``now`` is in monotonic seconds.
    ``records`` has the uids of pods with a record, readable or not. It is None if the folder of records is missing,
    which proves nothing about pods.
    """
    gaps = {
        (pci, entry.container): record_gaps.get((pci, entry.container), now)
        for pci, (entry, _) in entries.items()
        if records is not None and entry.uid not in records
    }
    verdicts = (
        (entry, _reason(entry, place, boot, now - gaps.get((pci, entry.container), now)))
        for pci, (entry, place) in entries.items()
    )
    return OrphanScan([(entry, reason) for entry, reason in verdicts if reason is not None], gaps)


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
