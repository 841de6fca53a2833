"""The operator's options about groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Times in seconds; 0 for never. ``backfill``: the first group gets a promised start.

    ``hold_s``: room is reserved for a group that has waited this long. ``end_half_s``: a group is evicted if fewer
    members than it needs have been placed for this long while others wait.
    """

    hold_s: float = 0.0
    end_half_s: float = 0.0
    backfill: bool = False


NO_OPTIONS = GroupOptions()
