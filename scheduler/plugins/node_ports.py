"""NodePorts: a host port is taken once, by protocol and address; 0.0.0.0 (or none) is every address."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import ALL_ADDRESSES, ANY_ADDRESS, HostPort, PodInfo
from scheduler.plugins.interface import (
    DryRun,
    DryRunPlugin,
    PreFilterExtensions,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
)

_NAME = "NodePorts"
_REASONS = ("node(s) didn't have free ports for the requested pod ports",)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    if not pod_info.ports:
        return None
    clashing = _clashing(pod_info.ports)
    return UsageFilter(lambda view: view.judged(nodes.ports, partial(_clash, clashing)), lambda _: _REASONS)


def _clashing(wanted: Iterable[HostPort]) -> frozenset[HostPort]:
    """Return what nobody else may have taken for these ports to be free."""
    found = set[HostPort]()
    for number, protocol, address in wanted:
        if address == ALL_ADDRESSES:
            found.add((number, protocol, ANY_ADDRESS))
        elif address != ANY_ADDRESS:
            found |= {(number, protocol, address), (number, protocol, ALL_ADDRESSES)}
    return frozenset(found)


def _clash(clashing: frozenset[HostPort], taken: Iterable[frozenset[HostPort]]) -> bool:
    return not all(map(clashing.isdisjoint, taken))


class _UsedPorts(PreFilterExtensions):
    """The host ports of a node's pods, by pod."""

    def __init__(self, wanted: frozenset[HostPort], assigned_pods: Collection[AssignedPod]) -> None:
        self._clashing = _clashing(wanted)
        self._taken = {assigned.uid: assigned.ports for assigned in assigned_pods if assigned.ports}

    def add_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        for assigned in assigned_pods:
            self._taken[assigned.uid] = assigned.ports

    def remove_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        for assigned in assigned_pods:
            self._taken.pop(assigned.uid, None)

    def filter(self) -> Texts:
        return _REASONS if _clash(self._clashing, self._taken.values()) else ()


def dry_run(pod_info: PodInfo, cache: Cache) -> DryRun | None:
    if not pod_info.ports:
        return None
    return DryRun(lambda row, _: _UsedPorts(pod_info.ports, cache.assigned_pods_on(cache.nodes.names[row])))


FILTER = UsageFilterPlugin(_NAME, pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.PORTS_FREED)
DRY_RUN = DryRunPlugin(_NAME, dry_run)
