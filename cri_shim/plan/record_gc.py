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

    uids: frozenset[str]
    missing_since_s: Mapping[str, float]


def find_stale_records(
    records: Collection[str],
    sandbox_uids: Collection[str],
    in_progress: Collection[str],
    missing_since_s: Mapping[str, float],
    now_s: float,
) -> StaleRecords:
    """Evaluate one list of sandboxes: all collections have pod uids; ``missing_since_s`` is from the previous call."""
    since_s_of_uid = {
        uid: missing_since_s.get(uid, now_s) for uid in records if uid not in sandbox_uids and uid not in in_progress
    }
    uids = frozenset(uid for uid, since_s in since_s_of_uid.items() if now_s - since_s >= LIST_INTERVAL_S)
    return StaleRecords(uids, {uid: since_s for uid, since_s in since_s_of_uid.items() if uid not in uids})
