"""The node's condition that its pods cannot have VFs, or that its folders of records hold what is none.

It is made of what `mooring-cni serve` has left on the host (`mooring.records.vf_faults`).
"""

from advertiser.formats.node_condition import LONGEST, ConditionState
from mooring.records.vf_faults import VfFaults

TYPE = "mooring.dev/VfsImpaired"
_MOST_NAMED = 5


def condition_of(found: VfFaults) -> ConditionState:
    """Return the condition that the server's report gives."""
    faults = [fault for fault in (found.unavailable, *found.faults) if fault]
    named = [f"{entry.path}: {entry.why}" for entry in found.foreign[:_MOST_NAMED]]
    more = found.count - len(named)
    texts = [*faults, *named, *([f"and {more} more foreign entries"] if more > 0 else [])]
    if not texts:
        return ConditionState(
            "False", "VfsAvailable", "pods can have VFs, and the folders of records hold nothing else"
        )
    reason = "VfsUnavailable" if found.unavailable else "VfFaults" if faults else "ForeignEntries"
    return ConditionState("True", reason, "; ".join(texts)[:LONGEST])
