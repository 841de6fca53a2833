"""NodePorts: a host port is taken once, by protocol and address; 0.0.0.0 (or none) is every address."""

from collections.abc import Collection, Iterable, Sequence

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import HostPort, PodInfo
from scheduler.plugins.interface import (
    DryRun,
    DryRunPlugin,
    PreFilterExtensions,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
)

_NAME = "NodePorts"
_ANY = ("", "0.0.0.0")
_REASONS = ("node(s) didn't have free ports for the requested pod ports",)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    if not pod_info.ports:
        return None

    wanted_ports = _HostPorts(pod_info.ports)
    return UsageFilter(lambda view: view.judged(nodes.ports, wanted_ports.clashes), lambda _: _REASONS)


class _HostPorts:
    """The host ports of a pod by number and protocol, for comparison with many others."""

    def __init__(self, wanted: Iterable[HostPort]) -> None:
        self._addresses: dict[tuple[int, str], set[str]] = {}
        for number, protocol, address in wanted:
            self._addresses.setdefault((number, protocol), set()).add("" if address in _ANY else address)

    def clashes(self, taken: Iterable[HostPort]) -> bool:
        """Return whether any of the ports (number, protocol, address) cannot be on one host with any of these."""
        for number, protocol, address in taken:
            own = self._addresses.get((number, protocol))
            if own is not None and (address in _ANY or "" in own or address in own):
                return True
        return False


class _UsedPorts(PreFilterExtensions):
    """The host ports of a node's pods, by pod."""

    def __init__(self, wanted: frozenset[HostPort], assigned_pods: Collection[AssignedPod]) -> None:
        self._wanted = _HostPorts(wanted)
        self._taken = {assigned.uid: assigned.ports for assigned in assigned_pods if assigned.ports}

    def add_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        for assigned in assigned_pods:
            self._taken[assigned.uid] = assigned.ports

    def remove_pods(self, assigned_pods: Sequence[AssignedPod]) -> None:
        for assigned in assigned_pods:
            self._taken.pop(assigned.uid, None)

    def filter(self) -> Texts:
        return _REASONS if any(map(self._wanted.clashes, self._taken.values())) else ()


def dry_run(pod_info: PodInfo, cache: Cache) -> DryRun | None:
    if not pod_info.ports:
        return None
    return DryRun(lambda row, _: _UsedPorts(pod_info.ports, cache.assigned_pods_on(cache.nodes.names[row])))


FILTER = UsageFilterPlugin(_NAME, pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.PORTS_FREED)
DRY_RUN = DryRunPlugin(_NAME, dry_run)
