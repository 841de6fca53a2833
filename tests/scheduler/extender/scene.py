"""A machine that is the extender of a kube-scheduler, and what a test does to it."""

from collections.abc import Sequence
from typing import Any

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.extender.extender_pods import Verdict
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod

NOW = 1000.0

FOREIGN = {"schedulerName": "default-scheduler"}

FULL = "not enough free RDMA VFs"


class Scene:
    """A machine, nodes with one PF each, and pods of kube-scheduler."""

    def __init__(self, machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod) -> None:
        self.machine = machine
        self.extender_pods = machine.extender_pods
        self._make_pf, self._make_node, self._make_pod = make_pf, make_node, make_pod

    def add_node(self, name: str, vfs: int = 1, **fields: Any) -> None:
        node = self._make_node(name, (self._make_pf(vfs=vfs, **fields),) if vfs else ())
        self.machine.nodes(Changed(Identity("", name, "", ""), node), NOW)

    def pod(self, request: object = None, **fields: Any) -> Pod:
        fields["spec"] = FOREIGN | fields.get("spec", {})
        return self._make_pod(request=[{}] if request is None else request, **fields)

    def pod_info(self, request: object = None, **fields: Any) -> PodInfo:
        pod = self.pod(request, **fields)
        self.see(pod)
        pod_info = self.extender_pods.read(pod)
        assert isinstance(pod_info, PodInfo), pod_info
        return pod_info

    def judge(self, pod_info: PodInfo, *nodes: str) -> dict[str, Verdict]:
        return dict(self.extender_pods.judge(pod_info, nodes, NOW))

    def reserve(self, pod_info: PodInfo, node: str = "n1") -> Bind:
        found = self.extender_pods.reserve(pod_info, node, NOW)
        assert isinstance(found, Bind), found
        return found

    def see(self, pod: Pod) -> list[Instruction]:
        meta = pod.metadata
        return self.machine.pods(Changed(Identity(meta.namespace, meta.name, meta.uid, ""), pod), NOW)

    def lose(self, pod: Pod) -> None:
        meta = pod.metadata
        self.machine.pods(Removed(Identity(meta.namespace, meta.name, meta.uid, "")), NOW)

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
