"""The outcome beside a value: why there is none."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why something is not given, in words for a pod's owner."""

    reason: str
