"""A pod or pod template as the scheduler reads it. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.plugin.reports.lint.manifests import Place, PodPlace
from mooring import names
from mooring.annotations.group import GroupRequest, read_group
from mooring.errors import AnnotationError
from mooring.gpu.assignment import KIND as GPU
from scheduler.constraints.kinds import Kinds, asked_kinds
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.placement.gpus import gpu_kind


def read_template(pod_place: PodPlace) -> PodInfo | Refused | None:
    """Return what the scheduler reads; None if it asks its plug-ins, which are not here. Raise ValidationError."""
    value: dict[str, Any] = dict(pod_place.pod.value) if isinstance(pod_place.pod.value, dict) else {}
    for part in pod_place.pod.renamed:
        value[part] = pod_place.pod.at(part).value or {}
    if main := main_containers(pod_place.pod):
        others = value["spec"].get("containers")
        value["spec"] = {**value["spec"], "containers": main + (others if isinstance(others, list) else [])}
    metadata: Any = value.get("metadata") if isinstance(value.get("metadata"), dict) else {}
    # A template's pods have a controller, which is their group if that has no name.
    kind, _, name = pod_place.owner.partition("/")
    of_template: dict[str, Any] = {}
    if kind != "Pod":
        of_template["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
        of_template["labels"] = _labels(pod_place.pod, metadata)
    read = msgspec.convert({**value, "metadata": {"name": "", **metadata, **of_template}}, Pod)
    # The pods of another scheduler have their claims from it, and their VFs from its extender.
    others = any(kind != GPU for kind, _ in asked_kinds(read.annotations))
    has_claims_allocated = read.spec.scheduler_name != names.SCHEDULER_NAME
    pod_info = read_pod_info(read, Kinds([gpu_kind()]), has_claims_allocated=has_claims_allocated)
    return None if isinstance(pod_info, Refused) and others else pod_info


def main_containers(pod: Place) -> list[dict[str, Any]]:
    """Return the container of a Dynamo service that is beside the others, and has no name."""
    main = pod.at("spec", "mainContainer").value if pod.renamed else None
    return [{"name": "main", **main}] if isinstance(main, dict) else []


def group_request(pod: Place) -> GroupRequest | None:
    """Return what a pod's annotation says about its group; None if it says nothing that can be read."""
    annotations = pod.at("metadata", "annotations").value
    text = annotations.get(names.GROUP) if isinstance(annotations, dict) else None
    try:
        return read_group({names.GROUP: text}) if isinstance(text, str) else None
    except AnnotationError:
        return None


def _labels(pod: Place, metadata: Mapping[str, Any]) -> object:
    """Return a template's labels, and those that give its group's name and its role: the controller may set them."""
    labels, request = metadata.get("labels") or {}, group_request(pod)
    keys = (request.name_from, request.role_from) if request is not None else ()
    return {key: "value" for key in keys if key} | labels if isinstance(labels, dict) else labels
