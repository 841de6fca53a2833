"""The assigned pods: by uid, by node, and how many there are of each priority."""

from collections import Counter
from collections.abc import Collection, Mapping

from mooring.annotations.assignment import Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.row_counts import shift
from scheduler.kube.host_ports import HostPorts
from scheduler.placement.vf_accounting import Claim

_NO_PODS: Mapping[str, AssignedPod] = {}


class PodsByNode:
    """The pods of a node, by uid, are replaced and not modified when they change: snapshots share them."""

    def __init__(self) -> None:
        self.by_uid: dict[str, AssignedPod] = {}
        self._on: dict[str, Mapping[str, AssignedPod]] = {}
        self._priorities = Counter[int]()

    def snapshot(self) -> "PodsByNode":
        """Return the current pods; pods that existed before are found by their nodes only."""
        snapshot = PodsByNode()
        snapshot._on, snapshot._priorities = self._on.copy(), self._priorities.copy()
        return snapshot

    def on(self, node: str) -> Mapping[str, AssignedPod]:
        return self._on.get(node, _NO_PODS)

    def lowest_priority(self) -> int | None:
        return min(self._priorities, default=None)

    def add(self, assigned_pods: Collection[AssignedPod]) -> None:
        by_node: dict[str, dict[str, AssignedPod]] = {}
        for assigned_pod in assigned_pods:
            by_node.setdefault(assigned_pod.node, {})[assigned_pod.uid] = assigned_pod
            self.by_uid[assigned_pod.uid] = assigned_pod
            shift(self._priorities, assigned_pod.priority, 1)
        for node, pods in by_node.items():
            self._on[node] = {**self.on(node), **pods}

    def replace(self, assigned_pod: AssignedPod) -> None:
        """Replace a pod's state, but neither its node nor its priority."""
        self.by_uid[assigned_pod.uid] = assigned_pod
        self._on[assigned_pod.node] = {**self.on(assigned_pod.node), assigned_pod.uid: assigned_pod}

    def remove(self, assigned_pod: AssignedPod) -> None:
        uid, node, priority = assigned_pod.uid, assigned_pod.node, assigned_pod.priority
        self.by_uid.pop(uid, None)
        shift(self._priorities, priority, -1)
        self._on[node] = {other_uid: pod for other_uid, pod in self._on[node].items() if other_uid != uid}
        if not self._on[node]:
            del self._on[node]

    def claims(self, node: str) -> list[Claim]:
        return [claim for assigned_pod in self.on(node).values() if (claim := assigned_pod.claim) is not None]

    def assignments(self, node: str) -> list[Assignment]:
        assignments = (assigned_pod.assignment for assigned_pod in self.on(node).values())
        return [assignment for assignment in assignments if assignment is not None]

    def ports(self, node: str) -> frozenset[HostPorts]:
        return frozenset(assigned_pod.ports for assigned_pod in self.on(node).values() if assigned_pod.ports)

    def check(self) -> None:
        pods = [(node, assigned_pod) for node, on_node in self._on.items() for assigned_pod in on_node.values()]
        assert {assigned_pod.uid: assigned_pod for _, assigned_pod in pods} == self.by_uid, "pods by node differ"
        assert all(assigned_pod.node == node for node, assigned_pod in pods), "a pod is listed on another node"
        assert self._priorities == Counter(pod.priority for pod in self.by_uid.values()), "priorities are miscounted"
