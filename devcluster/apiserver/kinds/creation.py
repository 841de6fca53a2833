"""What a real server does to kinds other than pods when they are created: nodes, namespaces, custom resources, events.

The two event APIs, core/v1 and events.k8s.io/v1, are one store: objects are kept in the core form.
"""

from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import Object, items, metadata_of, section

_NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)
_NOT_READY: Object = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def default_node(node: Object) -> None:
    """Taint a new node as not ready, as the admission plugin TaintNodesByCondition does, and complete its status."""
    spec = node["spec"] = section(node, "spec")
    taints = items(spec, "taints")
    if not any(one.get("key") == _NOT_READY["key"] and one.get("effect") == "NoSchedule" for one in taints):
        spec["taints"] = [*taints, dict(_NOT_READY)]
    complete_node(node)


def complete_node(node: Object) -> None:
    """Fill in the status fields that are never absent; allocatable defaults to capacity."""
    status = node["status"] = section(node, "status")
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **section(status, "nodeInfo")}


def default_namespace(namespace: Object) -> None:
    """Label a namespace with its name and make it active."""
    metadata = metadata_of(namespace)
    metadata["labels"] = {**section(metadata, "labels"), "kubernetes.io/metadata.name": metadata["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def default_workload(workload: Object) -> None:
    """Complete how a Deployment or DaemonSet is replaced (pkg/apis/apps/v1/defaults.go)."""
    spec = workload["spec"] = section(workload, "spec")
    if workload["kind"] == "DaemonSet":
        _default_rollout(spec, "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0})
    else:
        spec.setdefault("replicas", 1)
        _default_rollout(spec, "strategy", {"maxUnavailable": "25%", "maxSurge": "25%"})


def _default_rollout(spec: Object, name: str, rolling: Object) -> None:
    strategy = spec[name] = {"type": "RollingUpdate", **section(spec, name)}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**rolling, **section(strategy, "rollingUpdate")}


def establish(definition: Object, now: str) -> list[Resource]:
    """Accept a CustomResourceDefinition: set its status, return the kinds that it adds (one a served version)."""
    spec = section(definition, "spec")
    names = section(spec, "names")
    definition["status"] = {
        "acceptedNames": names,
        "storedVersions": [one.get("name") for one in items(spec, "versions") if one.get("storage")],
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", now),
            _condition("Established", "InitialNamesAccepted", now),
        ],
    }
    return [
        Resource(
            group=str(spec.get("group", "")),
            version=str(version.get("name", "")),
            plural=str(names.get("plural", "")),
            kind=str(names.get("kind", "")),
            namespaced=spec.get("scope") == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=("status",) if "status" in section(version, "subresources") else (),
            generation=True,
            unconditional=False,
            learnt=True,
        )
        for version in items(spec, "versions")
        if version.get("served")
    ]


def _condition(kind: str, reason: str, now: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now}


# events.k8s.io/v1 name -> core/v1 name, where they differ.
_EVENT_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_FIELDS = {core: new for new, core in _EVENT_FIELDS.items()}


def event_to_core(event: Object) -> Object:
    """Rewrite an events.k8s.io/v1 Event as the core/v1 Event that is stored."""
    renamed = {_EVENT_FIELDS.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "v1"} if "apiVersion" in renamed else renamed


def event_from_core(event: Object) -> Object:
    """Rewrite a stored Event in the fields of events.k8s.io/v1."""
    renamed = {_CORE_FIELDS.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


_CORE_EVENTS = Resource("", "v1", "events", "Event")


def stored_as(resource: Resource) -> Resource:
    """Return the kind in whose form objects are kept: core/v1 for both event APIs, else the kind itself."""
    return _CORE_EVENTS if resource.storage == _CORE_EVENTS.storage else resource


def to_stored(resource: Resource, obj: Object) -> Object:
    """Rewrite an object of the API's form as it is kept."""
    return event_to_core(obj) if resource.group == "events.k8s.io" else obj


def from_stored(resource: Resource, obj: Object) -> Object:
    """Rewrite a kept object in the API's form."""
    return event_from_core(obj) if resource.group == "events.k8s.io" else obj
