"""A machine that is the extender of a kube-scheduler, what a test does to it, and the verbs of its stories."""

from collections.abc import Sequence
from typing import Any

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.events import Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.extender.bound_without_vfs import NO_BIND_VERB
from scheduler.extender.extender_pods import Verdict
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import changed_event, identity

NOW = 1000.0

FOREIGN = {"schedulerName": "default-scheduler"}

FULL = "not enough free RDMA VFs"


class Scene:
    """A machine, nodes with one PF each, and pods of kube-scheduler with one VF each; the verbs stand first."""

    def __init__(self, machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod) -> None:
        self.machine = machine
        self.extender_pods = machine.extender_pods
        self._make_pf, self._make_node, self._make_pod = make_pf, make_node, make_pod
        self.pods: dict[str, Pod] = {}
        self.decisions: dict[str, Bind] = {}

    def node(self, name: str, vfs: str = "1") -> None:
        self.add_node(name, int(vfs))

    def pod(self, name: str, priority: str = "0") -> None:
        """Show a pod of kube-scheduler."""
        self.pods[name] = self.make(name=name, spec={"priority": int(priority)})
        self.see(self.pods[name])

    def own(self, name: str, priority: str) -> str:
        """Show a pod of Mooring's own scheduler, and decide; return the node that is reserved for it."""
        self.pods[name] = self.own_pod(name=name, spec={"priority": int(priority)})
        assert self.machine.step(NOW)
        return self.machine.reservations.node_of(self.pods[name].metadata.uid) or ""

    def runs(self, name: str, node: str, vf: str, priority: str = "0", *group: str) -> None:
        """Show an assigned pod, which may be a member of a group."""
        annotations = {names.GROUP: group[0]} if group else {}
        self.pods[name] = self.assigned(node, [int(vf)], int(priority), annotations=annotations, name=name)

    def judge(self, name: str, *nodes: str) -> str:
        """Return of each node why the pod may not go there, "never" if no eviction helps."""
        verdicts = self.verdicts(self.read(self.pods[name]), *nodes)
        texts = [f"{node} {'never ' * one.for_good}{one.reason}".strip() for node, one in verdicts.items()]
        return "; ".join(texts)

    def reserve(self, name: str, node: str = "n1") -> str:
        """Reserve VFs; return why there are none."""
        found = self.extender_pods.reserve(self.read(self.pods[name]), node, NOW)
        if isinstance(found, Refused):
            return found.reason
        self.decisions[name] = found
        return ""

    def finish(self, name: str, kind: Any) -> None:
        """Let the Binding end; if it was written, let the watch show it."""
        decision = self.decisions[name]
        self.extender_pods.finish(decision, Outcome(kind), NOW)
        if kind == "bound":
            self.pods[name].spec.node_name = decision.assigned.node
            self.pods[name].metadata.annotations = self.pods[name].annotations | dict(decision.annotations)
            assert self.see(self.pods[name]) == []

    def gone(self, *pods: str) -> None:
        for name in pods:
            self.machine.pods(Removed(identity(self.pods[name])), NOW)

    def room(self, count: str, node: str, *chosen: str) -> str:
        """Return the victims on a node for a pod with so many VFs of priority 10, if kube-scheduler has chosen some."""
        pod_info = self.pod_info([{}] * int(count), spec={"priority": 10})
        victims = Victims(tuple(self.pods[name].metadata.uid for name in chosen), 1)
        made = self.extender_pods.make_room(pod_info, node, victims, NOW)
        assert made is None or made.broken_budgets == 1
        name_of = {pod.metadata.uid: name for name, pod in self.pods.items()}
        return "no room" if made is None else " ".join(name_of[uid] for uid in made.uids)

    def bound(self, name: str, namespace: str = "default") -> None:
        """Show a pod with a node and without VFs."""
        self.pods[name] = self.make(name=name, spec={"nodeName": "n1"}, metadata={"namespace": namespace})
        self.see(self.pods[name])

    def asked(self, name: str, namespace: str = "default") -> None:
        """Show a pod with a node and without VFs about which kube-scheduler had asked."""
        pod = self.make(name=name, metadata={"namespace": namespace})
        self.extender_pods.bound_without_vfs.offer(pod.metadata.uid)
        pod.spec.node_name = "n1"
        self.pods[name] = pod
        self.see(pod)

    def fault(self, *any_of: str) -> str:
        """Return the pod that shows that there is no bindVerb; with names, "yes" if it is one of them."""
        text = self.extender_pods.bound_without_vfs.fault
        assert not text or text.startswith(NO_BIND_VERB)
        name = text.rpartition("/")[2].rstrip(")")
        return "yes" if name in any_of else name

    # What only functions call.

    def add_node(self, name: str = "n1", vfs: int = 1, **fields: Any) -> None:
        self.see(self._make_node(name, (self._make_pf(vfs=vfs, **fields),) if vfs else ()))

    def make(self, request: object = None, **fields: Any) -> Pod:
        fields["spec"] = FOREIGN | fields.get("spec", {})
        return self._make_pod(request=[{}] if request is None else request, **fields)

    def own_pod(self, **fields: Any) -> Pod:
        """Show a pod of Mooring's own scheduler that requests a VF."""
        pod = self._make_pod(request=[{}], **fields)
        self.see(pod)
        return pod

    def pod_info(self, request: object = None, **fields: Any) -> PodInfo:
        return self.read(self.make(request, **fields))

    def read(self, pod: Pod) -> PodInfo:
        """Show a pod, and read it."""
        self.see(pod)
        pod_info = self.extender_pods.read(pod)
        assert isinstance(pod_info, PodInfo), pod_info
        return pod_info

    def verdicts(self, pod_info: PodInfo, *nodes: str, claimed: ClaimedDevices | None = None) -> dict[str, Verdict]:
        return dict(self.extender_pods.judge(pod_info, nodes, NOW, claimed))

    def given(self, pod_info: PodInfo, node: str = "n1") -> Bind:
        found = self.extender_pods.reserve(pod_info, node, NOW)
        assert isinstance(found, Bind), found
        return found

    def refusal(self, pod_info: PodInfo, node: str = "n1") -> str:
        found = self.extender_pods.reserve(pod_info, node, NOW)
        assert isinstance(found, Refused), found
        return found.reason

    def see(self, item: Pod | Node) -> list[Instruction]:
        return self.machine.handle(type(item), changed_event(item), NOW)

    def assigned(self, node: str, vfs: Sequence[int], priority: int = 0, **fields: Any) -> Pod:
        """Show an assigned pod with these VFs of its node's PF."""
        pod = self.make(**fields | {"spec": {"nodeName": node, "priority": priority} | fields.get("spec", {})})
        pf = self._make_pf(vfs=64)
        given = tuple(AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network) for vf in vfs)
        assignment = Assignment(uid=pod.metadata.uid, node=node, vfs=given)
        pod.metadata.annotations = pod.annotations | {names.ASSIGNMENT: dump_assignment(assignment)}
        self.see(pod)
        return pod

    def try_group(self) -> list[str]:
        """Begin to decide about a group that will not fit on 18 nodes; return the nodes where members are tried."""
        for _ in range(20):
            self.own_pod(annotations={names.GROUP: '{"name":"train","min":20}'})
        assert self.machine.step(NOW) == []
        assert not [one for one in self.machine.cache.assigned_pods() if one.assumed]
        return [f"n{number}" for number in range(16)]
