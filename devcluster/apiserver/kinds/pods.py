"""What a real server does to pods: defaults, allowed changes, the bind, the deletion's grace period.

Defaults: pkg/apis/core/v1/defaults.go and the admission plugins Priority and DefaultTolerationSeconds.
"""

from collections.abc import Iterator
from typing import Any

from devcluster.apiserver.objects import Object, items, section
from devcluster.apiserver.status import Cause

_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
# The kubelet evicts a pod this many seconds after its node became not ready or unreachable.
_TOLERATION_S = 300
_DEFAULT_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_FILE_MODE = 0o644
_FILE_VOLUMES = ("secret", "configMap", "downwardAPI", "projected")


def default_spec(spec: Object) -> None:
    """Fill in what the user left out of a pod's spec (also of a template's)."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    for container in containers(spec):
        _default_container(container)
        if spec.get("hostNetwork"):
            for port in items(container, "ports"):
                port.setdefault("hostPort", port.get("containerPort"))
    for volume in items(spec, "volumes"):
        _default_volume(volume)
    if spec.get("serviceAccountName") and not spec.get("serviceAccount"):
        spec["serviceAccount"] = spec["serviceAccountName"]


def containers(spec: Object) -> Iterator[Object]:
    """Yield all containers: init, main, ephemeral."""
    for name in _CONTAINER_LISTS:
        yield from items(spec, name)


def _default_container(container: Object) -> None:
    resources = container.setdefault("resources", {})
    if isinstance(limits := resources.get("limits"), dict):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in items(container, "ports"):
        port.setdefault("protocol", "TCP")
    for variable in items(container, "env"):
        source = section(section(variable, "valueFrom"), "fieldRef")
        if source:
            source.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(written := container.get(probe), dict):
            container[probe] = {**_PROBE_DEFAULTS, **written}


def _default_volume(volume: Object) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    if isinstance(path := volume.get("hostPath"), dict):
        path.setdefault("type", "")
    for kind in _FILE_VOLUMES:
        if isinstance(source := volume.get(kind), dict):
            source.setdefault("defaultMode", _FILE_MODE)


def admit(spec: Object, priorities: dict[str, int]) -> str | None:
    """Set priority and the default tolerations; return a priority class's name that `priorities` lacks."""
    name = spec.get("priorityClassName")
    if name and name not in priorities:
        return str(name)
    spec["priority"] = priorities[name] if name else 0
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = [*(spec.get("tolerations") or [])]
    for key in _DEFAULT_TOLERATED:
        if not any(_tolerates(one, key) for one in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_S}
            )
    spec["tolerations"] = tolerations
    return None


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (key, "", None) and toleration.get("effect") in ("NoExecute", "", None)


def initial_status(spec: Object, now: str) -> Object:
    """Return the status of a new pod, whatever status was posted."""
    status: Object = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        text = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": now}
        status["conditions"] = [{**gated, "reason": "SchedulingGated", "message": text}]
    return {**status, "qosClass": qos_class(spec)}


def qos_class(spec: Object) -> str:
    """Return BestEffort, Burstable or Guaranteed, by cpu and memory only."""
    counted = ("cpu", "memory")
    demands = [section(one, "resources") for name in _CONTAINER_LISTS[:2] for one in items(spec, name)]
    requested = [{k: v for k, v in section(one, "requests").items() if k in counted} for one in demands]
    limited = [{k: v for k, v in section(one, "limits").items() if k in counted} for one in demands]
    if not any(requested) and not any(limited):
        return "BestEffort"
    guaranteed = all(len(limit) == 2 and limit == need for need, limit in zip(requested, limited, strict=True))
    return "Guaranteed" if guaranteed else "Burstable"


def spec_causes(spec: Object) -> list[Cause]:
    """Return the rules that a new pod's spec breaks: those that users meet."""
    causes = []
    if not items(spec, "containers"):
        causes.append(Cause("FieldValueRequired", "Required value", "spec.containers"))
    for position, container in enumerate(items(spec, "containers")):
        field = f"spec.containers[{position}]"
        causes += [
            Cause("FieldValueRequired", "Required value", f"{field}.{name}")
            for name in ("name", "image")
            if not container.get(name)
        ]
    if spec.get("nodeName") and spec.get("schedulingGates"):
        rule = "Forbidden: cannot be set until all schedulingGates have been cleared"
        causes.append(Cause("FieldValueForbidden", rule, "spec.nodeName"))
    return causes


_FORBIDDEN = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_causes(old: Object, new: Object) -> list[Cause]:
    """Return why the change from one spec to another is refused."""
    causes = []
    gated = bool(old.get("schedulingGates"))
    if _fixed(old, gated) != _fixed(new, gated):
        causes.append(Cause("FieldValueForbidden", _FORBIDDEN, "spec"))
    kept = [_untimed(one) for one in items(new, "tolerations")]
    if any(_untimed(one) not in kept for one in items(old, "tolerations")):
        rule = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        causes.append(Cause("FieldValueForbidden", rule, "spec.tolerations"))
    gates = {one.get("name") for one in items(old, "schedulingGates")}
    if any(one.get("name") not in gates for one in items(new, "schedulingGates")):
        rule = "Forbidden: only deletion is allowed, but found new scheduling gate"
        causes.append(Cause("FieldValueForbidden", rule, "spec.schedulingGates"))
    return causes


def _untimed(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


_CHANGEABLE = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})
# A gated pod's nodes may still be narrowed (KEP-3838); that they were only narrowed is not checked here.
_CHANGEABLE_GATED = _CHANGEABLE | {"nodeSelector", "affinity"}


def _fixed(spec: Object, gated: bool) -> Object:
    changeable = _CHANGEABLE_GATED if gated else _CHANGEABLE
    kept = {key: value for key, value in spec.items() if key not in changeable and value not in (None, [], {})}
    for name in _CONTAINER_LISTS[:2]:
        if name in kept:
            kept[name] = [{k: v for k, v in one.items() if k != "image"} for one in items(spec, name)]
    return kept


def bind(pod: Object, node: str, annotations: Object, labels: Object, now: str) -> None:
    """Write a Binding into the pod: node, annotations and labels over the pod's own, PodScheduled=True.

    The nomination is removed, as by servers since 1.35.
    """
    pod["spec"]["nodeName"] = node
    section(pod, "status").pop("nominatedNodeName", None)
    metadata = pod["metadata"]
    if annotations:
        metadata["annotations"] = {**section(metadata, "annotations"), **annotations}
    if labels:
        metadata["labels"] = {**section(metadata, "labels"), **labels}
    set_condition(pod, {"type": "PodScheduled", "status": "True"}, now)


def set_condition(pod: Object, condition: Object, now: str) -> None:
    """Set a condition; the transition time changes only with the status."""
    conditions = section(pod, "status").get("conditions") or []
    old: Object = next((one for one in conditions if one["type"] == condition["type"]), {})
    since = old.get("lastTransitionTime") if old.get("status") == condition["status"] else now
    written = {**condition, "lastProbeTime": None, "lastTransitionTime": since}
    kept = [one for one in conditions if one["type"] != condition["type"]]
    pod.setdefault("status", {})["conditions"] = [*kept, written]


def grace_seconds(pod: Object, asked: int | None) -> int:
    """Return the kubelet's grace period: 0 for a pod that no node runs."""
    spec, phase = section(pod, "spec"), section(pod, "status").get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    period: Any = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return max(int(period), 0) if period >= 0 else 1
