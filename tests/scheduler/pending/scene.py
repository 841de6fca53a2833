"""What happens to pods and nodes of a small cluster, as steps of stories."""

import json
from typing import Any

from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from mooring.names import GROUP, PLACEMENT, RUNS
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND, Outcome
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import Life, as_bound, binds, changed, claiming
from tests.scheduler.reference.messages import refusal
from tests.scheduler.story import words_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Scene(Life):
    """A machine, and the pods on it by name."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.pods: dict[str, Pod] = {}
        # The last decisions.
        self.found: list[Instruction] = []

    def node_of(self, name: str) -> str:
        return self.pods[name].spec.node_name or "" if name in self.pods else name

    def show(self, *pods: Pod) -> None:
        self.pods |= {pod.metadata.name: pod for pod in pods}
        self.see(*pods)

    def nodes(self, *names: str, vfs: int | str = 2, cpu: str = "8", **labels: Any) -> None:
        """Show nodes, with ``ready=no``, a ``taint``, or one VF ``held`` in the namespace of a pod that is gone."""
        out = (Out(Indexes.of([0]), f"{HELD_BY}gone"),) if labels.pop("held", "") else ()
        taints = [{"key": key, "effect": "NoSchedule"} for key in labels.pop("taint", "")]
        is_ready = labels.pop("ready", "yes") == "yes"
        fields: Json = {"allocatable": {"cpu": cpu}, "spec": {"taints": taints}, "labels": labels}
        for name in names:
            self.show_node(name, self.make_pf(vfs=int(vfs), out=out), ready=is_ready, **fields)

    def due(self) -> str:
        """Return when something is due if nothing happens before."""
        time = self.machine.next_due()
        return "never" if time is None else f"{time:g}"

    def lose(self, node: str) -> None:
        self.remove_node(self.node_of(node))

    def pod(self, *names: str, holds: str = "", **fields: str) -> None:
        """Let pods come; with ``nodeName`` they are bound, and the first ``holds`` such a VF, others the next ones."""
        for number, name in enumerate(names):
            made = pod_fields(**fields)
            # A token's volume binds to no place. Each has a name of its own; the pods are replicas all the same.
            made["spec"]["volumes"] = [{"name": f"kube-api-access-{name}", "projected": {}}]
            pod = self.make_pod(name, **made)
            self.show(claiming(pod, int(holds) + number) if holds else pod)

    def phase(self, phase: str, *names: str) -> None:
        self.show(*(changed(self.pods[name], status={"phase": phase}) for name in names))

    def delete(self, *names: str) -> None:
        self.gone(*(self.pods.pop(name) for name in names))

    def change(self, name: str, **fields: str) -> None:
        """Let a pod have other fields, of those that come with it."""
        made = pod_fields(**fields)
        labels, gates = made["metadata"]["labels"], made["spec"]["schedulingGates"]
        self.show(changed(self.pods[name], metadata={"labels": labels}, spec={"schedulingGates": gates}))

    def gated(self) -> str:
        return str(self.machine.pending_pods.depths()["gated"])

    def decide(self, name: str) -> None:
        """Let a pod be decided about, whose Binding takes a while."""
        self.found = self.machine.step(self.now) or []
        assert [bind.pod_info.pod.metadata.name for bind in binds(self.found)] == [name]

    def answer(self, outcome: Any, **labels: str) -> None:
        """Let the API server answer the Binding; on a pod that is bound it writes labels, such as the node's zone."""
        (bind,) = binds(self.found)
        self.machine.finished(bind, BOUND if outcome == "bound" else Outcome(outcome), self.now)
        if outcome == "bound":
            self.show(changed(as_bound(bind), metadata={"labels": labels, "resourceVersion": "9"}))

    def assigned(self, name: str) -> None:
        assert self.machine.cache.assigned(self.pods[name].metadata.uid) is not None

    def nominated(self, name: str, node: str) -> None:
        assert self.machine.reservations.node_of(self.pods[name].metadata.uid) == node

    def tries(self) -> str:
        """Let all backoffs end, and return which pods are tried, in this order, until none is ready."""
        self.now += 100.0
        names = list(iter(self._next, None))
        self.machine.check()
        return " ".join(names)

    def refusals(self, phases: list[str]) -> dict[str, str]:
        """Decide once, in phases that are noted, and return why nodes reject pods, by name."""
        found = self.machine.step(self.now, phases.append) or ()
        return {one.pod.metadata.name: refusal(one.message) for one in found if isinstance(one, Report)}

    def refuses(self, *words: str) -> None:
        """Let backoffs end, and decide once: the pods before the colon get the message behind it."""
        names, _, message = " ".join(words).partition(": ")
        self.now += 100.0
        assert self.refusals([]) == dict.fromkeys(words_of(names), message)

    def _next(self) -> str | None:
        before = {uid: one.attempts for uid, one in self.machine.pending_pods.pending.items()}
        if self.machine.step(self.now) is None:
            return None
        after = self.machine.pending_pods.pending.items()
        (pod,) = [one.pod for uid, one in after if one.attempts > before.get(uid, 0)]
        return pod.metadata.name


def pod_fields(
    vfs: str = "", cpu: str = "0", memory: str = "0", port: str = "", runs: str = "", priority: str = "0", **words: Any
) -> Json:
    """Return what a pod is made of.

    It may only run ``near`` pods of its zone with such a label, or ``away`` from them; ``created`` is a second, and
    all other words are fields of its spec.
    """
    container: Json = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    if port:
        container["ports"] = [{"hostPort": int(port), "containerPort": int(port)}]
    metadata: Json = {"labels": _pair(words.pop("labels", "")), "namespace": words.pop("namespace", "default")}
    if "created" in words:
        metadata["creationTimestamp"] = f"1970-01-01T00:00:{words.pop('created'):>02}Z"
    spec: Json = {"priority": int(priority), "containers": [container], "affinity": {}}
    for kind, word in (("podAffinity", words.pop("near", "")), ("podAntiAffinity", words.pop("away", ""))):
        if word:
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": _pair(word)}}
            spec["affinity"][kind] = {REQUIRED: [term]}
    spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in words.pop("tolerates", "").split()]
    spec["schedulingGates"] = [{"name": gate} for gate in words.pop("gates", "")]
    spec["nodeSelector"] = _pair(words.pop("nodeSelector", ""))
    annotations = {RUNS: runs} if runs else {}
    if "group" in words:
        annotations[GROUP] = words.pop("group")
    if "pfs" in words:
        annotations[PLACEMENT] = json.dumps({"pfs": words.pop("pfs")})
    request: list[Json] | None = [{}] * int(vfs) if vfs else None
    return {"request": request, "annotations": annotations, "metadata": metadata, "spec": spec | words}


def _pair(word: str) -> dict[str, str]:
    key, _, value = word.partition(":")
    return {key: value} if key else {}
