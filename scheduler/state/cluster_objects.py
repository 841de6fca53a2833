"""Process other API objects that decisions read: namespaces' labels, the selectors of services and controllers,
budgets.

Objects that cannot be read are ignored: they select nothing, and block no pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooring.kube.events import Change, Changed, Identity
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.pod_counts import PodCounts
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.objects import RuntimeClass
from scheduler.kube.selecting_objects import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

ClusterObject = (
    Namespace | Service | ReplicationController | ReplicaSet | StatefulSet | PodDisruptionBudget | RuntimeClass
)
# Those that have to be listed before anything is decided.
PATHS: Mapping[type[ClusterObject], str] = {
    Namespace: "/api/v1/namespaces",
    Service: "/api/v1/services",
    ReplicationController: "/api/v1/replicationcontrollers",
    ReplicaSet: "/apis/apps/v1/replicasets",
    StatefulSet: "/apis/apps/v1/statefulsets",
    PodDisruptionBudget: "/apis/policy/v1/poddisruptionbudgets",
}


@dataclass(slots=True)
class ClusterObjects:
    """Updates the namespaces and selectors of pod counts, the budgets and the RuntimeClasses from the watches."""

    pod_counts: PodCounts
    nodes: NodeColumns
    budgets: Budgets = field(default_factory=Budgets)
    _keys: dict[type[ClusterObject], set[tuple[str, str]]] = field(default_factory=dict)

    def take(self, kind: type[ClusterObject], event: Change[ClusterObject]) -> tuple[ClusterEvent, str]:
        """Apply a watch event; return the events that can help pods, and why the object is ignored if it is."""
        if not isinstance(event, Changed):
            return self._remove(kind, event.identity), ""
        try:
            return self._put(kind, event.identity, event.item), ""
        except ValueError as error:
            return self._remove(kind, event.identity), str(error)

    def keep(self, kind: type[ClusterObject], identities: Iterable[Identity]) -> ClusterEvent:
        cluster_event = NO_EVENT
        keys = {(identity.namespace, identity.name) for identity in identities}
        for namespace, name in sorted(self._keys.get(kind, set()) - keys):
            cluster_event |= self._remove(kind, Identity(name, namespace))
        return cluster_event

    def _put(self, kind: type[ClusterObject], identity: Identity, item: ClusterObject) -> ClusterEvent:
        """Add or update an object; raise ValueError for a malformed selector."""
        self._keys.setdefault(kind, set()).add((identity.namespace, identity.name))
        if isinstance(item, Namespace):
            is_change = self.pod_counts.put_namespace(item.metadata.name, item.metadata.labels or {})
            return ClusterEvent.NAMESPACE if is_change else NO_EVENT
        if isinstance(item, RuntimeClass):
            is_change = self.nodes.put_runtime_class(item.metadata.name, item.handler)
            return ClusterEvent.NODE_PROGRAMS if is_change else NO_EVENT
        if isinstance(item, PodDisruptionBudget):
            self.budgets.put(item)
        elif isinstance(item, Service):
            self.pod_counts.default_selectors.put_service(item)
        else:
            self.pod_counts.default_selectors.put_controller(item)
        # A selector only spreads pods as a preference. It rejects no node, so its change can help no pod. A budget also
        # helps none: it only affects which pods are victims.
        return NO_EVENT

    def _remove(self, kind: type[ClusterObject], identity: Identity) -> ClusterEvent:
        self._keys.get(kind, set()).discard((identity.namespace, identity.name))
        if kind is Namespace:
            self.pod_counts.remove_namespace(identity.name)
            # An anti-affinity term may have named the deleted namespace.
            return ClusterEvent.NAMESPACE
        if kind is RuntimeClass:
            # A class that no longer exists rejects no pod.
            self.nodes.put_runtime_class(identity.name, None)
            return ClusterEvent.NODE_PROGRAMS
        if kind is PodDisruptionBudget:
            self.budgets.remove(identity.namespace, identity.name)
        elif kind is Service:
            self.pod_counts.default_selectors.remove_service(identity.namespace, identity.name)
        else:
            self.pod_counts.default_selectors.remove_controller(identity.namespace, kind.__name__, identity.name)
        return NO_EVENT
