"""The life of groups as a story: steps ``verb words``, separated by semicolons."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity, Removed, Synced
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.workload_objects import CoschedulingPodGroup, Job
from tests.scheduler.group_life import (
    TRAIN,
    Life,
    annotated,
    binds,
    bound_names,
    changed,
    changed_event,
    claiming,
    told,
    victims,
)

# What each word of a story in capitals stands for: such a story is played once for each.
VARIANTS = {
    "OWNER": {"of a Job": "owned-by job-1", "bare": ""},
    "THEN": {"same leader": "", "new leader": "lead", "new leader, shown backwards": "lead backwards"},
    "LEADER": {"new leader": "lead", "new leader, shown backwards": "lead backwards"},
}
LEAVING = {"deletionTimestamp": "2026-01-02T00:00:00Z"}
Stories = Mapping[str, str]


def stories(table: Stories, **more: Stories) -> pytest.MarkDecorator:
    """Parametrize a test by stories, each named by what it shows."""
    rows = dict(table)
    for word, variants in (VARIANTS | more).items():
        rows = {
            f"{name}, {variant}" if word in text else name: text.replace(word, steps)
            for name, text in rows.items()
            for variant, steps in (variants.items() if word in text else [("", "")])
        }
    return pytest.mark.parametrize("text", rows.values(), ids=rows.keys())


class Story:
    """Plays the steps, each of them a method.

    ``pod@node`` is a pod that is bound when it comes, with VFs; ``pod>node`` one whose status names a node.
    """

    def __init__(self, life: Life) -> None:
        self.life, self.owner, self.group, self.vf_count = life, "", TRAIN, 2
        self.hour: int | None = None
        self.labels: dict[str, str] = {}
        self.node_labels: dict[str, str] = {}
        self.fields: dict[str, Any] = {}
        self.pods: dict[str, Pod] = {}
        self.node_fields: dict[str, dict[str, Any]] = {}
        # What was decided last, and what the machine has answered to events since then.
        self.found: list[Instruction] = []
        self._answers: list[Instruction] = []

    def play(self, text: str) -> None:
        for step in filter(None, map(str.strip, text.split(";"))):
            verb, *words = step.split()
            try:
                getattr(self, verb.replace("-", "_"))(*words)
            except AssertionError as error:
                error.add_note(f"at step {step!r}")
                raise

    # What a user does.

    def of(self, name: str, count: str) -> None:
        """Let later members name this group and its ``min``."""
        self.name(f'annotation={{"name":"{name}","min":{count}}}')

    def name(self, *ways: str) -> None:
        """Let later members name their group by ``spec=train``, ``label=train`` or ``annotation=JSON`` or labels."""
        self.labels = dict(way.split("=", 1) for way in ways)
        self.group, pod_group = self.labels.pop("annotation", ""), self.labels.pop("spec", "")
        self.fields["schedulingGroup"] = {"podGroupName": pod_group} if pod_group else None
        if "label" in self.labels:
            self.labels[names.POD_GROUP_LABEL] = self.labels.pop("label")

    def spec(self, field: str) -> None:
        """Let later pods have this field, ``name=value``, in their spec."""
        name, _, value = field.partition("=")
        self.fields[name] = int(value) if value.isdecimal() else value

    def request(self, count: str) -> None:
        """Let later pods request so many VFs; two are all that a node has."""
        self.vf_count = int(count)

    def owned_by(self, owner: str) -> None:
        """Let later pods have this controller."""
        self.owner = owner

    def created(self, hour: str) -> None:
        """Let later pods have been created at this hour."""
        self.hour = int(hour)

    def come(self, *pods: str, group: str | None = None) -> None:
        for pod in pods:
            name_and_node, _, nominated_node = pod.partition(">")
            name, _, node = name_and_node.partition("@")
            metadata: dict[str, Any] = {"creationTimestamp": self.clock(self.hour), "labels": self.labels}
            if self.owner:
                metadata["ownerReferences"] = [{"name": "train", "kind": "Job", "uid": self.owner, "controller": True}]
            fields: dict[str, Any] = {"metadata": metadata, "spec": self.fields, "node": node or None}
            fields["status"] = {"nominatedNodeName": nominated_node} if nominated_node else {}
            fields["request"] = [{}] * self.vf_count or None
            item = self.life.member(name, self.group if group is None else group, **fields)
            self._show(claiming(item, *range(self.vf_count)) if node and self.vf_count else item)

    def alone(self, *pods: str) -> None:
        """Let pods without a group come."""
        self.come(*pods, group="")

    def join(self, *pods: str) -> None:
        """Let pods name the group, late."""
        self._show(*(annotated(self.pods[name], {names.GROUP: self.group}) for name in pods))

    def label(self, pod: str, label: str) -> None:
        key, _, value = label.partition("=")
        self._show(changed(self.pods[pod], metadata={"labels": {key: value}}))

    def leave(self, *pods: str) -> None:
        """Show victims of a preemption that are being deleted."""
        marked = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
        self._show(*(changed(self.pods[name], metadata=LEAVING, status=marked) for name in pods))

    def nominate(self, *pods: str) -> None:
        """Show which node the status of each pod names, ``pod>node``; without pods, as the scheduler has decided."""
        for pod in pods or [f"{name}>{node}" for name, node in self._kept()]:
            name, _, node = pod.partition(">")
            self._show(changed(self.pods[name], status={"nominatedNodeName": node}))

    def delete(self, *pods: str) -> None:
        self.life.gone(*(self.pods.pop(name) for name in pods))

    def pod_group(self, name: str, count: str, priority: str = "") -> None:
        fields = {"priority": int(priority)} if priority else {}
        self.life.pod_group(name, schedulingPolicy={"gang": {"minCount": int(count)}}, **fields)

    def coscheduling(self, name: str, count: str) -> None:
        """Show a PodGroup of scheduler-plugins."""
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": int(count)}}
        item = msgspec.convert(document, CoschedulingPodGroup)
        self.life.machine.handle(CoschedulingPodGroup, Changed(Identity(name, "default"), item), self.life.now)

    # What the cluster does.

    def later(self, seconds: str) -> None:
        self.life.now += float(seconds)

    def rack(self, name: str) -> None:
        """Let later nodes be in this rack."""
        self.node_labels = {"rack": name}

    def nodes(self, *nodes: str) -> None:
        """Show nodes; ``n1*4`` has four VFs."""
        for node in nodes:
            name, _, vf_count = node.partition("*")
            self.node_fields[name] = {"vfs": int(vf_count or 2), "labels": self.node_labels}
            self.life.nodes(name, **self.node_fields[name])

    def hold(self, node: str) -> None:
        """Show a node that still holds a VF of a pod that is gone."""
        self.life.show_node(node, self.life.make_pf(vfs=2, out=(Out(Indexes.of([0]), f"{HELD_BY}gone"),)))

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            self.life.remove_node(node)
            self.node_fields.pop(node, None)

    def lose_node_of(self, *pods: str) -> None:
        self.lose(*(self.pods[name].spec.node_name or "" for name in pods))

    def fill(self, *nodes: str) -> None:
        """Fill new nodes with a pod each: ``on-n1`` and so on."""
        self.nodes(*nodes)
        for node in nodes:
            self.alone(f"on-{node}@{node}")

    def fail_often(self) -> None:
        """Let nodes come that are too small for all that wait, which are tried each time."""
        for number in range(5):
            self.nodes(f"small-{number}*1")
            self.later("10")
            self.at_once()

    def succeed(self, *pods: str) -> None:
        self._show(*(changed(self.pods[name], status={"phase": "Succeeded"}) for name in pods))

    def fail(self, *pods: str) -> None:
        self._show(*(changed(self.pods[name], status={"phase": "Failed"}) for name in pods))

    def job(self, count: str) -> None:
        """Show how many pods have succeeded by the Job's status."""
        document = {"metadata": {"name": "train", "uid": self.owner}, "status": {"succeeded": int(count)}}
        event = Changed(Identity("train", "default", self.owner), msgspec.convert(document, Job))
        self.life.machine.handle(Job, event, self.life.now)

    def remove_job(self) -> None:
        self.life.machine.handle(Job, Removed(Identity("train", "default", self.owner)), self.life.now)

    def list_no_jobs(self) -> None:
        self.life.machine.handle(Job, Synced[Job](()), self.life.now)

    def list_without(self, name: str) -> None:
        """Let a new list of pods lack one: the watch was cut when it was deleted. Nothing of it is kept."""
        uid = self.pods.pop(name).metadata.uid
        self.life.machine.handle(Pod, Synced(tuple(map(changed_event, self.pods.values()))), self.life.now)
        assert self.life.machine.group_cache.of(uid) is None

    def lead(self, order: str = "") -> None:
        """Let another scheduler lead, which is only shown what exists."""
        self.life = self.life.successor()
        for name, fields in self.node_fields.items():
            self.life.nodes(name, **fields)
        self._show(*list(self.pods.values())[:: -1 if order else 1])

    # What the scheduler does.

    def bound(self, *pods: str) -> None:
        """Let exactly these be bound within five seconds, which is when incomplete groups are reported too."""
        self._decide(5.0, pods)

    def at_once(self, *pods: str) -> None:
        self._decide(0.0, pods)

    def _decide(self, later_s: float, pods: tuple[str, ...]) -> None:
        self.found, self._answers = self._answers + self.life.work(later_s), []
        assert bound_names(self.found) == sorted(pods)
        self._bind(binds(self.found))

    def cut(self, *pods: str) -> None:
        """Let all waiting members be decided about, and these be bound; the Bindings of the others are refused."""
        decided = binds(self.life.work(5.0))
        assert {bind.pod_info.pod.metadata.name for bind in decided} > set(pods)
        self._bind([bind for bind in decided if bind.pod_info.pod.metadata.name in pods])
        for bind in decided:
            if bind.pod_info.pod.metadata.name not in pods:
                self.life.machine.finished(bind, Outcome("changed", ""), self.life.now)

    def steps(self, count: str) -> None:
        """Take short steps of a decision that does not end with them, and has no effect until then."""
        self.life.machine.group_scheduling.portion, cache = 1, self.life.machine.cache
        assigned_pods = list(cache.assigned_pods())
        for _ in range(int(count)):
            assert self.life.machine.step(self.life.now) == []
            assert list(cache.assigned_pods()) == assigned_pods

    def no_step(self) -> None:
        assert self.life.machine.step(self.life.now) is None

    def take_over(self) -> None:
        """Do what comes before the next decision."""
        self.life.machine.tick(self.life.now)
        assert self.life.machine.step(self.life.now) == []

    def evicted(self, *pods: str) -> None:
        """Expect that exactly these were evicted by the last decision."""
        assert victims(self.found) == sorted(pods)

    def on(self, *nodes: str) -> None:
        """Expect that the pods of the last decision are on these nodes."""
        assert sorted(one.assigned.node for one in binds(self.found)) == sorted(nodes)

    def kept(self, *rooms: str) -> None:
        """Expect that room is kept for exactly these pods, each as ``pod>node``; ``>node`` is for a spare."""
        assert sorted(f"{name}>{node}" for name, node in self._kept()) == sorted(rooms)

    def kept_vfs(self, count: str) -> None:
        """Expect that each room has exactly so many VFs."""
        assignments = [room.assignment for room in self._rooms()]
        assert [len(one.vfs) if one is not None else 0 for one in assignments] == [int(count)] * len(assignments)

    def _kept(self) -> list[tuple[str, str]]:
        pods = self.life.machine.pending_pods.pending
        return [(pods[room.uid].pod.metadata.name if room.uid in pods else "", room.node) for room in self._rooms()]

    def _rooms(self) -> list[AssignedPod]:
        return [room for one in self.life.machine.reservations.all() for room in one.rooms.values()]

    def no_record(self) -> None:
        """Expect that nothing is known of any spares."""
        assert self.life.machine.group_scheduling.spares._times == {}

    def told(self, *words: str) -> None:
        """Expect ``pods: message`` of exactly the pods that were told; ``...`` at the end of a message stands for more.

        Pods with other messages follow after a bar.
        """
        messages = told(self.found)
        for part in " ".join(words).split(" | "):
            pods, _, message = part.partition(": ")
            for pod in pods.split():
                text = messages.pop(pod)
                assert text == message or (message.endswith("...") and text.startswith(message[:-3])), text
        assert messages == {}

    def refused(self, *words: str) -> None:
        """Expect the only report about a pod that cannot be read, as ``pod: part of the message``."""
        pod, _, part = " ".join(words).partition(": ")
        (report,) = [one for one in self.found if isinstance(one, Report) and one.pod.metadata.name == pod]
        assert part in report.message

    def due(self, time: str) -> None:
        assert self.life.machine.next_due() == float(time)

    def idle(self) -> None:
        """Expect that nothing is due or to be done."""
        assert self.life.work() == []

    def urgent(self) -> None:
        assert self.life.is_urgent()

    def not_urgent(self) -> None:
        assert not self.life.is_urgent()

    def _bind(self, decided: list[Bind]) -> None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.clock()}
        self._show(*(changed(pod, status={"conditions": [scheduled]}) for pod in self.life.bound(*decided)))

    def _show(self, *pods: Pod) -> None:
        self._answers += self.life.see(*pods)
        self.pods |= {pod.metadata.name: pod for pod in pods}

    def clock(self, hour: int | None = None) -> str:
        now = int(self.life.now) if hour is None else hour * 3600
        return f"2026-01-01T{now // 3600:02}:{now // 60 % 60:02}:{now % 60:02}Z"
