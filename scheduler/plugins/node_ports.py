"""NodePorts: a host port is taken once, by protocol and address; 0.0.0.0 (or none) is every address."""

from collections.abc import Collection, Sequence

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.pod_info import HostPort, PodInfo
from scheduler.plugins.interface import (
    DryRun,
    DryRunPlugin,
    PreFilterExtensions,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
)
from scheduler.queue import ClusterEvent

_NAME = "NodePorts"
_ANY = ("", "0.0.0.0")
_REASONS = ("node(s) didn't have free ports for the requested pod ports",)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    wanted = pod_info.ports
    if not wanted:
        return None

    def clashes(taken: frozenset[HostPort]) -> int:
        return int(any(_clash(port, other) for port in wanted for other in taken))

    return UsageFilter(lambda view: view.judged(nodes.ports, clashes), lambda _: _REASONS)


def _clash(port: HostPort, other: HostPort) -> bool:
    """Return whether two ports (number, protocol, address) cannot be on one host."""
    same = port[:2] == other[:2]
    return same and (port[2] == other[2] or port[2] in _ANY or other[2] in _ANY)


class _PortsTaken(PreFilterExtensions):
    """The host ports of a node's pods, by pod."""

    def __init__(self, wanted: frozenset[HostPort], assigned_pods: Collection[AssignedPod]) -> None:
        self._wanted = wanted
        self._taken = {assigned.uid: assigned.ports for assigned in assigned_pods if assigned.ports}

    def add_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        for assigned in assigned_pods:
            self._taken[assigned.uid] = assigned.ports

    def remove_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        for assigned in assigned_pods:
            self._taken.pop(assigned.uid, None)

    def filter(self) -> Texts:
        taken = (port for ports in self._taken.values() for port in ports)
        return _REASONS if any(_clash(port, other) for other in taken for port in self._wanted) else ()


def dry_run(pod_info: PodInfo, cache: Cache) -> DryRun | None:
    if not pod_info.ports:
        return None
    return DryRun(lambda row, _: _PortsTaken(pod_info.ports, cache.assigned_pods_on(cache.nodes.names[row])))


FILTER = UsageFilterPlugin(_NAME, pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.PORTS_FREED)
DRY_RUN = DryRunPlugin(_NAME, dry_run)
