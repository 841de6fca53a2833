"""Write objects as the tables that `kubectl get` requests: meta.k8s.io/v1 Table.

Columns: kubernetes pkg/printers/internalversion/printers.go, for pods, nodes, namespaces and events; name and age for
all other kinds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from devcluster.apiserver.objects import Object, items, section

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; priority 1 is shown with `-o wide` only."""

    name: str
    kind: str = "string"
    priority: int = 0

    def definition(self) -> Object:
        """Write metav1.TableColumnDefinition."""
        form = "name" if self.name == "Name" else ""
        return {"name": self.name, "type": self.kind, "format": form, "description": "", "priority": self.priority}


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a kind and how an object fills them at a given time."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]


def table(storage: tuple[str, str], objects: Iterable[Object], metadata: Object, include: str, now: datetime) -> Object:
    """Return a Table; `include` is what rows carry beside cells: Metadata, Object or None."""
    layout = _LAYOUTS.get(storage, _GENERIC)
    rows = [{"cells": layout.cells(one, now), "object": _row_object(one, include)} for one in objects]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in layout.columns],
        "rows": rows,
    }


def _row_object(obj: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


# Each unit's length in seconds, and below how many of it the next smaller unit is shown too (duration.HumanDuration).
_UNITS: Sequence[tuple[str, int, int]] = (("y", 31_536_000, 8), ("d", 86_400, 8), ("h", 3600, 8), ("m", 60, 10))


def age(since: Any, now: datetime) -> str:
    """Return how long ago a timestamp was, as kubectl does: 45s, 3m20s, 5h, 12d."""
    if not isinstance(since, str) or not since:
        return "<unknown>"
    then = datetime.fromisoformat(since)
    seconds = max(int((now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()), 0)
    if seconds < 120:
        return f"{seconds}s"
    for position, (unit, length, detailed_below) in enumerate(_UNITS):
        if seconds >= 2 * length or (length == 60 and seconds >= 120):
            whole, rest = divmod(seconds, length)
            smaller, small = _UNITS[position + 1][:2] if position + 1 < len(_UNITS) else ("s", 1)
            detail = f"{rest // small}{smaller}" if whole < detailed_below and rest // small else ""
            return f"{whole}{unit}{detail}"
    return f"{seconds}s"


def _created(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


_POD_COLUMNS = (
    *(Column("Name"), Column("Ready"), Column("Status"), Column("Restarts", "integer"), Column("Age")),
    *(Column("IP", priority=1), Column("Node", priority=1), Column("Nominated Node", priority=1)),
    Column("Readiness Gates", priority=1),
)


def _pod(pod: Object, now: datetime) -> Cells:
    spec, status = section(pod, "spec"), section(pod, "status")
    states = items(status, "containerStatuses")
    ready = sum(1 for one in states if one.get("ready"))
    restarts = sum(int(one.get("restartCount") or 0) for one in states)
    return [
        *(pod["metadata"]["name"], f"{ready}/{len(items(spec, 'containers'))}", _pod_reason(pod), restarts),
        *(_created(pod, now), status.get("podIP") or "<none>", spec.get("nodeName") or "<none>"),
        *(status.get("nominatedNodeName") or "<none>", "<none>"),
    ]


def _pod_reason(pod: Object) -> str:
    status = section(pod, "status")
    reason = status.get("reason") or status.get("phase") or "Unknown"
    if any(one.get("reason") == "SchedulingGated" for one in items(status, "conditions") if one["status"] == "False"):
        reason = "SchedulingGated" if section(pod, "spec").get("schedulingGates") else reason
    for one in items(status, "containerStatuses"):
        state = section(one, "state")
        waiting, ended = section(state, "waiting"), section(state, "terminated")
        reason = waiting.get("reason") or ended.get("reason") or reason
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else str(reason)


_NODE_COLUMNS = (
    *(Column("Name"), Column("Status"), Column("Roles"), Column("Age"), Column("Version")),
    *(Column("Internal-IP", priority=1), Column("External-IP", priority=1), Column("OS-Image", priority=1)),
    *(Column("Kernel-Version", priority=1), Column("Container-Runtime", priority=1)),
)
_ROLE = "node-role.kubernetes.io/"


def _node(node: Object, now: datetime) -> Cells:
    status = section(node, "status")
    info = section(status, "nodeInfo")
    addresses = {one.get("type"): one.get("address") for one in items(status, "addresses")}
    labels = section(node["metadata"], "labels")
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    wide = (info.get("osImage"), info.get("kernelVersion"), info.get("containerRuntimeVersion"))
    return [
        *(node["metadata"]["name"], _node_state(node), ",".join(roles) or "<none>", _created(node, now)),
        *(info.get("kubeletVersion", ""), addresses.get("InternalIP") or "<none>"),
        *(addresses.get("ExternalIP") or "<none>", *(value or "<unknown>" for value in wide)),
    ]


def _node_state(node: Object) -> str:
    conditions = items(section(node, "status"), "conditions")
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    state = {"True": "Ready", None: "Unknown"}.get(ready, "NotReady")
    return f"{state},SchedulingDisabled" if section(node, "spec").get("unschedulable") else state


_EVENT_COLUMNS = (
    *(Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"), Column("Subobject", priority=1)),
    *(Column("Source", priority=1), Column("Message"), Column("First Seen", priority=1), Column("Count", priority=1)),
    Column("Name", priority=1),
)


def _event(event: Object, now: datetime) -> Cells:
    about = section(event, "involvedObject")
    series = section(event, "series")
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    source = section(event, "source").get("component") or event.get("reportingComponent") or ""
    return [
        *(age(last, now), event.get("type", ""), event.get("reason", "")),
        *(f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}", about.get("fieldPath", "")),
        *(source, str(event.get("message", "")).strip(), age(first, now)),
        *(str(series.get("count") or event.get("count") or 1), event["metadata"]["name"]),
    ]


def _namespace(namespace: Object, now: datetime) -> Cells:
    return [namespace["metadata"]["name"], section(namespace, "status").get("phase", ""), _created(namespace, now)]


_GENERIC = Layout((Column("Name"), Column("Age")), lambda obj, now: [obj["metadata"]["name"], _created(obj, now)])
_LAYOUTS: Mapping[tuple[str, str], Layout] = {
    ("", "pods"): Layout(_POD_COLUMNS, _pod),
    ("", "nodes"): Layout(_NODE_COLUMNS, _node),
    ("", "events"): Layout(_EVENT_COLUMNS, _event),
    ("", "namespaces"): Layout((Column("Name"), Column("Status"), Column("Age")), _namespace),
}
