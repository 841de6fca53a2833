"""Decide which pod records have outlived their pods.

A runtime lists a sandbox only once its CNI chain is done, so one list is not enough. A record is removed when two lists
this far apart contain no sandbox of its pod, and none is being created.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

LIST_INTERVAL_S = 600.0


@dataclass(frozen=True, slots=True)
class StaleRecords:
    """The records to remove now, and since when (monotonic seconds) each of the others has had no sandbox."""

    remove: frozenset[str]
    missing: Mapping[str, float]


def find_stale_records(
    records: Collection[str],
    listed: Collection[str],
    in_progress: Collection[str],
    missing: Mapping[str, float],
    now: float,
) -> StaleRecords:
    """Evaluate one list of sandboxes; all collections hold pod uids, ``missing`` is what the previous call returned."""
    without = {uid: missing.get(uid, now) for uid in records if uid not in listed and uid not in in_progress}
    remove = frozenset(uid for uid, since in without.items() if now - since >= LIST_INTERVAL_S)
    return StaleRecords(remove, {uid: since for uid, since in without.items() if uid not in remove})
