"""Groups in the words of other schedulers: no program of Mooring reads them, and each of their pods starts on its own.

A pod that names its group in words that Mooring reads may keep the others' beside it. Pure.
"""

from collections.abc import Iterator, Mapping

from cli.plugin.reports.lint.manifests import Place
from mooring import names

# Volcano: apis, pkg/apis/scheduling/v1beta1/labels.go, KubeGroupNameAnnotationKey and VolcanoGroupNameAnnotationKey.
# Koordinator: apis/extension/coscheduling.go, AnnotationGangName. YuniKorn: k8shim, pkg/common/constants/constants.go,
# AnnotationTaskGroupName.
_ANNOTATIONS: Mapping[str, str] = {
    "scheduling.k8s.io/group-name": "Volcano",
    "scheduling.volcano.sh/group-name": "Volcano",
    "gang.scheduling.koordinator.sh/name": "Koordinator",
    "yunikorn.apache.org/task-group-name": "YuniKorn",
}
# scheduler-plugins before its label had `x-k8s.io`: with a PodGroup (kep/42-podgroup-coscheduling/README.md), which is
# Koordinator's label still, and without one (kep/2-lightweight-coscheduling/README.md).
_LABELS: Mapping[str, str] = {
    "pod-group.scheduling.sigs.k8s.io": "Koordinator",
    "pod-group.scheduling.sigs.k8s.io/name": "scheduler-plugins",
}


def other_groups(pod: Place) -> Iterator[tuple[Place, str]]:
    """Yield the annotations and labels of a pod by which another scheduler would know its group, and Mooring does not.

    And labels that are an annotation's name: a pod is asked for nothing by them.
    """
    annotations, labels = (pod.at("metadata", kind) for kind in ("annotations", "labels"))
    for key in labels.value if isinstance(labels.value, dict) else ():
        if key.startswith("mooring.dev/"):
            yield labels.at(key), "is a label: Mooring reads the annotation of this name"
    if _is_in_group(pod, annotations, labels):
        return
    for place, known in ((annotations, _ANNOTATIONS), (labels, _LABELS)):
        for key in place.value if isinstance(place.value, dict) else ():
            if key in known:
                yield (
                    place.at(key),
                    f"names a group for {known[key]}: Mooring ignores it, and each pod would start on its own; "
                    f"use the annotation {names.GROUP}",
                )


def _is_in_group(pod: Place, annotations: Place, labels: Place) -> bool:
    """Return whether a pod names its group in words that Mooring reads."""
    has_annotation = isinstance(annotations.value, dict) and names.GROUP in annotations.value
    has_label = isinstance(labels.value, dict) and names.POD_GROUP_LABEL in labels.value
    return has_annotation or has_label or bool(pod.at("spec", "schedulingGroup").value)
