"""The outcome in place of a value: why there is none."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something is not possible, as a text for a pod's owner."""

    reason: str
