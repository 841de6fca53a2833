"""A condition of the node that the advertiser writes: its text, and the patch that writes it.

As with the kubelet's own ones, MemoryPressure and its like, False is good.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Protocol, Self

from mooring.parsing import dump

# A node's condition is read by people; the guard's bound.
LONGEST = 1024


class _Condition(Protocol):
    """A condition of the node as it was decoded."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ConditionState:
    """What a condition says, without its times."""

    status: str
    reason: str
    message: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of `dump`."""
        return cls(**json.loads(text))

    def dump(self) -> str:
        return dump(asdict(self))


def observed_condition(kind: str, conditions: Iterable[_Condition]) -> ConditionState | None:
    """Return the node's own condition of a type, None without one."""
    found = (each for each in conditions if each.type == kind)
    return next((ConditionState(each.status, each.reason, each.message) for each in found), None)


def condition_patch(kind: str, wanted: ConditionState, before: ConditionState | None, now: datetime) -> bytes:
    """Return the strategic merge patch of nodes/status: conditions merge by their type, and no other is named."""
    condition = {"type": kind, **asdict(wanted), "lastHeartbeatTime": rfc3339(now)}
    if before is None or before.status != wanted.status:
        condition["lastTransitionTime"] = rfc3339(now)
    return dump({"status": {"conditions": [condition]}}).encode()


def rfc3339(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
