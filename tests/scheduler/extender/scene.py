"""A machine that is the extender of a kube-scheduler, and what a test does to it."""

from collections.abc import Sequence
from typing import Any

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.extender.extender_pods import Verdict
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.state import steps

NOW = 1000.0

FOREIGN = {"schedulerName": "default-scheduler"}

FULL = "not enough free RDMA VFs"


class Scene:
    """A machine, nodes with one PF each, and pods of kube-scheduler."""

    def __init__(self, machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod) -> None:
        self.machine = machine
        self.extender_pods = machine.extender_pods
        self._make_pf, self._make_node, self._make_pod = make_pf, make_node, make_pod

    def add_node(self, name: str = "n1", vfs: int = 1, **fields: Any) -> None:
        self.see(self._make_node(name, (self._make_pf(vfs=vfs, **fields),) if vfs else ()))

    def pod(self, request: object = None, **fields: Any) -> Pod:
        fields["spec"] = FOREIGN | fields.get("spec", {})
        return self._make_pod(request=[{}] if request is None else request, **fields)

    def own_pod(self, **fields: Any) -> Pod:
        """Show a pod of Mooring's own scheduler that requests a VF."""
        pod = self._make_pod(request=[{}], **fields)
        self.see(pod)
        return pod

    def pod_info(self, request: object = None, **fields: Any) -> PodInfo:
        return self.read(self.pod(request, **fields))

    def read(self, pod: Pod) -> PodInfo:
        """Show a pod, and read it."""
        self.see(pod)
        pod_info = self.extender_pods.read(pod)
        assert isinstance(pod_info, PodInfo), pod_info
        return pod_info

    def judge(self, pod_info: PodInfo, *nodes: str, claimed: ClaimedDevices | None = None) -> dict[str, Verdict]:
        return dict(self.extender_pods.judge(pod_info, nodes, NOW, claimed))

    def reserve(self, pod_info: PodInfo, node: str = "n1") -> Bind:
        found = self.extender_pods.reserve(pod_info, node, NOW)
        assert isinstance(found, Bind), found
        return found

    def refusal(self, pod_info: PodInfo, node: str = "n1") -> str:
        found = self.extender_pods.reserve(pod_info, node, NOW)
        assert isinstance(found, Refused), found
        return found.reason

    def make_room(self, count: int, node: str, *chosen: Pod) -> tuple[str, ...] | None:
        """Return the victims on a node for a pod with so many VFs of priority 10, if kube-scheduler has chosen some."""
        pod_info = self.pod_info([{}] * count, spec={"priority": 10})
        victims = Victims(tuple(pod.metadata.uid for pod in chosen), 1)
        made = self.extender_pods.make_room(pod_info, node, victims, NOW)
        assert made is None or made.broken_budgets == 1
        return None if made is None else made.uids

    def see(self, item: Pod | Node) -> list[Instruction]:
        return steps.take_in(self.machine, item, now=NOW)

    def lose(self, pod: Pod) -> None:
        steps.remove(self.machine, pod, NOW)

    def bound_without_vfs(self, *, is_offered: bool, **fields: Any) -> Pod:
        """Show a pod with a node and without VFs; ``is_offered`` if kube-scheduler has asked about it."""
        pod = self.pod(node="n1", spec={"nodeName": "n1"}, **fields)
        if is_offered:
            self.extender_pods.bound_without_vfs.offer(pod.metadata.uid)
        self.see(pod)
        return pod

    def assigned(self, node: str, vfs: Sequence[int], priority: int = 0, **spec: Any) -> Pod:
        """Show an assigned pod with these VFs of its node's PF."""
        pod = self.pod(node=node, spec={"nodeName": node, "priority": priority, **spec})
        pf = self._make_pf(vfs=64)
        given = tuple(AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network) for vf in vfs)
        assignment = Assignment(uid=pod.metadata.uid, node=node, vfs=given)
        pod.metadata.annotations = pod.annotations | {names.ASSIGNMENT: dump_assignment(assignment)}
        self.see(pod)
        return pod

    def member(self, node: str, vfs: Sequence[int], group: str) -> Pod:
        """Show an assigned member of a group."""
        pod = self.assigned(node, vfs)
        pod.metadata.annotations = pod.annotations | {names.GROUP: group}
        self.see(pod)
        return pod

    def try_group(self) -> list[str]:
        """Begin to decide about a group that will not fit on 18 nodes; return the nodes where members are tried."""
        for _ in range(20):
            self.own_pod(annotations={names.GROUP: '{"name":"train","min":20}'})
        assert self.machine.step(NOW) == []
        assert not [one for one in self.machine.cache.assigned_pods() if one.assumed]
        return [f"n{number}" for number in range(16)]
