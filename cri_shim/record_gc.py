"""Decide which pod records have outlived their pods.

A runtime lists a sandbox only once its CNI chain is done, so one list says nothing: a record goes when no sandbox of
its pod was listed in two lists this far apart, and none is being made.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

LIST_INTERVAL_S = 600.0


@dataclass(frozen=True, slots=True)
class StaleRecords:
    """The records to remove now, and since when (monotonic seconds) each of the others was found without a sandbox."""

    remove: frozenset[str]
    missing: Mapping[str, float]


def find_stale_records(
    records: Collection[str],
    listed: Collection[str],
    in_progress: Collection[str],
    missing: Mapping[str, float],
    now: float,
) -> StaleRecords:
    """Judge one list of sandboxes; all collections hold pod uids, ``missing`` is what the list before returned."""
    without = {uid: missing.get(uid, now) for uid in records if uid not in listed and uid not in in_progress}
    remove = frozenset(uid for uid, since in without.items() if now - since >= LIST_INTERVAL_S)
    return StaleRecords(remove, {uid: since for uid, since in without.items() if uid not in remove})
