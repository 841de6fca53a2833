"""Stories of Bindings: pods by name that want a VF each, the decisions about them, and the API server's answers."""

from typing import Any

from mooring import names
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from mooring.kube.events import Synced
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from tests.scheduler.group_life import as_bound, binds, changed, changed_event, claiming
from tests.scheduler.reference.messages import refusal
from tests.scheduler.state.life import Life
from tests.scheduler.state.steps import annotated, notices


class Bindings:
    """The verbs of the stories; a Bind stays in progress until ``answer``."""

    def __init__(self, life: Life) -> None:
        self.life, self.machine = life, life.machine
        self.pods: dict[str, Pod] = {}
        self.decisions: dict[str, Bind] = {}

    def at(self, now: str) -> None:
        self.life.now = float(now)

    def node(self, name: str = "n1", vfs: str = "1") -> None:
        """Show a node; without VFs, also without an inventory."""
        pfs = (self.life.make_pf(vfs=int(vfs)),) if vfs != "0" else ()
        self.life.see(self.life.make_node(name, pfs, labels={"vfs": vfs}))

    def lose(self, name: str) -> None:
        self.life.remove_node(name)

    def hold(self, name: str) -> None:
        """Let the ledger of n1 hold VF 0 for a pod."""
        out = Out(Indexes.of([0]), f"held by pod {self.pods[name].metadata.uid}", min_tx_rate=5000)
        self.life.see(self.life.n1(vfs=1, out=(out,)))

    def pod(self, name: str, request: str = "[{}]") -> None:
        """Show a pod, new or with another request; its namespace is what stands before a slash."""
        namespace = name.rpartition("/")[0] or "default"
        annotations = {names.REQUEST: request} if request != "none" else {}
        if name in self.pods:
            self.pods[name] = annotated(self.pods[name], annotations)
        else:
            self.pods[name] = self.life.make_pod(name, annotations=annotations, metadata={"namespace": namespace})
        self.life.see(self.pods[name])

    def member(self, name: str) -> None:
        """Show a member of a group of at least two in the namespace bad."""
        group = {names.GROUP: '{"name":"g","min":2}'}
        self.pods[name] = self.life.make_pod(name, [{}], annotations=group, metadata={"namespace": "bad"})
        self.life.see(self.pods[name])

    def claim(self, name: str, vf: str) -> None:
        """Show a pod on n1 that claims a VF."""
        self.pods[name] = claiming(self.life.make_pod(name, node="n1"), int(vf))
        self.life.see(self.pods[name])

    def see(self, name: str) -> None:
        self.life.see(self.pods[name])

    def relist(self, *pods: str) -> None:
        """Let the watch list these pods, and no other."""
        self.machine.handle(Pod, Synced(tuple(changed_event(self.pods[name]) for name in pods)), self.life.now)

    def watch(self, name: str, node: str = "") -> None:
        """Let the watch show a pod as its Bind, or another scheduler, has bound it."""
        pod = as_bound(self.decisions[name])
        pod.spec.node_name = node or pod.spec.node_name
        self.pods[name] = pod
        self.life.see(pod)

    def strip(self, name: str) -> None:
        """Let somebody remove the annotations of a bound pod."""
        self.life.see(annotated(self.pods[name], {}))

    def end(self, name: str) -> None:
        self.life.see(changed(self.pods[name], status={"phase": "Succeeded"}))

    def gone(self, name: str) -> None:
        self.life.gone(self.pods[name])

    def bind(self) -> str:
        """Decide about all that is ready; return the pods that are to be bound."""
        found = {one.pod_info.pod.metadata.name: one for one in binds(self.life.steps())}
        self.decisions |= found
        return " ".join(found)

    def hear(self) -> str:
        """Decide about all that is ready; return the messages of the others."""
        return self._told(self.life.steps())

    def answer(self, name: str, kind: Any, *reason: str) -> str:
        """Answer a Binding; return what is told."""
        result = Outcome(kind, " ".join(reason))
        return self._told(self.machine.finished(self.decisions[name], result, self.life.now))

    def tick(self) -> None:
        self.machine.tick(self.life.now)

    def due(self) -> str:
        return str(self.machine.next_due())

    def depth(self, queue: str) -> str:
        return str(self.machine.pending_pods.depths()[queue])

    def assigned(self, name: str) -> str:
        """Return the node that a pod counts on."""
        assigned = self.machine.cache.assigned(self.pods[name].metadata.uid)
        return "" if assigned is None else assigned.node

    def _told(self, found: list[Any]) -> str:
        reports = [one for one in found if isinstance(one, Report) and one.reason != "Scheduled"]
        told = [f"{one.pod.metadata.name} {one.reason}: {refusal(one.message)}" for one in reports]
        name_of = {pod.metadata.uid: name for name, pod in self.pods.items()}
        logged = [(one.event, name_of[one.fields["uid"]], one.fields["node"]) for one in notices(found)]
        return "; ".join(told + [f"log: {' '.join(words)}" for words in logged])
