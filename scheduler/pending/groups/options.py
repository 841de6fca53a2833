"""What an operator decides about groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """In seconds, 0 for never.

    ``hold_s``: a group that has waited so long has first call on what becomes free. ``end_half_s``: a group of which
    fewer members than it needs are placed for so long, while others wait, is ended.
    """

    hold_s: float = 0.0
    end_half_s: float = 0.0


NO_OPTIONS = GroupOptions()
