"""Topology spread constraints of a pod, and what services and controllers select, for the default constraints.

Source: KEP-895, KEP-1258 (defaults), KEP-3022 (minDomains), KEP-3094 (policies), KEP-3243 (matchLabelKeys).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.parsing import shorten
from scheduler.kube.objects import Pod, SpreadConstraint
from scheduler.kube.selecting_objects import ReplicaSet, ReplicationController, Service, StatefulSet
from scheduler.kube.selection.selectors import (
    EVERYTHING,
    MOST_EXPRESSIONS,
    NOTHING,
    Selector,
    expressions_of,
    read_selector,
    select_labels,
)

_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"
# Each is counted over all nodes, and its selector is compared with every pod.
MOST_CONSTRAINTS = 64
# Controllers whose selectors are read; kinds of the same name in other API groups are not.
_API_VERSIONS: Mapping[str, str] = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


@dataclass(frozen=True, slots=True)
class TopologySpreadConstraint:
    """Over the domains of the node label ``key``, numbers of selected pods may differ by ``max_skew``.

    ``hard`` is DoNotSchedule, otherwise ScheduleAnyway. With fewer than ``min_domains`` domains the minimum counts as
    0. Nodes that the pod's node affinity excludes do not count if ``honor_affinity``, and nodes with untolerated taints
    do not if ``honor_taints``.
    """

    key: str
    max_skew: int
    hard: bool
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


def read_constraints(pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
    """Return a pod's own constraints; raise ValueError for a malformed one."""
    constraints = pod.spec.topology_spread_constraints or ()
    if len(constraints) > MOST_CONSTRAINTS:
        raise ValueError(f"{len(constraints)} topology spread constraints exceed the limit of {MOST_CONSTRAINTS}")
    if (expressions := sum(expressions_of(constraint.label_selector) for constraint in constraints)) > MOST_EXPRESSIONS:
        rule = f"{expressions} expressions exceed the limit of {MOST_EXPRESSIONS}"
        raise ValueError(f"topology spread constraints: {rule}")
    return tuple(_read(constraint, pod.metadata.labels or {}) for constraint in constraints)


class DefaultSelectors:
    """The selectors of services, replication controllers, replica sets and stateful sets, by namespace and name."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Selector]] = {}
        self._controllers: dict[str, dict[tuple[str, str], Selector]] = {}

    def put_service(self, service: Service) -> None:
        """Record a service, which selects nothing without a selector; raise ValueError if its selector is too large."""
        services = self._services.setdefault(service.metadata.namespace, {})
        if service.spec.selector is None:
            services.pop(service.metadata.name, None)
        else:
            services[service.metadata.name] = select_labels(service.spec.selector)

    def remove_service(self, namespace: str, name: str) -> None:
        self._services.get(namespace, {}).pop(name, None)

    def put_controller(self, controller: ReplicationController | ReplicaSet | StatefulSet) -> None:
        """Record a controller; raise ValueError for a malformed selector."""
        if isinstance(controller, ReplicationController):
            selector = select_labels(controller.spec.selector or {})
        else:
            selector = read_selector(controller.spec.selector)
        key = type(controller).__name__, controller.metadata.name
        self._controllers.setdefault(controller.metadata.namespace, {})[key] = selector

    def remove_controller(self, namespace: str, kind: str, name: str) -> None:
        self._controllers.get(namespace, {}).pop((kind, name), None)

    def selector_of(self, pod: Pod) -> Selector | None:
        """Return the combined selector of a pod's services and its controller; None if there is none."""
        if not pod.metadata.owner_references and not self._services.get(pod.metadata.namespace):
            return None
        labels, namespace, owner = pod.metadata.labels or {}, pod.metadata.namespace, pod.metadata.controller
        selectors = [service for service in self._services.get(namespace, {}).values() if service.matches(labels)]
        if owner is not None and owner.api_version == _API_VERSIONS.get(owner.kind):
            selectors.append(self._controllers.get(namespace, {}).get((owner.kind, owner.name), NOTHING))
        # Made canonical once: a namespace may have thousands of services.
        combined_selector = EVERYTHING.narrow(*[selector for selector in selectors if not selector.nothing])
        return None if combined_selector == EVERYTHING else combined_selector


def _read(constraint: SpreadConstraint, labels: dict[str, str]) -> TopologySpreadConstraint:
    if not constraint.topology_key:
        raise ValueError("topology spread constraint: topologyKey is missing")
    if constraint.when_unsatisfiable not in (_HARD, _SOFT):
        policy = shorten(constraint.when_unsatisfiable)
        raise ValueError(f"topology spread constraint: whenUnsatisfiable {policy} is neither {_HARD!r} nor {_SOFT!r}")
    min_domains = 1 if constraint.min_domains is None else constraint.min_domains
    for field, value in (("maxSkew", constraint.max_skew), ("minDomains", min_domains)):
        if value < 1:
            raise ValueError(f"topology spread constraint: {field} {value} is not greater than 0")
    affinity_policy, taints_policy = constraint.node_affinity_policy, constraint.node_taints_policy
    for field, choice in (("nodeAffinityPolicy", affinity_policy), ("nodeTaintsPolicy", taints_policy)):
        if choice not in (None, "Honor", "Ignore"):
            raise ValueError(f"topology spread constraint: {field} {shorten(choice)} is neither 'Honor' nor 'Ignore'")
    return TopologySpreadConstraint(
        constraint.topology_key,
        constraint.max_skew,
        constraint.when_unsatisfiable == _HARD,
        read_selector(constraint.label_selector).with_labels(constraint.match_label_keys or (), (), labels),
        min_domains,
        honor_affinity=affinity_policy != "Ignore",
        honor_taints=taints_policy == "Honor",
    )
