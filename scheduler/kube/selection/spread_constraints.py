"""Topology spread constraints of a pod, and the replicas of its controller, for the default constraints.

Source: KEP-895, KEP-1258 (defaults), KEP-3022 (minDomains), KEP-3094 (policies), KEP-3243 (matchLabelKeys).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.parsing import shorten
from scheduler.kube.objects import Pod, SpreadConstraint
from scheduler.kube.selection.selectors import (
    MOST_EXPRESSIONS,
    Selector,
    expressions_of,
    read_selector,
    select_labels,
)

_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"
_POLICIES = ("Honor", "Ignore")
# Each is counted over all nodes, and its selector is compared with every pod.
MOST_CONSTRAINTS = 64
# Controllers whose pods are spread by default; kinds of the same name in other API groups are not.
_API_VERSIONS: Mapping[str, str] = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}
# Labels in which the pods of a StatefulSet or a LeaderWorkerSet differ. Source: StatefulSetPodNameLabel, PodIndexLabel
# in k8s.io/api/apps/v1/types.go; WorkerIndexLabelKey in api/leaderworkerset/v1/leaderworkerset_types.go.
_OF_ONE_POD = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
    }
)


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


def replicas(pod: Pod) -> Selector | None:
    """Return what selects the replicas of a pod: equal labels; None if no controller with replicas owns it.

    kube-scheduler combines the selectors of the controller and of services, which would be four more watches.
    """
    owner = next((owner for owner in pod.metadata.owner_references or () if owner.controller), None)
    labels = {key: value for key, value in (pod.metadata.labels or {}).items() if key not in _OF_ONE_POD}
    if owner is None or owner.api_version != _API_VERSIONS.get(owner.kind, "") or not labels:
        return None
    return select_labels(labels)


def _read(constraint: SpreadConstraint, labels: dict[str, str]) -> TopologySpreadConstraint:
    if not constraint.topology_key:
        raise ValueError("topology spread constraint: topologyKey is missing")
    if constraint.when_unsatisfiable not in (_HARD, _SOFT):
        policy = shorten(constraint.when_unsatisfiable)
        raise ValueError(f"topology spread constraint: whenUnsatisfiable {policy} is neither {_HARD!r} nor {_SOFT!r}")
    domains = 1 if constraint.min_domains is None else constraint.min_domains
    for field, value in (("maxSkew", constraint.max_skew), ("minDomains", domains)):
        if value < 1:
            raise ValueError(f"topology spread constraint: {field} {value} is not greater than 0")
    selector = read_selector(constraint.label_selector)
    return TopologySpreadConstraint(
        constraint.topology_key,
        constraint.max_skew,
        constraint.when_unsatisfiable == _HARD,
        selector.with_labels(constraint.match_label_keys or (), (), labels),
        domains,
        _honors("nodeAffinityPolicy", constraint.node_affinity_policy, True),
        _honors("nodeTaintsPolicy", constraint.node_taints_policy, False),
    )


def _honors(field: str, policy: str | None, default: bool) -> bool:
    if policy is not None and policy not in _POLICIES:
        raise ValueError(f"topology spread constraint: {field} {shorten(policy)} is neither 'Honor' nor 'Ignore'")
    return default if policy is None else policy == "Honor"
