"""Create an object: identity, defaults of its kind, validation, then the write."""

import secrets
import uuid
from collections.abc import Iterable

from devcluster.apiserver import status
from devcluster.apiserver.access.admission import check_policies, give_account, topology_of
from devcluster.apiserver.cluster import DEFINITIONS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Cluster
from devcluster.apiserver.kinds import creation, pods, storage
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.kinds.validation import metadata_causes
from devcluster.apiserver.objects import Object, metadata_of, section
from devcluster.apiserver.status import ApiError, Cause
from devcluster.apiserver.store.store import Entry

# The alphabet of generated names: no vowels, no 0, 1 and 3, so that no word is formed.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_COMPLETED = {storage.VOLUMES: storage.default_volume, storage.CLASSES: storage.default_class}
_WORKLOADS = (("apps", "deployments"), ("apps", "daemonsets"))
_DROPPED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")


def create(cluster: Cluster, resource: Resource, namespace: str | None, obj: Object, dry_run: bool) -> Entry:
    """Store a new object and return it; raise 400, 403, 404, 409, 422 as a real server does."""
    check_kind(resource, obj)
    _check_namespace(cluster, namespace)
    new = _identified(cluster, resource, namespace, creation.to_stored(resource, obj))
    causes = [*_prepare(cluster, resource, new), *metadata_causes(resource.kind, new["metadata"])]
    name = str(new["metadata"].get("name"))
    if causes:
        raise status.invalid(resource.group, resource.kind, name, causes)
    if cluster.store.get(resource.storage, namespace or "", name) is not None:
        raise status.already_exists(resource.group, resource.plural, name)
    if cluster.admission:
        check_policies(cluster.store, resource, None, "CREATE", new)
    if dry_run:
        return cluster.store.preview(resource.storage, new, 0)
    if resource.storage == DEFINITIONS:
        for kind in creation.establish(new, cluster.now()):
            cluster.catalog.learn(kind)
    return cluster.store.put(resource.storage, new)


def _check_namespace(cluster: Cluster, namespace: str | None) -> None:
    if namespace is None:
        return
    if cluster.store.get(NAMESPACES, "", namespace) is None:
        raise status.not_found("", "namespaces", namespace)
    if cluster.terminating(namespace):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise status.forbidden("", "namespaces", namespace, why)


def _identified(cluster: Cluster, resource: Resource, namespace: str | None, obj: Object) -> Object:
    given = metadata_of(obj)
    if given.get("resourceVersion"):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    check_namespace_of(given, namespace)
    if not given.get("name") and given.get("generateName"):
        given["name"] = given["generateName"] + "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))
    metadata: Object = {"name": given.get("name")}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata |= {"uid": str(uuid.uuid4()), "resourceVersion": ""}
    if resource.generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = cluster.now()
    unwanted = {*metadata, "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"}
    metadata |= {key: value for key, value in given.items() if key not in unwanted}
    drop_empty(metadata)
    stored = creation.stored_as(resource)
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion", "metadata")}
    return {"kind": stored.kind, "apiVersion": stored.api_version, "metadata": metadata, **rest}


def check_kind(resource: Resource, obj: Object) -> None:
    """Refuse a body of another kind than the path's; without kind it is the path's."""
    kind, version = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
    if kind != resource.kind or version != resource.api_version:
        expected = f"{resource.api_version}, Kind={resource.kind}"
        raise status.bad_request(
            f"the object provided is unrecognized: got {version}, Kind={kind}, expected {expected}"
        )


def check_namespace_of(metadata: Object, namespace: str | None) -> None:
    """Refuse a body whose namespace is not the path's."""
    given = metadata.get("namespace")
    if namespace is not None and given and given != namespace:
        text = "the namespace of the provided object does not match the namespace sent on the request"
        raise status.bad_request(text)


def drop_empty(metadata: Object) -> None:
    """Remove what a real server leaves out: empty labels and the like."""
    for key in _DROPPED_WHEN_EMPTY:
        if key in metadata and not metadata[key]:
            del metadata[key]


def _prepare(cluster: Cluster, resource: Resource, obj: Object) -> list[Cause]:
    if resource.storage == PODS:
        return _prepare_pod(cluster, obj)
    if resource.storage == storage.CLAIMS:
        return storage.default_claim(obj, [one.decoded() for one in _all(cluster, storage.CLASSES)])
    if resource.storage in _COMPLETED:
        return _COMPLETED[resource.storage](obj)
    if resource.storage == NODES:
        creation.default_node(obj)
    elif resource.storage == NAMESPACES:
        creation.default_namespace(obj)
    elif resource.storage in _WORKLOADS:
        creation.default_workload(obj)
        obj["status"] = {}
    elif resource.has_status:
        obj["status"] = {}
    return []


def _prepare_pod(cluster: Cluster, pod: Object) -> list[Cause]:
    spec = pod["spec"] = section(pod, "spec")
    causes = pods.spec_causes(spec)
    if causes:
        return causes
    if cluster.admission:
        give_account(cluster.store, pod["metadata"]["namespace"], pod)
    pods.default_spec(spec)
    unknown = pods.admit(spec, _priorities(cluster))
    if unknown is not None:
        why = f"no PriorityClass with name {unknown} was found"
        raise status.forbidden("", "pods", pod["metadata"].get("name") or "", why)
    if topology := topology_of(cluster.store, spec.get("nodeName") or ""):
        pod["metadata"]["labels"] = section(pod["metadata"], "labels") | topology
    pod["status"] = pods.initial_status(spec, cluster.now())
    return []


def _priorities(cluster: Cluster) -> dict[str, int]:
    classes = _all(cluster, PRIORITY_CLASSES)
    return _SYSTEM_PRIORITIES | {entry.name: int(entry.decoded().get("value") or 0) for entry in classes}


def _all(cluster: Cluster, stored: tuple[str, str]) -> Iterable[Entry]:
    return cluster.store.collection(stored).entries.values()
