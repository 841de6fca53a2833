"""Decide which pod records have outlived their pods.

A runtime lists a sandbox only once its CNI chain is done, so one asking says nothing: a record goes when no sandbox of
its pod was listed at two askings this far apart, and none is being made.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

ASKING_S = 600.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """The records to remove now, and since when (monotonic seconds) each of the others was found without a sandbox."""

    remove: frozenset[str]
    missing: Mapping[str, float]


def sweep(
    records: Collection[str],
    listed: Collection[str],
    being_made: Collection[str],
    missing: Mapping[str, float],
    now: float,
) -> Sweep:
    """Judge one asking; all collections hold pod uids, ``missing`` is what the asking before returned."""
    without = {uid: missing.get(uid, now) for uid in records if uid not in listed and uid not in being_made}
    remove = frozenset(uid for uid, since in without.items() if now - since >= ASKING_S)
    return Sweep(remove, {uid: since for uid, since in without.items() if uid not in remove})
