"""Stories of a cluster: what its users, nodes and API server do, and what the scheduler decides.

Nodes are ``node NAME VFS`` with fields of their PF, as in ``up=false``, of the node (``ready``, ``boot``), or with VFs
that are out, as in ``out=0:drained``. Pods are ``pod NAME`` (a namespace may stand before a slash) and want a VF at
priority 0, or with further words a ``7``, ``60G``, ``none``, ``[{"vlan":1}]``, ``Never`` or ``nominated=NODE``.
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
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from tests.scheduler.group_life import as_bound, binds, changed, changed_event, claiming, notices, orders
from tests.scheduler.reference.messages import refusal
from tests.scheduler.scene import Scene

# A pod takes the only VF of a node from another.
PREEMPTED = "node n1 | pod low | wait > low@n1 | pod mid 1 | wait > -low mid:n1"
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


class Cluster(Scene):
    """A scene of single pods; the last preemption and evictions wait for their answers."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.orders: list[DeleteVictims] = []
        self.evictions: list[Evict] = []

    def at(self, now: str) -> None:
        self.now = float(now)

    # What happens to nodes and pods.

    def node(self, name: str, vfs: str = "1", /, **words: str) -> None:
        """Show a node; without VFs it has no inventory."""
        pf, fields = read_node_fields(words)
        fields |= {"labels": {"kubernetes.io/hostname": name, "vfs": vfs}}
        pf["vfs"] = int(vfs)
        self.effects += self.show_node(name, *([self.make_pf(**pf)] if vfs != "0" else []), **fields)

    def pod(self, name: str, *words: str, cpu: str = "", port: str = "", nominated: str = "") -> None:
        """Show a pod, new or with another request."""
        annotations, fields = {names.REQUEST: "[{}]"}, dict[str, Any](spec={})
        for word in words:
            if word.isdigit() or word[0] == "-":
                fields["spec"] |= {"priority": int(word)}
            elif word[-1] == "G":
                annotations = {names.REQUEST: f'[{{"min_tx_rate":{word[:-1]}000}}]'}
            elif word[0] == "{":
                annotations[names.GROUP] = word
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
            self.show(changed(old, metadata={"annotations": annotations}))
        else:
            self.show(self.make_pod(name, annotations=annotations, metadata=metadata, **fields))

    def create(self, *pods: str) -> None:
        for name in pods:
            self.pod(name)

    def claim(self, name: str, vfs: str, phase: str = "Pending", priority: str = "0") -> None:
        """Show a pod on n1, new or as it was, that claims VFs; it has a controller."""
        metadata = OWNED | ({"uid": self.pods[name].metadata.uid} if name in self.pods else {})
        fields: dict[str, Any] = {"metadata": metadata, "status": {"phase": phase}, "spec": {"priority": int(priority)}}
        indexes = [int(index) for index in vfs.split(",")]
        self.show(claiming(self.make_pod(name, [{}] * len(indexes), node="n1", **fields), *indexes))

    def relist(self, *pods: str) -> None:
        """Let the watch list these pods, and no other."""
        self.machine.handle(Pod, Synced(tuple(changed_event(self.pods[name]) for name in pods)), self.now)

    def watch(self, name: str, node: str = "") -> None:
        """Let the watch show a pod as its Bind, or another scheduler, has bound it."""
        pod = as_bound(self.decided[name])
        pod.spec.node_name = node or pod.spec.node_name
        self.show(pod)

    def strip(self, name: str) -> None:
        """Let somebody remove the annotations of a pod."""
        self.show(changed(self.pods[name], metadata={"annotations": {}}))

    # What is decided.

    def wait(self, seconds: str = "15") -> str:
        """Let time pass, by default for all backoffs, decide about all that is ready, and carry out the Binds.

        Return ``-NAME`` of victims, ``NAME@NODE`` of Binds, and ``NAME:NODE`` of nominations, or ``NAME:`` if one ends.
        """
        return self._carry_out(self.decide_ready(self.now + float(seconds)))

    def why(self) -> str:
        """Let backoffs end, and decide; return where the only pod is nominated, and what it is told of preemption."""
        (report,) = [one for one in self.decide_ready(self.now + 15.0) if isinstance(one, Report)]
        return f"{report.nominated or ''}: {report.message.partition(' preemption: ')[2]}"

    def fail(self) -> str:
        """Let the next decision fail by a bug; return what is decided then."""
        self.now += 15.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SchedulingCycle, "proceed", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                self.machine.step(self.now)
        self.take(self.machine.give_up(self.now))
        assert self.machine.give_up(self.now) == []
        return self._carry_out(self.found)

    def begin(self) -> None:
        """Let backoffs end, and a search for victims begin."""
        self.now += 15.0
        assert self.machine.step(self.now) == []
        assert self.machine.is_trying
        assert self.machine.next_due() == 0.0

    def decide(self) -> str:
        """Decide about all that is ready; return the pods whose Bindings are in progress then."""
        return self.take(self.decide_ready())

    def told(self) -> str:
        """Return what the last decision, and events since then, led to; it is told once."""
        told = self._told(self.effects or self.found)
        self.effects, self.found = [], []
        return told

    def repeat(self) -> str:
        """Return what a new leader tells."""
        return self._told(self.machine.repeat_reports())

    def tick(self) -> str:
        """Do all that is due; return the pods that are evicted, and what is told."""
        found = list(self.machine.tick(self.now))
        evictions = [one for one in found if isinstance(one, Evict)]
        self.evictions = evictions or self.evictions
        return " ".join([*(f"{one.pod.metadata.name}: {one.reason}" for one in evictions), self._told(found)]).strip()

    # What the API server answers.

    def answer(self, outcome: Any, *names: str, **labels: str) -> None:
        """Answer Bindings; the watch does not show them yet."""
        for name in names:
            result = Outcome(outcome, "why")
            self.effects += self.machine.finished(self.decided[name], result, self.now)

    def evict(self, outcome: Any, name: str) -> str:
        """Answer an eviction; return what is told."""
        (eviction,) = [one for one in self.evictions if one.pod.metadata.name == name]
        return self._told(self.machine.finished(eviction, outcome, self.now))

    def delete_victims(self) -> str:
        """Let the API server delete the victims; return what is told."""
        (order,) = self.orders
        return self._told(self.machine.finished(order, DeleteVictimsResult(order.victims), self.now))

    def reject(self, *reason: str) -> str:
        """Let the API server reject the last preemption; return what is told."""
        (order,) = self.orders
        (report,) = self.machine.finished(order, DeleteVictimsResult((), " ".join(reason)), self.now)
        assert isinstance(report, Report)
        assert report.nominated == ""
        return f"{report.pod.metadata.name}: {report.message}"

    # What is kept.

    def depth(self, queue: str) -> str:
        return str(self.machine.pending_pods.depths()[queue])

    def disputes(self) -> str:
        return str(self.machine.vf_disputes.dispute_counts["vfs"])

    def reservations(self) -> str:
        return str(len(self.machine.reservations))

    def _carry_out(self, found: list[Instruction]) -> str:
        self.orders = orders(found)
        victims = {f"-{one.pod.removeprefix('default/')}" for order in self.orders for one in order.victims}
        bound = {f"{one.pod_info.pod.metadata.name}@{one.assigned.node}" for one in binds(found)}
        nominated = {
            f"{one.pod.metadata.name}:{one.nominated}"
            for one in found
            if isinstance(one, Report) and one.nominated is not None
        }
        self.pods |= {pod.metadata.name: pod for pod in self.bound(*binds(found))}
        return " ".join([*sorted(victims), *sorted(bound), *sorted(nominated)])

    def _told(self, found: Iterable[Instruction]) -> str:
        found = list(found)
        reports = [one for one in found if isinstance(one, Report) and one.reason != "Scheduled"]
        told = [f"{one.pod.metadata.name} {one.reason}: {refusal(one.message)}" for one in reports]
        name_of = {pod.metadata.uid: name for name, pod in self.pods.items()}
        logged = [(one.event, name_of[one.fields["uid"]], one.fields["node"]) for one in notices(found)]
        return "; ".join(told + [f"log: {' '.join(words)}" for words in logged])
