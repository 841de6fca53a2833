"""What happens to groups in a small cluster, as steps of stories, beside those of `tests.scheduler.scene`.

``nodes n1 n2 | group train-0..2 | wait 0 | nodes n3 | wait 15 > train-0..2``: three pods that need each other do not
start on two nodes; a third one comes, and they start within 15 s.
"""

import json
from collections.abc import Callable
from typing import Any

from mooring.kube.events import Identity, Removed, Synced
from mooring.names import POD_GROUP_LABEL
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictimsResult, Evict, Instruction, Report, ReportGroup
from scheduler.kube.objects import Pod
from scheduler.kube.workload_objects import CoschedulingPodGroup, PodGroup
from scheduler.pending.groups.pending_groups import NO_OPTIONS
from scheduler.state.machine import Machine
from tests.scheduler.group_life import binds, changed, changed_event, orders, show_object, told, victims
from tests.scheduler.scene import Json, Scene, seconds_of
from tests.scheduler.story import words_of

# Of a PodGroup: its members go one by one, or only together.
_MODES: Json = {"": None, "all": {"all": {}}, "single": {"single": {}}}
# Variants of stories, in which another scheduler leads, or not.
LEADER = {"new leader": "lead", "new leader, shown backwards": "lead backwards"}
THEN = {"same leader": "", **LEADER}
# How the fields of a group's annotation are read.
_READ: dict[str, Callable[[str], object]] = {
    "name_from": str,
    "min": int,
    "within": str,
    "runs": str,
    "rails": str,
    "spares": int,
    "role_from": str,
    "roles": lambda text: {role: int(count) for role, _, count in (pair.partition(":") for pair in text.split(","))},
}


class GroupScene(Scene):
    """A scene with groups."""

    # The operator's options.
    options = NO_OPTIONS

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # By group: the fields of its members.
        self.groups: dict[str, dict[str, str]] = {}

    # What users and the cluster do.

    def group(self, *pods: str, kind: str = "annotation", **fields: str) -> None:
        """Let a group come, called as its first pod is before the number, that needs as many as come.

        Its pods name it by their annotation with these fields, or with ``kind=PodGroup`` or ``kind=label`` a PodGroup.
        """
        name = fields.pop("name", pods[0].rpartition("-")[0])
        group: Json = {} if "name_from" in fields else {"name": name}
        group |= {} if "roles" in fields else {"min": len(pods)}
        group |= {key: read(fields.pop(key)) for key, read in _READ.items() if key in fields}
        if kind == "PodGroup":
            fields["pod_group"] = name
        elif kind == "label":
            fields["labels"] = f"{POD_GROUP_LABEL}:{name}"
        else:
            fields["annotation"] = json.dumps(group)
        self.groups[name] = fields
        self.come(*pods, group=name)

    def come(self, *pods: str, group: str = "", **fields: str) -> None:
        """Let pods come, which with ``group`` are like those that came with it before, but for these fields."""
        super().come(*pods, **({**self.groups[group], **fields} if group else fields))

    def change(self, *pods: str, group: str = "", **fields: str) -> None:
        """Let pods have other fields, or name a group that came by its annotation."""
        membership = {"annotation": self.groups[group]["annotation"]} if group else {}
        super().change(*pods, **{**membership, **fields})

    def gang(self, name: str, count: str = "", mode: str = "", priority: str = "", **words: str) -> None:
        """Show a PodGroup with a ``uid``, conditions, ``within`` a domain; without a count, delete it."""
        if not count:
            self.machine.handle(PodGroup, Removed(Identity(name, "default")), self.now)
            return
        spec: Json = {"schedulingPolicy": {"gang": {"minCount": int(count)}}, "disruptionMode": _MODES.get(mode, mode)}
        spec |= {"priority": int(priority)} if priority else {}
        spec["schedulingConstraints"] = {"topology": [{"key": words.pop("within")}]} if "within" in words else None
        metadata: Json = {"name": name, "namespace": "default", "uid": words.pop("uid", "u1"), "resourceVersion": "7"}
        metadata |= {"generation": 3, "creationTimestamp": self.stamp()}
        conditions = [{"type": type_, "status": status, "reason": "", "message": ""} for type_, status in words.items()]
        document = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
        show_object(self.machine, PodGroup, document, self.now)

    def coscheduling(self, name: str, count: str) -> None:
        """Show a PodGroup of scheduler-plugins."""
        document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": int(count)}}
        show_object(self.machine, CoschedulingPodGroup, document, self.now)

    def fill(self, *nodes: str, **fields: str) -> None:
        """Show nodes, each full with a pod: ``on-n1`` and so on."""
        self.nodes(*nodes)
        self.come(*(f"on-{node}@{node}" for node in nodes), **fields)

    def empty(self, node: str) -> None:
        self.delete(*[name for name, pod in self.pods.items() if pod.spec.node_name == node])

    def unlist(self, pod: str) -> None:
        """Let a new list of pods lack one: the watch was cut when it was deleted. Nothing of it is kept."""
        uid = self.pods.pop(pod).metadata.uid
        self.machine.handle(Pod, Synced(tuple(map(changed_event, self.pods.values()))), self.now)
        assert self.machine.group_cache.of(uid) is None

    def lead(self, order: str = "", without: str = "") -> None:
        """Let another scheduler lead, which reads what the last one wrote; a node may be gone, with its pods."""
        last, lost = self.machine, self.node_of(without)
        last.check()
        self.machine = Machine("mooring", group_options=self.options)
        self.node_fields.pop(lost, None)
        for name, fields in self.node_fields.items():
            self.nodes(name, **fields)
        for pod in list(self.pods.values())[:: -1 if order else 1]:
            pending = last.pending_pods.pending.get(pod.metadata.uid)
            if pending is not None and pending.reported_message:
                condition = {"type": "PodScheduled", "status": "False", "message": pending.reported_message}
                node = last.reservations.node_of(pod.metadata.uid)
                pod = changed(pod, status={"conditions": [condition], "nominatedNodeName": node})
            if not lost or pod.spec.node_name != lost:
                self.show(pod)

    # What the scheduler does.

    def wait(self, *times: str) -> str:
        """Let time pass in so many turns, and return all that is bound; it is after each of them."""
        turns = list[Instruction]()
        for time in times:
            if names := self.decide(time):
                self.answer("bound", *names.split())
            turns += self.found
        self.found = turns
        return self.bound_names()

    def decide(self, time: str = "0") -> str:
        """Let time pass, and return which pods get nodes; their Bindings take a while."""
        before = self._assigned()
        names = self.take(self.work(seconds_of(time)))
        assert self._assigned() == before | {bind.pod_info.uid for bind in binds(self.found)}
        return names

    def tick(self) -> None:
        """Do what is due, but decide nothing."""
        self.take([*self.machine.tick(self.now)])

    def steps(self, count: str) -> None:
        """Take steps of a decision that does not end with them, and has no effect until then."""
        before = self._assigned()
        assert [self.machine.step(self.now) for _ in range(int(count))] == [[]] * int(count)
        assert self._assigned() == before

    def portion(self, count: str) -> None:
        """Let a step try so many members."""
        self.machine.group_scheduling.portion = int(count)

    def put(self, *pods: str, **fields: str) -> None:
        """Let pods come, and be bound."""
        self.come(*pods, **fields)
        self.wait("0")
        assert all(self.node_of(name.partition("~")[0]) for name in pods)

    def run(self, *pods: str, **fields: str) -> None:
        """Let pods come, be bound, and run."""
        self.put(*pods, **fields)
        status = {"phase": "Running", "startTime": self.stamp()}
        self.show(*(changed(self.pods[name.partition("~")[0]], status=status) for name in pods))

    def stream(self, count: str, **fields: str) -> str:
        """Let small pods end as they came, each followed by another one, until members are bound; return the last."""
        names = ""
        for number in range(int(count)):
            self.come(f"small-next-{number}", vfs="1", **fields)
            self.wait("1")
            running = (name for name, pod in self.pods.items() if name.startswith("small") and pod.spec.node_name)
            if (oldest := next(running, None)) is None:
                break
            self.delete(oldest)
            names = self.wait("1")
            if any(bind.pod_info.membership for bind in binds(self.found)):
                break
        return names

    def quiet(self, *times: str, tries: str = "0") -> None:
        """Let time pass in which groups are tried so often at most; if never, nothing happens."""
        self.effects, decisions = [], self.machine.group_scheduling.decisions
        before = decisions["unschedulable"]
        self.wait(*times)
        assert decisions["unschedulable"] - before <= int(tries)
        assert int(tries) or self.found == []

    # What a test expects of the last decision.

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

    def on(self, *nodes: str) -> None:
        """Expect that the pods that were bound are on these nodes."""
        assert sorted(one.assigned.node for one in binds(self.found)) == sorted(map(self.node_of, nodes))

    def first(self, pod: str) -> None:
        """Expect which pod was decided about first."""
        assert binds(self.found)[0].pod_info.pod.metadata.name == pod

    def granted(self, pod: str, count: str) -> None:
        """Expect how many VFs a pod got."""
        (bind,) = [bind for bind in binds(self.found) if bind.pod_info.pod.metadata.name == pod]
        assert len(bind.pod_info.interfaces) == int(count)

    def victims(self, *pods: str) -> None:
        """Expect that exactly these are preempted, and let the API server accept that."""
        assert victims(self.found) == sorted(pods)
        for order in orders(self.found):
            self.effects += self.machine.finished(order, DeleteVictimsResult(order.victims), self.now)

    def evicts(self, *pods: str) -> None:
        """Expect that exactly these are evicted."""
        assert sorted(one.pod.metadata.name for one in self.evictions) == sorted(pods)

    def evict(self) -> str:
        """Let the first eviction succeed, and return the report's reason and message."""
        (report,) = self.machine.finished(self.evictions[0], "evicted", self.now)
        assert isinstance(report, Report)
        return f"{report.reason} {report.message}"

    def refuse_evictions(self) -> None:
        """Let the API server refuse the evictions."""
        for eviction in self.evictions:
            assert self.machine.finished(eviction, "refused", self.now) == []

    def writes(self) -> str:
        """Return what is written to PodGroups: ``False`` with the members' message, or how many are bound."""
        written = [one for one in self.found if isinstance(one, ReportGroup)]
        told = [(one.reason, one.message) for one in written if one.status == "False"]
        assert told == [("Unschedulable", self.message) for _ in told]
        return " ".join("False" if one.status == "False" else f"{one.reason}: {one.message}" for one in written)

    # What a test expects of the machine.

    def says(self, *words: str) -> None:
        """Expect a part of the first group's message, in which ``{a}`` is the node of pod a, and ``$`` its end."""
        nodes = {name: pod.spec.node_name for name, pod in self.pods.items()}
        assert " ".join(words).format_map(nodes) in f"{self.message}$"

    def kept(self, *rooms: str) -> None:
        """Expect room for exactly these pods, each as ``pod:node`` (``:node`` for a spare), or on these nodes."""
        pods = self.machine.pending_pods.pending
        kept = [(pods[room.uid].pod.metadata.name if room.uid in pods else "", room.node) for room in self.rooms]
        has_pods = any(":" in room for room in rooms)
        expected = rooms if has_pods else map(self.node_of, rooms)
        assert sorted(f"{name}:{node}" if has_pods else node for name, node in kept) == sorted(expected)

    def kept_vfs(self, count: str) -> None:
        """Expect that each room has exactly so many VFs."""
        assignments = [room.assignment for room in self.rooms]
        assert [len(one.vfs) if one is not None else 0 for one in assignments] == [int(count)] * len(assignments)

    def owner(self, group: str) -> None:
        """Expect which group has first call on what becomes free."""
        owner = self.machine.pending_groups.room_owner
        assert (owner.name if owner is not None else "nobody") == group

    def urgent(self) -> str:
        """Return whether the only group waits to be completed before all others."""
        (members,) = self.machine.group_cache
        group = self.machine.pending_groups.in_queue(members.key)
        return "yes" if group is not None and group.is_urgent else "no"

    @property
    def message(self) -> str:
        """What the members of the first group that waits are told, all the same."""
        pods = [one for one in self.machine.pending_pods.pending.values() if one.membership is not None]
        (message,) = {one.reported_message for one in pods if one.membership == pods[0].membership}
        return message

    @property
    def evictions(self) -> list[Evict]:
        return [one for one in self.found if isinstance(one, Evict)]

    @property
    def rooms(self) -> list[AssignedPod]:
        return [room for one in self.machine.reservations.all() for room in one.rooms.values()]

    def _assigned(self) -> set[str]:
        return {pod.uid for pod in self.machine.cache.assigned_pods()}
