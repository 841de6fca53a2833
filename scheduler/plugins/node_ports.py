"""NodePorts: a host port is taken once, by protocol and address; 0.0.0.0 (or none) is every address."""

from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.pod_info import HostPort, PodInfo
from scheduler.plugins.interface import UsageFilter, UsageFilterPlugin
from scheduler.queue import ClusterEvent

_ANY = ("", "0.0.0.0")
REASONS = ("node(s) didn't have free ports for the requested pod ports",)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    wanted = pod_info.ports
    if not wanted:
        return None

    def clashes(taken: frozenset[HostPort]) -> int:
        return int(any(clash(port, other) for port in wanted for other in taken))

    return UsageFilter(lambda view: view.judged(nodes.ports, clashes), lambda _: REASONS)


def clash(port: HostPort, other: HostPort) -> bool:
    """Return whether two ports (number, protocol, address) cannot be on one host."""
    same = port[:2] == other[:2]
    return same and (port[2] == other[2] or port[2] in _ANY or other[2] in _ANY)


FILTER = UsageFilterPlugin("NodePorts", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.PORTS_FREED)
