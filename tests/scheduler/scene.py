"""What happens to the pods and nodes of a small cluster, as steps of stories.

A node has two VFs, and a pod wants both, if they do not say otherwise. ``a@n1`` is a pod that comes with a node and its
VFs there, ``a:n1`` one whose status nominates a node, and ``a~2h`` declares how long it runs. Where the name of a node
is expected, that of a pod stands for its node.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from mooring.names import GROUP, PLACEMENT, REQUEST, RUNS
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND, Outcome
from tests.scheduler.group_life import Life, annotated, as_bound, binds, changed, claiming
from tests.scheduler.reference.messages import refusal
from tests.scheduler.story import words_of

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_UNITS_S = {"h": 3600, "m": 60, "s": 1}
JOB = {"name": "train", "kind": "Job", "controller": True}
_POD = re.compile(r"(?P<name>[^@:~]+)(?:@(?P<node>[^~]+)|:(?P<nominated>[^~]+))?(?:~(?P<runs>.+))?")


class Scene(Life):
    """A machine, and the pods on it by name."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.pods: dict[str, Pod] = {}
        # How each node was shown last.
        self.node_fields: dict[str, Json] = {}
        # What the last decision led to, and the events before it; what events led to since; the Bindings in progress.
        self.found: list[Instruction] = []
        self.effects: list[Instruction] = []
        self.decided: dict[str, Bind] = {}
        self._stamps = itertools.count(1)

    def node_of(self, name: str) -> str:
        return self.pods[name].spec.node_name or "" if name in self.pods else name

    def show(self, *pods: Pod) -> None:
        self.pods |= {pod.metadata.name: pod for pod in pods}
        self.effects += self.see(*pods)

    def stamp(self) -> str:
        """Return the time; no two pods have the same."""
        return timestamp(self.now + next(self._stamps) / 1e6)

    def take(self, found: list[Instruction]) -> str:
        """Keep what was decided; return which pods get nodes."""
        self.found, self.effects = self.effects + found, []
        self.decided |= {bind.pod_info.pod.metadata.name: bind for bind in binds(found)}
        return self.bound_names()

    def bound_names(self) -> str:
        names = [bind.pod_info.pod.metadata.name for bind in binds(self.found)]
        return " ".join(sorted(names, key=lambda name: re.sub(r"\d+", lambda number: number[0].zfill(9), name)))

    # What users and the cluster do.

    def nodes(self, *names: str, vfs: int | str = 2, cpu: str = "8", **labels: Any) -> None:
        """Show nodes, with ``ready=no``, a ``taint``, or one VF ``held`` in the namespace of a pod that is gone."""
        self.node_fields |= {name: {"vfs": vfs, "cpu": cpu, **labels} for name in names}
        out = (Out(Indexes.of([0]), f"{HELD_BY}gone"),) if labels.pop("held", "") else ()
        taints = [{"key": key, "effect": "NoSchedule"} for key in labels.pop("taint", "")]
        is_ready = labels.pop("ready", "yes") == "yes"
        fields: Json = {"allocatable": {"cpu": cpu}, "spec": {"taints": taints}, "labels": labels}
        for name in names:
            self.show_node(name, self.make_pf(vfs=int(vfs), out=out), ready=is_ready, **fields)

    def lose(self, *nodes: str) -> None:
        for name in map(self.node_of, nodes):
            self.node_fields.pop(name, None)
            self.remove_node(name)

    def come(self, *pods: str, **fields: str) -> None:
        """Let pods come, each younger than the one before."""
        for text in pods:
            word = _POD.fullmatch(text)
            assert word, text
            words = {"vfs": "2"} | fields
            names = {"nodeName": word["node"], "nominated": word["nominated"], "runs": word["runs"]}
            made = pod_fields(**words | {key: value for key, value in names.items() if value})
            made["metadata"] = {"creationTimestamp": self.stamp()} | made["metadata"]
            # A token's volume binds to no place. Each has a name of its own; the pods are replicas all the same.
            made["spec"]["volumes"] = [{"name": f"kube-api-access-{word['name']}", "projected": {}}]
            pod = self.make_pod(word["name"], **made)
            has_vfs = word["node"] and words["vfs"] != "0"
            self.show(claiming(pod, *self._free_vfs(word["node"], int(words["vfs"]))) if has_vfs else pod)

    def _free_vfs(self, node: str, count: int) -> Iterator[int]:
        """Return the first VFs of a node's first PF that no pod there has."""
        assignments = (pod.assignment for pod in self.machine.cache.assigned_pods_on(node))
        taken = {vf.vf for one in assignments if one is not None for vf in one.vfs}
        return itertools.islice((vf for vf in itertools.count() if vf not in taken), count)

    def change(self, *names: str, **fields: str) -> None:
        """Let pods have other fields, of those that come with them."""
        made = pod_fields(**fields)
        annotations = made.pop("annotations")
        self.show(*(annotated(changed(self.pods[name], **made), annotations) for name in names))

    def phase(self, phase: str, *names: str) -> None:
        self.show(*(changed(self.pods[name], status={"phase": phase}) for name in names))

    def delete(self, *names: str) -> None:
        self.gone(*(self.pods.pop(name) for name in names))

    def terminate(self, *pods: str, at: str = "2026-01-01T00:00:00Z") -> None:
        """Let the API server accept deletions, which finalizers hold up."""
        metadata = {"deletionTimestamp": at, "finalizers": ["example.com/f"]}
        self.show(*(changed(self.pods[name], metadata=metadata) for name in pods))

    def answer(self, outcome: Any, *names: str, **labels: str) -> None:
        """Let the API server answer these Bindings, or all in progress, and write labels, such as the node's zone."""
        for name in names or tuple(self.decided):
            bind = self.decided.pop(name)
            result = BOUND if outcome == "bound" else Outcome(outcome, "why")
            self.effects += self.machine.finished(bind, result, self.now)
            if outcome == "bound":
                metadata: Json = {"labels": labels, "resourceVersion": "9"} if labels else {}
                condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.stamp()}
                self.show(changed(as_bound(bind), metadata=metadata, status={"conditions": [condition]}))

    # What the scheduler does.

    def later(self, time: str) -> None:
        """Let time pass in which the scheduler does nothing."""
        self.now += seconds_of(time)

    def step(self) -> str:
        """Take one step, and return which pods get nodes; their Bindings take a while."""
        return self.take(self.machine.step(self.now) or [])

    def due(self) -> str:
        """Return when something is due if nothing happens before."""
        time = self.machine.next_due()
        return "never" if time is None else f"{time:g}"

    def gated(self) -> str:
        return str(self.machine.pending_pods.depths()["gated"])

    def assigned(self, name: str) -> str:
        """Return the node that a pod counts on."""
        assigned = self.machine.cache.assigned(self.pods[name].metadata.uid)
        return "" if assigned is None else assigned.node

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


def seconds_of(time: str) -> float:
    return float(time[:-1]) * _UNITS_S[time[-1]] if time[-1] in _UNITS_S else float(time)


def timestamp(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _pairs(text: str) -> dict[str, str]:
    """Read ``a:b,c:d``."""
    return {key: value for key, _, value in (pair.partition(":") for pair in text.split(",") if pair)}


def _request(count: str, mbps: str = "") -> str:
    """Return a request of so many VFs: ``2``, or ``2x30000`` with this rate each."""
    return json.dumps([{"min_tx_rate": int(mbps)} if mbps else {}] * int(count))


def _affinity(kind: str, text: str) -> Json:
    return {kind: {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": _pairs(text)}}]}}


# Where a word of a pod belongs, and how it is read.
_FIELDS: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "vfs": ("annotations", REQUEST, lambda text: _request(*text.split("x"))),
    "runs": ("annotations", RUNS, str),
    "annotation": ("annotations", GROUP, str),
    "pfs": ("annotations", PLACEMENT, lambda text: json.dumps({"pfs": text})),
    "namespace": ("metadata", "namespace", str),
    "labels": ("metadata", "labels", _pairs),
    # A second.
    "created": ("metadata", "creationTimestamp", lambda text: timestamp(float(text))),
    # The uid of a Job.
    "owner": ("metadata", "ownerReferences", lambda text: [JOB | {"uid": text}]),
    "priority": ("spec", "priority", int),
    # It may only run near pods of its zone with such a label, or away from them.
    "near": ("spec", "affinity", partial(_affinity, "podAffinity")),
    "away": ("spec", "affinity", partial(_affinity, "podAntiAffinity")),
    "tolerates": ("spec", "tolerations", lambda text: [{"key": text, "operator": "Exists"}]),
    "gates": ("spec", "schedulingGates", lambda text: [{"name": gate} for gate in text]),
    "nodeSelector": ("spec", "nodeSelector", _pairs),
    "pod_group": ("spec", "schedulingGroup", lambda text: {"podGroupName": text}),
    "nominated": ("status", "nominatedNodeName", str),
}


def pod_fields(**words: str) -> Json:
    """Return what a pod is made of, as these words say; those that are not named above are fields of its spec."""
    made: Json = {"annotations": {}, "metadata": {}, "spec": {}, "status": {}}
    requests = {key: words.pop(key) for key in ("cpu", "memory") if key in words}
    ports = [{"hostPort": int(port), "containerPort": int(port)} for port in [words.pop("port", "")] if port]
    if requests or ports:
        made["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}, "ports": ports}]
    if words.get("vfs") == "0":
        del words["vfs"]
    for word, text in words.items():
        section, field, read = _FIELDS.get(word, ("spec", word, json.loads if text.startswith("[") else str))
        made[section][field] = read(text)
    return made
