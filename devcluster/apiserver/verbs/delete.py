"""Delete an object: at once, or marked until its kubelet or its finalizers are done.

Graceful deletion: apiserver's rest.BeforeDelete. The mark is a write of its own, even if nothing is waited for: a
watcher of a pod that no node runs sees MODIFIED, then DELETED. A namespace takes its content with it, as by the
namespace controller. Dependents of an owner stay: this server has no garbage collector.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from devcluster.apiserver import status
from devcluster.apiserver.cluster import NAMESPACES, PODS, Cluster
from devcluster.apiserver.kinds import pods
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import Object, section, timestamp
from devcluster.apiserver.store.selectors import Selector
from devcluster.apiserver.store.store import Entry


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """metav1.DeleteOptions as far as they count here; grace in seconds, None for the pod's own."""

    grace: int | None = None
    uid: str | None = None
    revision: str | None = None
    dry_run: bool = False

    @classmethod
    def read(cls, body: Object, query_grace: str | None, dry_run: bool) -> "DeleteOptions":
        """Read options from the body and from the query; the query wins, as in a real server's decoder."""
        preconditions = section(body, "preconditions")
        grace: Any = body.get("gracePeriodSeconds")
        if query_grace is not None:
            try:
                grace = int(query_grace)
            except ValueError:
                raise status.bad_request(f"gracePeriodSeconds: {query_grace!r} is no integer") from None
        return cls(
            grace, preconditions.get("uid"), preconditions.get("resourceVersion"), dry_run or bool(body.get("dryRun"))
        )

    def check(self, resource: Resource, entry: Entry) -> None:
        """Raise 409 if a precondition fails; it names the kind, not the plural."""
        wanted = (
            ("UID", self.uid, entry.uid, "deleted and then recreated"),
            ("ResourceVersion", self.revision, str(entry.revision), "modified"),
        )
        for what, expected, actual, perhaps in wanted:
            if expected is not None and expected != actual:
                differ = f"the {what} in the precondition ({expected}) does not match the {what} in record ({actual})"
                why = f"{differ}. The object might have been {perhaps}"
                raise status.conflict(resource.group, resource.kind, entry.name, why)


def delete(cluster: Cluster, resource: Resource, entry: Entry, options: DeleteOptions) -> tuple[Entry, bool]:
    """Return the object's last or current state and whether it is gone; raise 409 if a precondition fails."""
    options.check(resource, entry)
    if resource.storage == NAMESPACES:
        return _delete_namespace(cluster, resource, entry, options.dry_run)
    obj = entry.decoded()
    if not _mark(obj, resource, options.grace, cluster.clock()):
        return entry, False
    gone = not _waits(obj["metadata"])
    if options.dry_run:
        return cluster.store.preview(resource.storage, obj, 0), gone
    if "deletionTimestamp" in obj["metadata"]:
        entry = cluster.store.put(resource.storage, obj)
    return (_remove(cluster, resource, entry), True) if gone else (entry, False)


def settle(cluster: Cluster, resource: Resource, obj: Object, dry_run: bool) -> Entry:
    """Write an updated object, or remove it if this update removed the last finalizer.

    Then the update itself is not written: watchers see the object as it was, finalizers included.
    """
    if dry_run:
        return cluster.store.preview(resource.storage, obj, 0)
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or _waits(metadata):
        return cluster.store.put(resource.storage, obj)
    _remove(cluster, resource, cluster.existing(resource, metadata.get("namespace"), metadata["name"]))
    return cluster.store.preview(resource.storage, obj, 0)


def _remove(cluster: Cluster, resource: Resource, entry: Entry) -> Entry:
    removed = cluster.store.remove(resource.storage, entry.decoded())
    if cluster.terminating(entry.namespace):
        _end_namespace(cluster, entry.namespace)
    return removed


def _mark(obj: Object, resource: Resource, asked: int | None, now: datetime) -> bool:
    """Write the deletion's deadline into the metadata; return False if a deletion under way is not shortened."""
    metadata = obj["metadata"]
    marked = "deletionTimestamp" in metadata
    present = metadata.get("deletionGracePeriodSeconds", 0)
    if marked and present and (asked is None or asked >= present):
        return False
    if marked and not present and metadata.get("finalizers"):
        return False
    if resource.storage == PODS:
        grace = pods.grace_seconds(obj, asked)
    elif metadata.get("finalizers"):
        grace = 0
    else:
        return True
    metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
    metadata["deletionGracePeriodSeconds"] = grace
    if not marked and "generation" in metadata:
        metadata["generation"] += 1
    return True


def _waits(metadata: Object) -> bool:
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))


def _delete_namespace(cluster: Cluster, resource: Resource, entry: Entry, dry_run: bool) -> tuple[Entry, bool]:
    namespace = entry.decoded()
    namespace["metadata"].setdefault("deletionTimestamp", cluster.now())
    namespace["status"] = {**section(namespace, "status"), "phase": "Terminating"}
    if dry_run:
        return cluster.store.preview(NAMESPACES, namespace, 0), False
    marked = cluster.store.put(NAMESPACES, namespace)
    for kind in {one.storage: one for one in cluster.catalog if one.namespaced}.values():
        for content in cluster.collection(kind).select(Selector(entry.name)):
            delete(cluster, kind, content, DeleteOptions())
    _end_namespace(cluster, entry.name)
    return marked, cluster.store.get(resource.storage, "", entry.name) is None


def _end_namespace(cluster: Cluster, name: str) -> None:
    """Remove a terminating namespace that is empty."""
    entry = cluster.store.get(NAMESPACES, "", name)
    inside = Selector(name)
    if entry is not None and not any(one.select(inside) for one in cluster.store.collections().values()):
        cluster.store.remove(NAMESPACES, entry.decoded())
