"""Format the node condition `VfsImpaired`: pods cannot get VFs, or the record folders contain foreign entries.

It is derived from the report that `mooring-cni serve` writes on the host (`mooring.records.vf_faults`).
"""

from advertiser.formats.node_condition import LONGEST, ConditionState
from mooring.records.vf_faults import VfFaults

TYPE = "mooring.dev/VfsImpaired"
_MOST_NAMED = 5


def condition_of(found: VfFaults) -> ConditionState:
    """Return the condition for the server's report."""
    faults = [fault for fault in (found.unavailable, *found.faults) if fault]
    lines = [f"{entry.path}: {entry.why}" for entry in found.foreign[:_MOST_NAMED]]
    rest = found.count - len(lines)
    texts = [*faults, *lines, *([f"and {rest} more foreign entries"] if rest > 0 else [])]
    if not texts:
        return ConditionState(
            "False", "VfsAvailable", "pods can get VFs, and the record folders hold no foreign entries"
        )
    reason = "VfsUnavailable" if found.unavailable else "VfFaults" if faults else "ForeignEntries"
    return ConditionState("True", reason, "; ".join(texts)[:LONGEST])
