"""The two writes that are not objects: binding a pod to a node, and evicting a pod."""

from dataclasses import replace

from devcluster.apiserver import status
from devcluster.apiserver.access.admission import check_policies, topology_of
from devcluster.apiserver.cluster import Cluster
from devcluster.apiserver.kinds import pods
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import Object, metadata_of, section
from devcluster.apiserver.status import ApiError
from devcluster.apiserver.store.store import Entry
from devcluster.apiserver.verbs.delete import DeleteOptions, delete

_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
# What one message to etcd may hold, in bytes.
_STORED_MAX = 2 * 1024 * 1024


def bind(cluster: Cluster, pod_kind: Resource, namespace: str, name: str, binding: Object, dry_run: bool) -> None:
    """Apply a Binding, its annotations and labels to the pod in one write; raise as a real server does.

    The annotations are not validated, neither syntax nor size: a real server lets them poison the pod.
    """
    if metadata_of(binding).get("name") != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    target = section(binding, "target")
    _check_target(target)
    entry = cluster.existing(pod_kind, namespace, name)
    _check_preconditions(entry, metadata_of(binding))
    if cluster.admission:
        check_policies(cluster.store, pod_kind, "binding", "CREATE", binding)
    pod = entry.decoded()
    if why := _refusal(pod):
        raise status.conflict("", "pods/binding", name, why)
    metadata = metadata_of(binding)
    node, annotations = target["name"], section(metadata, "annotations")
    labels = section(metadata, "labels") | topology_of(cluster.store, node)
    pods.bind(pod, node, annotations, labels, cluster.now())
    stored = cluster.store.preview(pod_kind.storage, pod, 0)
    if len(stored.raw) > _STORED_MAX:
        size = f"trying to send message larger than max ({len(stored.raw)} vs. {_STORED_MAX})"
        raise status.conflict("", "pods/binding", name, f"rpc error: code = ResourceExhausted desc = {size}")
    if not dry_run:
        cluster.store.put(pod_kind.storage, pod)


def _check_target(target: Object) -> None:
    kind = target.get("kind")
    if kind not in ("Node", "", None):
        rule = f'Unsupported value: "{kind}": supported values: "Node", "<empty>"'
        raise ApiError(500, "", f"target.kind: {rule}")
    if not target.get("name"):
        raise ApiError(500, "", "target.name: Required value")


def _check_preconditions(entry: Entry, metadata: Object) -> None:
    wanted = (("UID", "uid", entry.uid), ("ResourceVersion", "resourceVersion", str(entry.revision)))
    for what, key, actual in wanted:
        expected = metadata.get(key)
        if expected and expected != actual:
            why = status.failed_precondition("pods", entry.namespace, entry.name, what, expected, actual)
            raise status.conflict("", "pods", entry.name, why)


def _refusal(pod: Object) -> str | None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return None


def evict(cluster: Cluster, pod_kind: Resource, namespace: str, name: str, eviction: Object, dry_run: bool) -> None:
    """Delete a pod by policy/v1 Eviction. Disruption budgets are stored, but nothing counts them here."""
    if metadata_of(eviction).get("name", name) != name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    entry = cluster.existing(pod_kind, namespace, name)
    options = DeleteOptions.read(section(eviction, "deleteOptions"), None, dry_run)
    options.check(pod_kind, entry)
    if not dry_run:
        entry = _disrupted(cluster, pod_kind, entry)
    delete(cluster, pod_kind, entry, replace(options, revision=None))


def _disrupted(cluster: Cluster, pod_kind: Resource, entry: Entry) -> Entry:
    """Write the reason of the deletion before it: a write of its own, as in a real server."""
    pod = entry.decoded()
    pods.set_condition(pod, _EVICTED, cluster.now())
    return entry if pod == entry.decoded() else cluster.store.put(pod_kind.storage, pod)
