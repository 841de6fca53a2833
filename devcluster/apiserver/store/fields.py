"""The fields of each kind that a field selector may name: read once, when an object is stored."""

from collections.abc import Callable, Mapping
from typing import Any

from devcluster.apiserver.objects import Object, section

_COMMON = ("metadata.name", "metadata.namespace")
_POD = (
    *("spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "spec.serviceAccountName"),
    *("status.phase", "status.podIP", "status.nominatedNodeName"),
)
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_INVOLVED_FIELDS = tuple(f"involvedObject.{name}" for name in _INVOLVED)
_REGARDING_FIELDS = tuple(f"regarding.{name}" for name in _INVOLVED)
_EVENT = (
    *_INVOLVED_FIELDS,
    *_REGARDING_FIELDS,
    "reason",
    "type",
    "source",
    "reportingComponent",
    "reportingController",
)

_SLICE = ("spec.nodeName", "spec.driver")

_ALLOWED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (*_POD, "spec.hostNetwork"),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "namespaces"): ("status.phase", "name"),
    ("", "secrets"): ("type",),
    ("", "events"): _EVENT,
    ("batch", "jobs"): ("status.successful",),
    ("resource.k8s.io", "resourceslices"): _SLICE,
}

# By these a collection finds the few watchers that a change concerns, without checking each of them.
INDEXED = ("spec.nodeName", "metadata.name")


def allowed(storage: tuple[str, str]) -> frozenset[str]:
    """Return the selectable fields of a collection."""
    return frozenset((*_COMMON, *_ALLOWED.get(storage, ())))


def read(storage: tuple[str, str], obj: Object) -> dict[str, str]:
    """Return the values of the selectable fields; absent ones are left out and count as empty."""
    metadata = obj["metadata"]
    found = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
    more = _READERS.get(storage)
    if more is not None:
        found |= {key: value for key, value in more(obj).items() if value}
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _at(obj: Object, path: str) -> str:
    head, _, last = path.partition(".")
    return _text(section(obj, head).get(last)) if last else _text(obj.get(head))


def _pod(pod: Object) -> dict[str, str]:
    spec, status = section(pod, "spec"), section(pod, "status")
    found = {path: _text((spec if path[1] == "p" else status).get(path.partition(".")[2])) for path in _POD}
    found["spec.hostNetwork"] = "true" if spec.get("hostNetwork") else "false"
    return found


def _node(node: Object) -> dict[str, str]:
    return {"spec.unschedulable": "true" if section(node, "spec").get("unschedulable") else "false"}


def _event(event: Object) -> dict[str, str]:
    found = {path: _at(event, path) for path in (*_INVOLVED_FIELDS, "reason", "type", "reportingComponent")}
    found |= {f"regarding.{name}": found[f"involvedObject.{name}"] for name in _INVOLVED}
    found["source"] = _at(event, "source.component") or found["reportingComponent"]
    found["reportingController"] = found["reportingComponent"]
    return found


def _namespace(namespace: Object) -> dict[str, str]:
    return {"status.phase": _at(namespace, "status.phase"), "name": _at(namespace, "metadata.name")}


_READERS: Mapping[tuple[str, str], Callable[[Object], dict[str, str]]] = {
    ("", "pods"): _pod,
    ("", "nodes"): _node,
    ("", "events"): _event,
    ("", "namespaces"): _namespace,
    ("", "secrets"): lambda obj: {"type": _at(obj, "type")},
    ("batch", "jobs"): lambda obj: {"status.successful": _at(obj, "status.succeeded")},
    ("resource.k8s.io", "resourceslices"): lambda obj: {path: _at(obj, path) for path in _SLICE},
}
