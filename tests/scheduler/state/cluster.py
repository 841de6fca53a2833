"""Stories of a cluster: what its users, nodes and API server do, and what the scheduler decides.

Nodes are ``node NAME VFS`` with fields of their PF, as in ``up=false``, of the node (``ready``, ``boot``), or with VFs
that are out, as in ``out=0:drained``. Pods are ``pod NAME`` (a namespace may stand before a slash) and want a VF at
priority 0, or with further words a ``7``, ``x2``, ``60G``, ``none``, ``[{"vlan":1}]``, ``Never`` or ``nominated=NODE``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from mooring.kube.events import Synced
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from tests.scheduler.group_life import Life, as_bound, binds, changed, changed_event, claiming, notices, orders
from tests.scheduler.reference.messages import refusal

# A pod takes the only VF of a node from another.
PREEMPTED = "node n1 | pod low | later > low@n1 | pod mid 1 | later > -low mid:n1"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}]}


def read_node_fields(fields: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the fields of a ``node`` say of its PF, and of the node itself."""
    pf, node = dict[str, Any](), dict[str, Any]()
    for key, text in fields.items():
        if key == "out":
            index, _, why = text.partition(":")
            pf[key] = (Out(Indexes.of([int(index)]), why.replace("_", " "), min_tx_rate=5000),)
        else:
            value = msgspec.json.decode(text) if text in ("true", "false") or text.isdigit() else text
            (node if key in ("ready", "boot") else pf)[key] = value
    return pf, node


class Cluster:
    """The verbs of the stories; the last decisions wait for their answers."""

    def __init__(self, life: Life) -> None:
        self.life, self.machine = life, life.machine
        self.pods: dict[str, Pod] = {}
        self.decisions: dict[str, Bind] = {}
        self.orders: list[DeleteVictims] = []
        self.evictions: list[Evict] = []
        self.last: list[Instruction] = []

    def at(self, now: str) -> None:
        self.life.now = float(now)

    def wait(self, seconds: str) -> str:
        self.life.now += float(seconds)
        return ""

    # What happens to nodes and pods.

    def node(self, name: str, vfs: str = "1", /, **words: str) -> None:
        """Show a node; without VFs it has no inventory."""
        pf, fields = read_node_fields(words)
        fields |= {"labels": {"kubernetes.io/hostname": name, "vfs": vfs}}
        pf["vfs"] = int(vfs)
        self.last = self.life.show_node(name, *([self.life.make_pf(**pf)] if vfs != "0" else []), **fields)

    def lose(self, node: str) -> None:
        self.life.remove_node(node)

    def pod(self, name: str, *words: str, cpu: str = "", port: str = "", nominated: str = "") -> None:
        """Show a pod, new or with another request."""
        annotations, fields = {names.REQUEST: "[{}]"}, dict[str, Any](spec={})
        for word in words:
            if word.isdigit() or word[0] == "-":
                fields["spec"] |= {"priority": int(word)}
            elif word[-1] == "G":
                annotations = {names.REQUEST: f'[{{"min_tx_rate":{word[:-1]}000}}]'}
            elif word[0] == "x":
                annotations = {names.REQUEST: msgspec.json.encode([{}] * int(word[1:])).decode()}
            elif word == "none":
                annotations = {}
            elif word == "Never":
                fields["spec"] |= {"preemptionPolicy": word}
            else:
                annotations = {names.REQUEST: word}
        if cpu:
            container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
            ports = [{"containerPort": int(port), "hostPort": int(port)}] if port else []
            fields["spec"] |= {"containers": [container | {"ports": ports}]}
        if nominated:
            fields["status"] = {"nominatedNodeName": nominated}
        metadata = {"namespace": name.rpartition("/")[0] or "default"}
        if old := self.pods.get(name):
            self.show(name, changed(old, metadata={"annotations": annotations}))
        else:
            self.show(name, self.life.make_pod(name, annotations=annotations, metadata=metadata, **fields))

    def create(self, *pods: str) -> None:
        for name in pods:
            self.pod(name)

    def member(self, name: str) -> None:
        """Show a member of a group of at least two in the namespace bad."""
        group = {names.GROUP: '{"name":"g","min":2}'}
        self.show(name, self.life.make_pod(name, [{}], annotations=group, metadata={"namespace": "bad"}))

    def claim(self, name: str, vf: str, phase: str = "Pending", priority: str = "0") -> None:
        """Show a pod on n1, new or as it was, that claims a VF; it has a controller."""
        metadata = OWNED | ({"uid": self.pods[name].metadata.uid} if name in self.pods else {})
        fields: dict[str, Any] = {"metadata": metadata, "status": {"phase": phase}, "spec": {"priority": int(priority)}}
        pod = self.life.make_pod(name, [{}], node="n1", **fields)
        self.show(name, claiming(pod, int(vf)))

    def show(self, name: str, pod: Pod) -> None:
        self.pods[name] = pod
        self.last = self.life.see(pod)

    def relist(self, *pods: str) -> None:
        """Let the watch list these pods, and no other."""
        self.machine.handle(Pod, Synced(tuple(changed_event(self.pods[name]) for name in pods)), self.life.now)

    def watch(self, name: str, node: str = "") -> None:
        """Let the watch show a pod as its Bind, or another scheduler, has bound it."""
        pod = as_bound(self.decisions[name])
        pod.spec.node_name = node or pod.spec.node_name
        self.show(name, pod)

    def strip(self, name: str) -> None:
        """Let somebody remove the annotations of a pod."""
        self.show(name, changed(self.pods[name], metadata={"annotations": {}}))

    def end(self, name: str) -> None:
        self.show(name, changed(self.pods[name], status={"phase": "Succeeded"}))

    def leave(self, name: str) -> None:
        self.show(name, changed(self.pods[name], metadata=DELETED))

    def gone(self, name: str) -> None:
        self.life.gone(self.pods[name])

    # What is decided.

    def later(self) -> str:
        """Let backoffs end, decide about all that is ready, and carry out the Binds.

        Return ``-NAME`` of victims, ``NAME@NODE`` of Binds, and ``NAME:NODE`` of nominations, or ``NAME:`` if one ends.
        """
        return self._carry_out(self._decide_late())

    def why(self) -> str:
        """Let backoffs end, and decide; return where the only pod is nominated, and what it is told of preemption."""
        (report,) = [one for one in self._decide_late() if isinstance(one, Report)]
        return f"{report.nominated or ''}: {report.message.partition(' preemption: ')[2]}"

    def now(self) -> str:
        return self._carry_out(self.life.decide_ready())

    def fail(self) -> str:
        """Let the next decision fail by a bug; return what is decided then."""
        self.life.now += 15.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SchedulingCycle, "proceed", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                self.machine.step(self.life.now)
        self.last = self.machine.give_up(self.life.now)
        assert self.machine.give_up(self.life.now) == []
        return self._carry_out(self.last)

    def begin(self) -> None:
        """Let backoffs end, and a search for victims begin."""
        self.life.now += 15.0
        assert self.machine.step(self.life.now) == []
        assert self.machine.is_trying
        assert self.machine.next_due() == 0.0

    def bind(self) -> str:
        """Decide about all that is ready; return the pods whose Bindings are in progress then."""
        self.last = self.life.decide_ready()
        found = {one.pod_info.pod.metadata.name: one for one in binds(self.last)}
        self.decisions |= found
        return " ".join(found)

    def told(self) -> str:
        """Return what the last decision, or node or pod that was shown, led to."""
        return self._told(self.last)

    def repeat(self) -> str:
        """Return what a new leader tells."""
        return self._told(self.machine.repeat_reports())

    def tick(self) -> str:
        """Do all that is due; return the pods that are evicted, and what is told."""
        found = list(self.machine.tick(self.life.now))
        evictions = [one for one in found if isinstance(one, Evict)]
        self.evictions = evictions or self.evictions
        return " ".join([*(f"{one.pod.metadata.name}: {one.reason}" for one in evictions), self._told(found)]).strip()

    # What the API server answers.

    def answer(self, name: str, kind: Any, *reason: str) -> str:
        """Answer a Binding or an eviction; return what is told."""
        if evictions := [one for one in self.evictions if one.pod.metadata.name == name]:
            return self._told(self.machine.finished(evictions[0], kind, self.life.now))
        result = Outcome(kind, " ".join(reason))
        return self._told(self.machine.finished(self.decisions[name], result, self.life.now))

    def delete(self) -> str:
        """Let the API server delete the victims; return what is told."""
        (order,) = self.orders
        return self._told(self.machine.finished(order, DeleteVictimsResult(order.victims), self.life.now))

    def reject(self, *reason: str) -> str:
        """Let the API server reject the last preemption; return what is told."""
        (order,) = self.orders
        (report,) = self.machine.finished(order, DeleteVictimsResult((), " ".join(reason)), self.life.now)
        assert isinstance(report, Report)
        assert report.nominated == ""
        return f"{report.pod.metadata.name}: {report.message}"

    # What is kept.

    def due(self) -> str:
        return str(self.machine.next_due())

    def depth(self, queue: str) -> str:
        return str(self.machine.pending_pods.depths()[queue])

    def disputes(self) -> str:
        return str(self.machine.vf_disputes.dispute_counts["vfs"])

    def reservations(self) -> str:
        return str(len(self.machine.reservations))

    def assigned(self, name: str) -> str:
        """Return the node that a pod counts on."""
        assigned = self.machine.cache.assigned(self.pods[name].metadata.uid)
        return "" if assigned is None else assigned.node

    def _decide_late(self) -> list[Instruction]:
        return self.life.decide_ready(self.life.now + 15.0)

    def _carry_out(self, found: list[Instruction]) -> str:
        self.orders = orders(found)
        victims = {f"-{one.pod.removeprefix('default/')}" for order in self.orders for one in order.victims}
        bound = {f"{one.pod_info.pod.metadata.name}@{one.assigned.node}" for one in binds(found)}
        nominated = {
            f"{one.pod.metadata.name}:{one.nominated}"
            for one in found
            if isinstance(one, Report) and one.nominated is not None
        }
        self.pods |= {pod.metadata.name: pod for pod in self.life.bound(*binds(found))}
        return " ".join([*sorted(victims), *sorted(bound), *sorted(nominated)])

    def _told(self, found: Iterable[Instruction]) -> str:
        found = list(found)
        reports = [one for one in found if isinstance(one, Report) and one.reason != "Scheduled"]
        told = [f"{one.pod.metadata.name} {one.reason}: {refusal(one.message)}" for one in reports]
        name_of = {pod.metadata.uid: name for name, pod in self.pods.items()}
        logged = [(one.event, name_of[one.fields["uid"]], one.fields["node"]) for one in notices(found)]
        return "; ".join(told + [f"log: {' '.join(words)}" for words in logged])
