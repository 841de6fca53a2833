"""What happens to groups, as steps of stories."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from mooring import names
from mooring.annotations.inventory import HELD_BY, Out
from mooring.annotations.spares import read_spares
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity, Removed, Synced
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Instruction, Report, ReportGroup
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Kind, Outcome
from scheduler.kube.workload_objects import CoschedulingPodGroup, Job, PodGroup
from tests.scheduler.group_life import TRAIN, Life, annotated, binds, changed, changed_event, claiming, told, victims
from tests.scheduler.story import words_of

# What words of stories in capitals stand for.
LEADER = {"new leader": "lead", "new leader, shown backwards": "lead backwards"}
THEN = {"same leader": "", **LEADER}
LEAVING = {"deletionTimestamp": "2026-01-02T00:00:00Z"}
PREEMPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}


class GroupStory:
    """The life of groups.

    ``pod@node`` is a pod that is bound when it comes, with VFs; ``pod:node`` one whose status names a node.
    """

    def __init__(self, life: Life) -> None:
        self.life, self.owner, self.group, self.vf_count = life, "", TRAIN, 2
        self.cpus = "8"
        self.hour: int | None = None
        self.labels: dict[str, str] = {}
        self.node_labels: dict[str, str] = {}
        self.fields: dict[str, Any] = {}
        self.pods: dict[str, Pod] = {}
        self.node_fields: dict[str, dict[str, Any]] = {}
        # What was decided last, the Bindings that are being written, and the machine's answers to events since then.
        self.found: list[Instruction] = []
        self.decided: dict[str, Bind] = {}
        self._answers: list[Instruction] = []

    # What later pods and nodes are like.

    def of(self, name: str, count: str) -> None:
        """Let members name this group and its ``min``."""
        self.name(annotation=f'{{"name":"{name}","min":{count}}}')

    def name(self, **labels: str) -> None:
        """Let members name their group by ``spec=train``, ``label=train``, ``annotation=JSON`` or other labels."""
        self.labels = labels
        self.group, pod_group = self.labels.pop("annotation", ""), self.labels.pop("spec", "")
        self.fields["schedulingGroup"] = {"podGroupName": pod_group} if pod_group else None
        if "label" in self.labels:
            self.labels[names.POD_GROUP_LABEL] = self.labels.pop("label")

    def spec(self, **fields: str) -> None:
        """Let pods have these fields in their spec."""
        for name, value in fields.items():
            self.fields[name] = value if value[0].isalpha() else msgspec.json.decode(value)

    def request(self, count: str) -> None:
        """Let pods request so many VFs; two are all that a node has."""
        self.vf_count = int(count)

    def owned_by(self, owner: str = "") -> None:
        self.owner = owner

    def created(self, hour: str) -> None:
        """Let pods have been created at this hour."""
        self.hour = int(hour)

    def cpu(self, count: str) -> None:
        """Let pods request so many CPUs, and nodes have them."""
        self.fields["containers"] = [{"name": "c", "resources": {"requests": {"cpu": count}}}]
        self.cpus = count

    def rack(self, name: str) -> None:
        """Let nodes be in this rack."""
        self.node_labels = {"rack": name}

    # What users do.

    def come(self, *pods: str, group: str | None = None) -> None:
        for pod in pods:
            name_and_node, _, nominated_node = pod.partition(":")
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

    def ask(self, pod: str, count: str) -> None:
        """Let a pod that waits request so many VFs instead."""
        self._show(annotated(self.pods[pod], {names.REQUEST: json.dumps([{}] * int(count))}))

    def label(self, pod: str, **labels: str) -> None:
        self._change([pod], metadata={"labels": labels})

    def terminate(self, *pods: str) -> None:
        self._change(pods, metadata=LEAVING)

    def delete(self, *pods: str) -> None:
        self.life.gone(*(self.pods.pop(name) for name in pods))

    def pod_group(self, name: str, count: str, priority: str = "", uid: str = "") -> None:
        """Show a PodGroup; one with a ``uid`` was created now."""
        fields = {"priority": int(priority)} if priority else {}
        metadata = {"uid": uid, "creationTimestamp": self.clock()} if uid else {}
        self.life.pod_group(name, metadata, schedulingPolicy={"gang": {"minCount": int(count)}}, **fields)

    def lose_pod_group(self, name: str) -> None:
        self.life.machine.handle(PodGroup, Removed(Identity(name, "default")), self.life.now)

    def coscheduling(self, name: str, count: str) -> None:
        """Show a PodGroup of scheduler-plugins."""
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": int(count)}}
        item = msgspec.convert(document, CoschedulingPodGroup)
        self.life.machine.handle(CoschedulingPodGroup, Changed(Identity(name, "default"), item), self.life.now)

    # What the cluster does.

    def later(self, seconds: str) -> None:
        self.life.now += float(seconds)

    def nodes(self, *nodes: str) -> None:
        """Show nodes, which have two VFs if they do not say so."""
        for node in nodes:
            name, _, vf_count = node.partition(":")
            self.node_fields[name] = {"vfs": int(vf_count or 2), "labels": self.node_labels}
            self.node_fields[name]["allocatable"] = {"cpu": self.cpus}
            self.life.nodes(name, **self.node_fields[name])

    def fill(self, *nodes: str) -> None:
        """Show nodes, each full with a pod: ``on-n1`` and so on."""
        self.nodes(*nodes)
        self.alone(*(f"on-{node}@{node}" for node in nodes))

    def hold(self, node: str) -> None:
        """Show a node that still holds a VF of a pod that is gone."""
        self.life.show_node(node, self.life.make_pf(vfs=2, out=(Out(Indexes.of([0]), f"{HELD_BY}gone"),)))

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            self.life.remove_node(node)
            self.node_fields.pop(node, None)

    def lose_node_of(self, *pods: str) -> None:
        self.lose(*(self.pods[name].spec.node_name or "" for name in pods))

    def bind(self, pod: str, node: str) -> None:
        """Let another scheduler bind a pod."""
        self._change([pod], spec={"nodeName": node})

    def reject(self, *pods: str) -> None:
        """Show the condition that the scheduler itself writes."""
        self._change(pods, status={"conditions": [{"type": "PodScheduled", "status": "False", "message": "m"}]})

    def succeed(self, *pods: str) -> None:
        self._change(pods, status={"phase": "Succeeded"})

    def fail(self, *pods: str) -> None:
        self._change(pods, status={"phase": "Failed"})

    def leave(self, *pods: str) -> None:
        """Let victims of a preemption be deleted."""
        self._change(pods, metadata=LEAVING, status=PREEMPTED)

    def nominate(self, *pods: str) -> None:
        """Let the status of each ``pod:node`` name the node; without pods, as the scheduler has decided."""
        for name, node in [(name, node) for name, _, node in (pod.partition(":") for pod in pods)] or self._kept():
            self._change([name], status={"nominatedNodeName": node})

    def job(self, count: str) -> None:
        """Show how many pods have succeeded by the Job's status."""
        document = {"metadata": {"name": "train", "uid": self.owner}, "status": {"succeeded": int(count)}}
        event = Changed(Identity("train", "default", self.owner), msgspec.convert(document, Job))
        self.life.machine.handle(Job, event, self.life.now)

    def lose_job(self, how: str) -> None:
        event = Removed(Identity("train", "default", self.owner)) if how == "deleted" else Synced[Job](())
        self.life.machine.handle(Job, event, self.life.now)

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
        self.later("5")
        self.at_once(*pods)

    def at_once(self, *pods: str) -> None:
        self.decide(*pods)
        self.carry_out(*pods)

    def decide(self, *pods: str) -> None:
        """Expect that exactly these get nodes, but do not write their Bindings yet."""
        before = self._assigned()
        self._take_in(self.life.work(), pods)
        assert pods or self._assigned() == before

    def last_step(self, *pods: str) -> None:
        """Let the decision end with one step, and exactly these be bound."""
        self._take_in(self.life.machine.step(self.life.now) or [], pods)
        self.carry_out(*pods)

    def _take_in(self, found: list[Instruction], pods: tuple[str, ...]) -> None:
        self.found, self._answers = self._answers + found, []
        self.decided = {bind.pod_info.pod.metadata.name: bind for bind in binds(self.found)}
        assert sorted(self.decided) == sorted(pods)

    def carry_out(self, *pods: str) -> None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.clock()}
        bound = self.life.bound(*(self.decided[name] for name in pods))
        self._show(*(changed(pod, status={"conditions": [scheduled]}) for pod in bound))

    def refuse(self, kind: Kind, *pods: str) -> None:
        for name in pods:
            self._answers += self.life.machine.finished(self.decided[name], Outcome(kind, "why"), self.life.now)

    def portion(self, count: str) -> None:
        self.life.machine.group_scheduling.portion = int(count)

    def steps(self, count: str) -> None:
        """Take steps of a decision that does not end with them, and has no effect until then."""
        before = self._assigned()
        for _ in range(int(count)):
            self.life.machine.tick(self.life.now)
            assert self.life.machine.step(self.life.now) == []
        assert self._assigned() == before

    def interrupt(self, pod: str) -> None:
        """Let a pod come and be bound while a decision about a group goes on."""
        self.alone(pod)
        for _ in range(40):
            if (found := self.life.machine.step(self.life.now)) and binds(found):
                self._take_in(found, (pod,))
                self.carry_out(pod)
                self.life.machine.check()
                return
        raise AssertionError(f"{pod} is not bound after 40 steps")

    # What a test expects.

    def told(self, *words: str) -> None:
        """Expect ``pods: message`` of exactly the pods that were told; ``...`` at the end of a message stands for more.

        Pods with other messages follow after a slash.
        """
        messages = told(self.found)
        for part in " ".join(words).split(" / "):
            pods, _, message = part.partition(": ")
            for pod in words_of(pods):
                text = messages.pop(pod)
                assert text == message or (message.endswith("...") and text.startswith(message[:-3])), text
        assert messages == {}

    def refused(self, *words: str) -> None:
        """Expect the only report about a pod that cannot be read, as ``pod: part of the message``."""
        pod, _, part = " ".join(words).partition(": ")
        (report,) = [one for one in self.found if isinstance(one, Report) and one.pod.metadata.name == pod]
        assert part in report.message

    def evicted(self, *pods: str) -> None:
        """Expect that exactly these are evicted by the last decision, and let the API server accept that."""
        assert victims(self.found) == sorted(pods)
        for order in [one for one in self.found if isinstance(one, DeleteVictims)]:
            self._answers += self.life.machine.finished(order, DeleteVictimsResult(order.victims), self.life.now)

    def first(self, pod: str) -> None:
        """Expect which pod was decided about first."""
        assert next(iter(self.decided)) == pod

    def granted(self, pod: str, count: str) -> None:
        """Expect how many VFs a pod got."""
        assert len(self.decided[pod].pod_info.interfaces) == int(count)

    def on(self, *nodes: str) -> None:
        """Expect that the pods of the last decision are on these nodes."""
        assert sorted(one.assigned.node for one in self.decided.values()) == sorted(nodes)

    def kept(self, *rooms: str) -> None:
        """Expect that room is kept for exactly these pods, each as ``pod:node``; ``:node`` is for a spare."""
        assert sorted(f"{name}:{node}" for name, node in self._kept()) == sorted(rooms)

    def kept_vfs(self, count: str) -> None:
        """Expect that each room has exactly so many VFs."""
        assignments = [room.assignment for room in self._rooms()]
        assert [len(one.vfs) if one is not None else 0 for one in assignments] == [int(count)] * len(assignments)

    def recorded(self, pod: str) -> None:
        """Expect that a pod's Binding has recorded the room that is kept for spares."""
        assert read_spares(self.pods[pod].annotations) == tuple(room.assignment for room in self._rooms())

    def undisputed(self) -> None:
        """Expect that nothing happens because of the last events."""
        assert (self._answers, self.life.machine.vf_disputes.dispute_counts) == ([], {})

    def no_record(self) -> None:
        """Expect that nothing is known of any spares."""
        assert self.life.machine.group_scheduling.spares._times == {}

    def conditions(self) -> str:
        """Return what is written to PodGroups within three seconds."""
        found = [one for _ in range(3) for one in self.life.work(1.0) if isinstance(one, ReportGroup)]
        return "; ".join(f"{one.status}: {one.message}" for one in found)

    def due(self, time: str) -> None:
        assert self.life.machine.next_due() == float(time)

    def idle(self) -> None:
        """Expect that there is nothing to do now."""
        assert self.life.work() == []

    def urgent(self) -> str:
        """Return whether the only group waits to be completed before all others."""
        (members,) = self.life.machine.group_cache
        group = self.life.machine.pending_groups.in_queue(members.key)
        return "yes" if group is not None and group.is_urgent else "no"

    def _kept(self) -> list[tuple[str, str]]:
        pods = self.life.machine.pending_pods.pending
        return [(pods[room.uid].pod.metadata.name if room.uid in pods else "", room.node) for room in self._rooms()]

    def _assigned(self) -> set[str]:
        return {pod.uid for pod in self.life.machine.cache.assigned_pods()}

    def _rooms(self) -> list[AssignedPod]:
        return [room for one in self.life.machine.reservations.all() for room in one.rooms.values()]

    def _change(self, pods: Iterable[str], **fields: Any) -> None:
        self._show(*(changed(self.pods[name], **fields) for name in pods))

    def _show(self, *pods: Pod) -> None:
        self._answers += self.life.see(*pods)
        self.pods |= {pod.metadata.name: pod for pod in pods}

    def clock(self, hour: int | None = None) -> str:
        now = int(self.life.now) if hour is None else hour * 3600
        return f"2026-01-01T{now // 3600:02}:{now // 60 % 60:02}:{now % 60:02}Z"
