"""The node's condition that its pods cannot have VFs, or that its folders of records hold what is none.

It is made of what `mooring-cni serve` has left on the host (`mooring.records.vf_faults`). As with the kubelet's own
ones, MemoryPressure and its like, False is good.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Self

from advertiser.formats.cluster_facts import NodeCondition
from mooring.parsing import dump
from mooring.records.vf_faults import VfFaults

TYPE = "mooring.dev/VfsImpaired"
# A node's condition is read by people; the guard's bound.
_LONGEST = 1024
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class VfCondition:
    """What the condition says, without its times."""

    status: str
    reason: str
    message: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of `dump`."""
        return cls(**json.loads(text))

    def dump(self) -> str:
        return dump(asdict(self))


def condition_of(found: VfFaults) -> VfCondition:
    """Return the condition that the server's report gives."""
    faults = [fault for fault in (found.unavailable, *found.faults) if fault]
    named = [f"{entry.path}: {entry.why}" for entry in found.foreign[:_MOST_NAMED]]
    more = found.count - len(named)
    texts = [*faults, *named, *([f"and {more} more foreign entries"] if more > 0 else [])]
    if not texts:
        return VfCondition("False", "VfsAvailable", "pods can have VFs, and the folders of records hold nothing else")
    reason = "VfsUnavailable" if found.unavailable else "VfFaults" if faults else "ForeignEntries"
    return VfCondition("True", reason, "; ".join(texts)[:_LONGEST])


def observed_condition(conditions: Iterable[NodeCondition]) -> VfCondition | None:
    """Return the node's own condition of this type, None without one."""
    found = (each for each in conditions if each.type == TYPE)
    return next((VfCondition(each.status, each.reason, each.message) for each in found), None)


def condition_patch(wanted: VfCondition, before: VfCondition | None, now: datetime) -> bytes:
    """Return the strategic merge patch of nodes/status: conditions merge by their type, and no other is named."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": TYPE, **asdict(wanted), "lastHeartbeatTime": at}
    if before is None or before.status != wanted.status:
        condition["lastTransitionTime"] = at
    return dump({"status": {"conditions": [condition]}}).encode()
