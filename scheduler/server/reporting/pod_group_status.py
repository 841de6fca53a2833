"""Build the patch of a PodGroup's status. Bodies only, pure."""

from collections.abc import Iterator

import msgspec

from scheduler.cycle.instructions import ReportGroup
from scheduler.kube.pod_groups import CONDITION_TYPES


def pod_group_patches(report: ReportGroup, now: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the strategic merge patch of podgroups/status for each version, the newest first.

    One version is served; the condition's type differs between them. ``now`` is RFC 3339. A condition that is not True
    has the resourceVersion as a precondition, so that it does not replace one that has become True.
    """
    about = report.pod_group.metadata
    metadata: dict[str, object] = {"uid": about.uid}
    if report.status != "True":
        metadata["resourceVersion"] = about.resource_version
    for version, name in CONDITION_TYPES.items():
        condition = {
            "type": name,
            "status": report.status,
            "reason": report.reason,
            "message": report.message,
            "observedGeneration": about.generation,
            "lastTransitionTime": _since(report, name, now),
        }
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/{about.namespace}/podgroups/{about.name}/status"
        yield path, msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})


def _since(report: ReportGroup, name: str, now: str) -> str:
    """Return since when the condition has had its status: another message is not a transition."""
    condition = next((entry for entry in report.pod_group.status.conditions or () if entry.type == name), None)
    return condition.last_transition_time or now if condition is not None and condition.status == report.status else now
