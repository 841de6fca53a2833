"""Decide which pod records are stale because their pods no longer exist.

A runtime lists a sandbox only after its CNI chain has finished, so one list is not enough. A record is removed if two
lists LIST_INTERVAL_S apart contain no sandbox of its pod, and none is being created.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

LIST_INTERVAL_S = 600.0


@dataclass(frozen=True, slots=True)
class StaleRecords:
    """The records to remove now, and since when (monotonic seconds) each other record has had no sandbox."""

    remove: frozenset[str]
    missing: Mapping[str, float]


def find_stale_records(
    records: Collection[str],
    listed: Collection[str],
    in_progress: Collection[str],
    missing: Mapping[str, float],
    now: float,
) -> StaleRecords:
    """Evaluate one list of sandboxes; all collections have pod uids, and ``missing`` is from the previous call."""
    without = {uid: missing.get(uid, now) for uid in records if uid not in listed and uid not in in_progress}
    remove = frozenset(uid for uid, since in without.items() if now - since >= LIST_INTERVAL_S)
    return StaleRecords(remove, {uid: since for uid, since in without.items() if uid not in remove})
