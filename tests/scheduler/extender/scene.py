"""A machine that is the extender of a kube-scheduler, what a test does to it, and the verbs of its stories."""

from typing import Any

from scheduler.cycle.decisions import Bind
from scheduler.extender.bound_without_vfs import NO_BIND_VERB
from scheduler.extender.extender_pods import Verdict
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.kube.pod_info import PodInfo
from tests.scheduler import scene
from tests.scheduler.group_life import as_bound, changed

NOW = 1000.0

FOREIGN = {"schedulerName": "default-scheduler"}

FULL = "not enough free RDMA VFs"


class Scene(scene.Scene):
    """A machine, and pods with one VF each, of kube-scheduler unless their ``schedulerName`` says otherwise."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.now = NOW
        self.extender_pods = self.machine.extender_pods
        self.decisions: dict[str, Bind] = {}

    def come(self, *pods: str, **fields: str) -> None:
        super().come(*pods, **{"vfs": "1", **FOREIGN, **fields})

    def judge(self, name: str, *nodes: str) -> str:
        """Return of each node why the pod may not go there, "never" if no eviction helps."""
        verdicts = self.verdicts(self.read(self.pods[name]), *nodes)
        texts = [f"{node} {'never ' * one.for_good}{one.reason}".strip() for node, one in verdicts.items()]
        return "; ".join(texts)

    def reserve(self, name: str, node: str = "n1") -> str:
        """Reserve VFs; return why there are none."""
        found = self.extender_pods.reserve(self.read(self.pods[name]), node, self.now)
        if isinstance(found, Refused):
            return found.reason
        self.decisions[name] = found
        return ""

    def finish(self, name: str, kind: Any) -> None:
        """Let the Binding end; if it was written, let the watch show it."""
        decision = self.decisions[name]
        self.extender_pods.finish(decision, Outcome(kind), self.now)
        if kind == "bound":
            self.pods[name] = as_bound(decision)
            assert self.see(self.pods[name]) == []

    def room(self, count: str, node: str, *chosen: str) -> str:
        """Return the victims on a node for a pod with so many VFs of priority 10, if kube-scheduler has chosen some."""
        pod_info = self.pod_info([{}] * int(count), spec={"priority": 10})
        victims = Victims(tuple(self.pods[name].metadata.uid for name in chosen), 1)
        made = self.extender_pods.make_room(pod_info, node, victims, self.now)
        assert made is None or made.broken_budgets == 1
        name_of = {pod.metadata.uid: name for name, pod in self.pods.items()}
        return "no room" if made is None else " ".join(name_of[uid] for uid in made.uids)

    def asked(self, *names: str, **fields: str) -> None:
        """Show pods that kube-scheduler asks about, and then with a node and without VFs."""
        self.come(*names, **fields)
        for name in names:
            self.extender_pods.bound_without_vfs.offer(self.pods[name].metadata.uid)
            self.show(changed(self.pods[name], spec={"nodeName": "n1"}))

    def fault(self, *any_of: str) -> str:
        """Return the pod that shows that there is no bindVerb; with names, "yes" if it is one of them."""
        text = self.extender_pods.bound_without_vfs.fault
        assert not text or text.startswith(NO_BIND_VERB)
        name = text.rpartition("/")[2].rstrip(")")
        return "yes" if name in any_of else name

    # What only functions call.

    def add_node(self, name: str = "n1", vfs: int = 1, **fields: Any) -> None:
        self.show_node(name, *([self.make_pf(vfs=vfs, **fields)] if vfs else []))

    def make(self, request: object = None, **fields: Any) -> Pod:
        fields["spec"] = FOREIGN | fields.get("spec", {})
        return self.make_pod(request=[{}] if request is None else request, **fields)

    def pod_info(self, request: object = None, **fields: Any) -> PodInfo:
        return self.read(self.make(request, **fields))

    def read(self, pod: Pod) -> PodInfo:
        """Show a pod, and read it."""
        self.see(pod)
        pod_info = self.extender_pods.read(pod)
        assert isinstance(pod_info, PodInfo), pod_info
        return pod_info

    def verdicts(self, pod_info: PodInfo, *nodes: str, claimed: ClaimedDevices | None = None) -> dict[str, Verdict]:
        return dict(self.extender_pods.judge(pod_info, nodes, self.now, claimed))

    def given(self, pod_info: PodInfo, node: str = "n1") -> Bind:
        found = self.extender_pods.reserve(pod_info, node, self.now)
        assert isinstance(found, Bind), found
        return found

    def refusal(self, pod_info: PodInfo, node: str = "n1") -> str:
        found = self.extender_pods.reserve(pod_info, node, self.now)
        assert isinstance(found, Refused), found
        return found.reason
