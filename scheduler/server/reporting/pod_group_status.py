"""The patch of a PodGroup's status. Bodies only, pure."""

from collections.abc import Iterator

import msgspec

from scheduler.cycle.instructions import ReportGroup
from scheduler.kube.pod_groups import CONDITION_TYPES


def pod_group_patches(report: ReportGroup, now: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the strategic merge patch of podgroups/status for each version, the newest first.

    One version is served; the condition's type differs between them. ``now`` is RFC 3339. A condition that is not True
    has the version that it is about as a precondition: one that is True meanwhile stays so.
    """
    known = report.pod_group.metadata
    metadata: dict[str, object] = {"uid": known.uid}
    if report.status != "True":
        metadata["resourceVersion"] = known.resource_version
    for version, name in CONDITION_TYPES.items():
        condition = {
            "type": name,
            "status": report.status,
            "reason": report.reason,
            "message": report.message,
            "observedGeneration": known.generation,
            "lastTransitionTime": _since(report, name, now),
        }
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/{known.namespace}/podgroups/{known.name}/status"
        yield path, msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def _since(report: ReportGroup, name: str, now: str) -> str:
    """Return since when the condition has had its status: another message is not a transition."""
    known = next((one for one in report.pod_group.status.conditions or () if one.type == name), None)
    return known.last_transition_time or now if known is not None and known.status == report.status else now
