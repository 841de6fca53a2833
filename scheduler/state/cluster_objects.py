"""What else the API holds that decisions read: namespaces' labels, what services and controllers select, budgets.

Objects that cannot be read are left out: they select nothing, and what they say stops no pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from scheduler.cache.pod_counts import Census
from scheduler.cycle.disruption_budgets import Budgets
from scheduler.kube.objects import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduler.queue import NOTHING, Happening

Surrounding = Namespace | Service | ReplicationController | ReplicaSet | StatefulSet | PodDisruptionBudget
PATHS: Mapping[type[Surrounding], str] = {
    Namespace: "/api/v1/namespaces",
    Service: "/api/v1/services",
    ReplicationController: "/api/v1/replicationcontrollers",
    ReplicaSet: "/apis/apps/v1/replicasets",
    StatefulSet: "/apis/apps/v1/statefulsets",
    PodDisruptionBudget: "/apis/policy/v1/poddisruptionbudgets",
}


@dataclass(slots=True)
class Surroundings:
    """Keeps a census's namespaces and selectors, and the budgets, as the watches tell.

    What is left out is told with its reason.
    """

    census: Census
    budgets: Budgets = field(default_factory=Budgets)
    _known: dict[type[Surrounding], set[tuple[str, str]]] = field(default_factory=dict)

    def take(self, kind: type[Surrounding], event: Event[Surrounding]) -> tuple[Happening, list[tuple[Identity, str]]]:
        """Return what this can help with, and which objects are left out and why."""
        match event:
            case Synced(entries):
                helps, left_out = self.keep(kind, [entry.identity for entry in entries]), []
                for entry in entries:
                    helped, unread = self.take(kind, entry)
                    helps |= helped
                    left_out += unread
                return helps, left_out
            case Changed(identity, item):
                return self._put(kind, identity, item)
            case Unreadable(identity, why):
                return self._remove(kind, identity), [(identity, why)]
            case Removed(identity):
                return self._remove(kind, identity), []

    def keep(self, kind: type[Surrounding], there: Iterable[Identity]) -> Happening:
        """Take it that there are no objects of this kind but these; return what that can help with."""
        helps = NOTHING
        kept = {(identity.namespace, identity.name) for identity in there}
        for namespace, name in sorted(self._known.get(kind, set()) - kept):
            helps |= self._remove(kind, Identity(name, namespace))
        return helps

    def _put(
        self, kind: type[Surrounding], identity: Identity, item: Surrounding
    ) -> tuple[Happening, list[tuple[Identity, str]]]:
        self._known.setdefault(kind, set()).add((identity.namespace, identity.name))
        match item:
            case Namespace():
                changed = self.census.put_namespace(item.metadata.name, item.metadata.labels or {})
                return (Happening.NAMESPACE if changed else NOTHING), []
            case Service():
                self.census.selecting.put_service(item)
            case _:
                try:
                    self._put_selecting(item)
                except ValueError as unreadable:
                    return self._remove(kind, identity), [(identity, str(unreadable))]
        # What selects pods spreads them as a wish only: it refuses no node, so that it can help no pod. No more does
        # a budget: it says who goes rather than another.
        return NOTHING, []

    def _put_selecting(self, item: ReplicationController | ReplicaSet | StatefulSet | PodDisruptionBudget) -> None:
        if isinstance(item, PodDisruptionBudget):
            self.budgets.put(item)
        else:
            self.census.selecting.put_controller(item)

    def _remove(self, kind: type[Surrounding], identity: Identity) -> Happening:
        self._known.get(kind, set()).discard((identity.namespace, identity.name))
        if kind is Namespace:
            self.census.remove_namespace(identity.name)
            # A namespace that is gone may have been the one that an anti-affinity spoke of.
            return Happening.NAMESPACE
        if kind is PodDisruptionBudget:
            self.budgets.remove(identity.namespace, identity.name)
        elif kind is Service:
            self.census.selecting.remove_service(identity.namespace, identity.name)
        else:
            self.census.selecting.remove_controller(identity.namespace, kind.__name__, identity.name)
        return NOTHING
