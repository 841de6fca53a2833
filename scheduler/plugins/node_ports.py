"""NodePorts: a host port is used once per protocol and address; 0.0.0.0 (or none) means every address."""

from collections.abc import Collection, Sequence

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.node_columns import NodeColumns
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.host_ports import HostPorts, PortRequest
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.steps import Steps
from scheduler.plugins.interface import DryRun, DryRunPlugin, PreFilterExtensions, Texts, UsageFilter, UsageFilterPlugin

_NAME = "NodePorts"
_REASONS = ("node(s) didn't have free ports for the requested pod ports",)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    if not pod_info.ports:
        return None
    request = PortRequest(pod_info.ports)
    return UsageFilter(lambda view: view.judge(nodes.ports, request.clash), lambda _: _REASONS)


class _UsedPorts(PreFilterExtensions):
    """The host ports of a node's pods, by pod."""

    def __init__(self, request: HostPorts, assigned_pods: Collection[AssignedPod]) -> None:
        self._request = PortRequest(request)
        self._ports_of_pod = {
            assigned_pod.uid: assigned_pod.ports for assigned_pod in assigned_pods if assigned_pod.ports
        }

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned_pod in assigned_pods:
            self._ports_of_pod.pop(assigned_pod.uid, None)
            if sign > 0 and assigned_pod.ports:
                self._ports_of_pod[assigned_pod.uid] = assigned_pod.ports

    def filter(self) -> Texts:
        return _REASONS if self._request.clash(self._ports_of_pod.values()) else ()


def dry_run(pod_info: PodInfo, cache: Cache, _: Steps) -> DryRun | None:
    if not pod_info.ports:
        return None
    return DryRun(lambda row, _: _UsedPorts(pod_info.ports, cache.assigned_pods_on(cache.nodes.names[row])))


FILTER = UsageFilterPlugin(_NAME, pre_filter, ClusterEvent.PORTS_FREED)
DRY_RUN = DryRunPlugin(_NAME, dry_run)
