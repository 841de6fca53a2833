"""What every verb works on: the store, the kinds, the clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from devcluster.apiserver import status
from devcluster.apiserver.access.identity import Tokens
from devcluster.apiserver.kinds.resources import Catalog, Resource
from devcluster.apiserver.objects import timestamp
from devcluster.apiserver.status import ApiError
from devcluster.apiserver.store.store import Collection, Entry, Store

NAMESPACES = ("", "namespaces")
NODES = ("", "nodes")
PODS = ("", "pods")
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
PRIORITY_CLASSES = ("scheduling.k8s.io", "priorityclasses")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state of a server; ``admission`` is true if the plugins of `devcluster.apiserver.access.admission` are on."""

    store: Store
    catalog: Catalog
    clock: Callable[[], datetime]
    tokens: Tokens = field(default_factory=Tokens)
    admission: bool = False

    def now(self) -> str:
        """Return the time as in metadata."""
        return timestamp(self.clock())

    def collection(self, resource: Resource) -> Collection:
        """Return the objects of a kind."""
        return self.store.collection(resource.storage)

    def existing(self, resource: Resource, namespace: str | None, name: str) -> Entry:
        """Return an object; raise 404."""
        entry = self.store.get(resource.storage, namespace or "", name)
        if entry is None:
            raise status.not_found(resource.group, resource.plural, name)
        return entry

    def missing(self, group: str | None) -> ApiError:
        """Return the 404 of an unknown path; `group` is the API group that it is below, None for none."""
        return status.no_such_path() if group in self.catalog.groups() else status.NoSuchPageError()

    def terminating(self, namespace: str) -> bool:
        """Return whether a namespace is being deleted."""
        entry = self.store.get(NAMESPACES, "", namespace)
        return entry is not None and entry.fields.get("status.phase") == "Terminating"
