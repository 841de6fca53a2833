"""Replace or patch an object or its status: check the caller's version, keep the server's own fields, write."""

from collections.abc import Callable
from typing import Any

from devcluster.apiserver import status
from devcluster.apiserver.access.admission import check_policies
from devcluster.apiserver.cluster import NODES, PODS, Cluster
from devcluster.apiserver.kinds import creation, pods, storage
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.kinds.validation import metadata_causes
from devcluster.apiserver.objects import Object, metadata_of, section
from devcluster.apiserver.status import ApiError, Cause
from devcluster.apiserver.store.store import Entry
from devcluster.apiserver.verbs import strategic
from devcluster.apiserver.verbs.create import check_kind, check_namespace_of, create, drop_empty
from devcluster.apiserver.verbs.delete import settle
from devcluster.apiserver.verbs.patch import apply_operations, merge, same

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"

# The server's own fields: whatever an update contains, the stored values stay.
_SERVERS_OWN = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "generateName"),
)


def replace(
    cluster: Cluster,
    resource: Resource,
    subresource: str | None,
    key: tuple[str | None, str],
    obj: Object,
    dry_run: bool,
) -> tuple[Entry, bool]:
    """PUT: return the object and whether it is new; `key` is namespace and name."""
    namespace, name = key
    _check_name(obj, name)
    entry = cluster.store.get(resource.storage, namespace or "", name)
    if entry is None and resource.upserts and subresource is None:
        metadata_of(obj)["name"] = name
        return create(cluster, resource, namespace, obj, dry_run), True
    if entry is None:
        raise status.not_found(resource.group, resource.plural, name)
    _check_precondition(resource, entry, obj)
    if not resource.unconditional and not metadata_of(obj).get("resourceVersion"):
        rule = "Invalid value: 0: must be specified for an update"
        cause = Cause("FieldValueInvalid", rule, "metadata.resourceVersion")
        raise status.invalid(resource.group, resource.kind, name, [cause])
    return _write(cluster, resource, subresource, entry, obj, dry_run), False


def patch(
    cluster: Cluster,
    resource: Resource,
    subresource: str | None,
    key: tuple[str | None, str],
    change: Callable[[Object], Object],
    dry_run: bool,
) -> Entry:
    """PATCH: apply `change` to the object as it is now and return the result."""
    entry = cluster.existing(resource, *key)
    current = creation.from_stored(resource, entry.decoded())
    return _write(cluster, resource, subresource, entry, change(current), dry_run)


def patcher(resource: Resource, content_type: str, body: Any) -> Callable[[Object], Object]:
    """Return the function that applies a patch of this type; raise 415 for other types and for server-side apply."""
    if content_type == MERGE:
        if not isinstance(body, dict):
            raise status.bad_request("a merge patch must be an object")
        return lambda current: merge(current, body)
    if content_type == OPERATIONS:
        return lambda current: apply_operations(current, body)
    if content_type == STRATEGIC and not resource.learnt:
        return lambda current: strategic.strategic_merge(resource.kind, current, body)
    accepted = (OPERATIONS, MERGE) if resource.learnt else (OPERATIONS, MERGE, STRATEGIC)
    raise status.unsupported_media_type(content_type, accepted)


def _write(
    cluster: Cluster, resource: Resource, subresource: str | None, entry: Entry, given: Object, dry_run: bool
) -> Entry:
    old = entry.decoded()
    check_kind(resource, given)
    _check_identity(resource, entry, given)
    new = _allowed_part(resource, subresource, old, creation.to_stored(resource, given))
    new["metadata"] = _metadata(old["metadata"], new["metadata"])
    causes = [*_uid_causes(entry, given), *metadata_causes(resource.kind, new["metadata"])]
    causes += _prepare(resource, subresource, old, new)
    if causes:
        raise status.invalid(resource.group, resource.kind, entry.name, causes)
    if same(old, new):
        return entry
    if cluster.admission:
        check_policies(cluster.store, resource, subresource, "UPDATE", new, old)
    if resource.generation and _substance(old) != _substance(new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    return settle(cluster, resource, new, dry_run)


def _check_name(given: Object, name: str) -> None:
    found = metadata_of(given).get("name")
    if found not in (name, None):
        raise status.bad_request(f"the name of the object ({found}) does not match the name on the URL ({name})")


def _check_precondition(resource: Resource, entry: Entry, given: Object) -> None:
    """Check the uid of a PUT as a precondition; in a PATCH another uid is a change of a fixed field."""
    uid = metadata_of(given).get("uid")
    if uid not in (None, "", entry.uid):
        why = status.failed_precondition(resource.plural, entry.namespace, entry.name, "UID", uid, entry.uid)
        raise status.conflict(resource.group, resource.plural, entry.name, why)


def _check_identity(resource: Resource, entry: Entry, given: Object) -> None:
    metadata = metadata_of(given)
    check_namespace_of(metadata, entry.namespace or None)
    _check_name(given, entry.name)
    version = metadata.get("resourceVersion") or str(entry.revision)
    if not str(version).isdigit():
        raise ApiError(500, "", status.unparsed(version))
    if version != str(entry.revision):
        raise status.conflict(resource.group, resource.plural, entry.name, status.STALE)


def _uid_causes(entry: Entry, given: Object) -> list[Cause]:
    uid = metadata_of(given).get("uid")
    fixed = f'Invalid value: "{uid}": field is immutable'
    return [] if uid in (None, "", entry.uid) else [Cause("FieldValueInvalid", fixed, "metadata.uid")]


def _allowed_part(resource: Resource, subresource: str | None, old: Object, given: Object) -> Object:
    head = {"kind": old["kind"], "apiVersion": old["apiVersion"]}
    if subresource == "status":
        metadata = old["metadata"] if resource.learnt else given["metadata"]
        return {**old, "metadata": metadata, "status": section(given, "status")}
    rest = {key: value for key, value in given.items() if key not in ("kind", "apiVersion", "status")}
    if not resource.has_status:
        return {**head, **rest, **({"status": given["status"]} if "status" in given else {})}
    return {**head, **rest, **({"status": old["status"]} if "status" in old else {})}


def _metadata(old: Object, given: Object) -> Object:
    kept = {key: old[key] for key in _SERVERS_OWN if key in old}
    changed = {key: value for key, value in given.items() if key not in (*_SERVERS_OWN, "managedFields", "selfLink")}
    metadata = {**kept, **{key: value for key, value in changed.items() if value is not None}}
    drop_empty(metadata)
    return metadata


def _prepare(resource: Resource, subresource: str | None, old: Object, new: Object) -> list[Cause]:
    if resource.storage == PODS and subresource is None:
        spec = new["spec"] = section(new, "spec")
        causes = pods.spec_causes(spec)
        if causes:
            return causes
        pods.default_spec(spec)
        return pods.update_causes(old["spec"], spec)
    if resource.storage == NODES:
        creation.complete_node(new)
    return storage.update_causes(resource.storage, old, new) if subresource is None else []


def _substance(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
