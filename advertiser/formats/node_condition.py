"""Format the node conditions that the advertiser writes, and the patch that writes them.

As in the kubelet's own conditions, such as MemoryPressure, the status False is good.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Protocol, Self

from mooring.parsing import dump

# The longest message of a condition in characters; the admission policy has the same limit.
LONGEST = 1024


class _Condition(Protocol):
    """A decoded condition of a node object."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ConditionState:
    """A condition without its times."""

    status: str
    reason: str
    message: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the state that `dump` wrote as ``text``."""
        return cls(**json.loads(text))

    def dump(self) -> str:
        return dump(asdict(self))


def observed_condition(kind: str, conditions: Iterable[_Condition]) -> ConditionState | None:
    """Return the node's condition of type ``kind``, None if there is none."""
    conditions_of_kind = (condition for condition in conditions if condition.type == kind)
    return next(
        (ConditionState(condition.status, condition.reason, condition.message) for condition in conditions_of_kind),
        None,
    )


def condition_patch(kind: str, wanted: ConditionState, before: ConditionState | None, now: datetime) -> bytes:
    """Return the strategic merge patch of nodes/status, which merges conditions by type and changes no other one."""
    condition = {"type": kind, **asdict(wanted), "lastHeartbeatTime": rfc3339(now)}
    if before is None or before.status != wanted.status:
        condition["lastTransitionTime"] = rfc3339(now)
    return dump({"status": {"conditions": [condition]}}).encode()


def rfc3339(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
