"""The life of a cluster with groups, step by step: ``nodes n1 n2; run a:2h; group pair*2; gone a; wait 1 -> pair*2``.

``pair*2`` are pair-0 and pair-1, ``a:2h`` declares its run time, and a pod's name may stand for its node. After ``->``
come all pods that the step binds, with ``name@node`` where the node matters.
"""

import json
from typing import Any

import msgspec

from mooring.kube.events import Changed, Identity, Removed
from mooring.names import GROUP, RUNS
from scheduler.cycle.instructions import Evict, Report, ReportGroup
from scheduler.kube.workload_objects import PodGroup
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.pending.groups.promises import read_promise
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import annotated, binds, changed, kept_on, told, victims
from tests.scheduler.pending.scene import Scene, each, pod_fields

# Of a PodGroup: its members go one by one, or only together.
_MODES: Json = {"": None, "all": {"all": {}}, "single": {"single": {}}}
_UNITS_S = {"h": 3600, "m": 60, "s": 1}


class Story(Scene):
    """A scene with groups, in which pods want two VFs, which is all that a node has."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # By group: the fields of its members.
        self.groups: dict[str, Json] = {}
        self.start = 0.0

    def act(self, verb: str, rest: str) -> None:
        words, arrow, pods = rest.partition("->")
        super().act(verb, words)
        if arrow:
            self._check_bound(list(each(pods.split())), f"{verb} {rest}")

    def text_says(self, text: str) -> None:
        nodes = {name: pod.spec.node_name for name, pod in self.pods.items()}
        assert text.format_map(nodes) in f"{self.message}$"

    def text_conceals(self, text: str) -> None:
        assert text not in self.message

    def _check_bound(self, pods: list[str], step: str) -> None:
        bound = {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(self.found)}
        wanted = {name: self.node_of(node) or bound.get(name) for name, _, node in (pod.partition("@") for pod in pods)}
        assert bound == wanted, step

    def text_reports(self, text: str) -> None:
        """Let the first eviction succeed, and check the report's reason and message."""
        (report,) = self.machine.finished(self.evictions[0], "evicted", self.now)
        assert isinstance(report, Report)
        assert f"{report.reason} {report.message}" == text

    @property
    def message(self) -> str:
        """What the members of the first group that waits are told, all the same."""
        pods = [one for one in self.machine.pending_pods.pending.values() if one.membership is not None]
        (message,) = {one.reported_message for one in pods if one.membership == pods[0].membership}
        return message

    @property
    def evictions(self) -> list[Evict]:
        return [one for one in self.found if isinstance(one, Evict)]

    def step_gang(
        self, count: str = "", uid: str = "u1", mode: str = "", priority: str = "", **conditions: str
    ) -> None:
        """Show PodGroup train with such conditions, type and status; without a count, delete it."""
        identity = Identity("train", "default")
        if not count:
            self.machine.handle(PodGroup, Removed(identity), self.now)
            return
        spec: Json = {"schedulingPolicy": {"gang": {"minCount": int(count)}}, "disruptionMode": _MODES.get(mode, mode)}
        spec |= {"priority": int(priority)} if priority else {}
        shown = [{"type": type_, "status": status, "reason": "", "message": ""} for type_, status in conditions.items()]
        metadata = {"name": "train", "namespace": "default", "uid": uid, "resourceVersion": "7", "generation": 3}
        document = {"metadata": metadata, "spec": spec, "status": {"conditions": shown}}
        self.machine.handle(PodGroup, Changed(identity, msgspec.convert(document, PodGroup)), self.now)

    def step_come(self, *names: str, **fields: str) -> None:
        for name, _, runs in (name.partition(":") for name in names):
            self.step_pod(name, **{"vfs": "2", "runs": runs, **fields})

    def step_group(self, *names: str, kind: str = "annotation", **fields: str) -> None:
        """Let a group come by its annotation, or with ``kind=PodGroup`` by its PodGroup."""
        name = names[0].rpartition("-")[0]
        group: Json = {key: fields.pop(key) for key in ("within", "runs") if key in fields}
        group |= {"name": name, "min": len(names), "spares": int(fields.pop("spares", "0"))}
        self.groups[name] = members = pod_fields(**{"vfs": "2", **fields})
        if kind == "PodGroup":
            members["spec"]["schedulingGroup"] = {"podGroupName": name}
        else:
            members["annotations"] = {GROUP: json.dumps(group)}
        self.step_member(*names, group=name)

    def step_member(self, *names: str, group: str) -> None:
        self.show(*(self.make_pod(name, **self.groups[group]) for name in names))

    def step_wait(self, *times: str) -> None:
        """Let time pass in so many turns; what is decided is bound after each."""
        self.found = []
        for time in times:
            found = self.work(_seconds(time))
            self.found += found
            self.pods |= {pod.metadata.name: pod for pod in self.bound(*binds(found))}

    def step_quiet(self, *times: str, tries: str = "0") -> None:
        """Let time pass in which groups are tried so often at most; if never, nobody is told anything."""
        decisions = self.machine.group_scheduling.decisions
        before = decisions["unschedulable"]
        self.step_wait(*times)
        assert decisions["unschedulable"] - before <= int(tries)
        assert int(tries) or not told(self.found)

    def step_begin(self, time: str) -> None:
        """Let time pass, and make only the first turn of the next decision."""
        self.now += _seconds(time)
        assert self.machine.step(self.now) == []

    def step_tick(self, time: str) -> None:
        """Let time pass in which nothing is decided."""
        self.now += _seconds(time)
        self.found = [*self.machine.tick(self.now)]

    def step_leader(self, *nodes: str) -> None:
        """Let a leader with ``--backfill`` follow in 100 s: it sees these nodes, their pods, and the waiting pair."""
        names, message, reservations = [*map(self.node_of, nodes)], self.message, self.machine.reservations
        self.machine.check()
        self.machine = Machine("mooring", group_options=GroupOptions(backfill=True))
        self.now += 100.0
        start = "1970-01-01T00:00:00Z"
        self.nodes(*names)
        for pod in list(self.pods.values()):
            node = reservations.node_of(pod.metadata.uid)
            condition = {"type": "PodScheduled", "status": "False", "message": message}
            if node:
                self.show(changed(pod, status={"nominatedNodeName": node, "conditions": [condition]}))
            elif pod.spec.node_name in names:
                status = {"phase": "Running", "startTime": start}
                self.show(changed(pod, metadata={"creationTimestamp": start}, status=status))
        self.step_wait("0", "1", "1")

    def step_place(self, *names: str, **fields: str) -> None:
        self.step_come(*names, **fields)
        self.step_wait("0")
        assert all(self.node_of(name.partition(":")[0]) for name in names)

    def step_run(self, *names: str, **fields: str) -> None:
        self.step_place(*names, **fields)
        self.step_phase("Running", *(name.partition(":")[0] for name in names))

    def step_delete(self, *names: str, at: str = "2026-01-01T00:00:00Z") -> None:
        """Let the API server accept deletions, which finalizers hold up."""
        metadata = {"deletionTimestamp": at, "finalizers": ["example.com/f"]}
        self.show(*(changed(self.pods[name], metadata=metadata) for name in names))

    def step_declare(self, *names: str) -> None:
        pods = (name.partition(":") for name in names)
        self.show(*(annotated(self.pods[name], {RUNS: runs}) for name, _, runs in pods))

    def step_empty(self, node: str) -> None:
        self.step_gone(*[name for name, pod in self.pods.items() if pod.spec.node_name == node])

    def step_stream(self, count: str, **fields: str) -> None:
        """Let small pods end as they came, each followed by another one, until members are bound."""
        for number in range(int(count)):
            self.step_come(f"small-next-{number}", vfs="1", **fields)
            self.step_wait("1")
            running = (name for name, pod in self.pods.items() if name.startswith("small") and pod.spec.node_name)
            if (oldest := next(running, None)) is None:
                return
            self.step_gone(oldest)
            self.step_wait("1")
            if any(bind.pod_info.membership for bind in binds(self.found)):
                return

    def step_kept(self, *nodes: str) -> None:
        assert kept_on(self) == sorted(map(self.node_of, nodes))

    def step_owner(self, name: str) -> None:
        """Check which group has first call on what becomes free."""
        owner = self.machine.pending_groups.room_owner
        assert (owner.name if owner is not None else "nobody") == name

    def step_start(self, time: str, within: str = "1") -> None:
        """Check the promised start, without the time that nodes need; ``same`` as at the last check."""
        promise = read_promise(self.message, 0.0)
        assert promise is not None, self.message
        expected, tolerance = (self.start, 0.0) if time == "same" else (_seconds(time), float(within))
        assert abs(promise.at - expected) <= tolerance, self.message
        self.start = promise.at

    def step_since(self, time: str) -> None:
        (reservation,) = self.machine.reservations.all()
        assert abs(reservation.since - _seconds(time)) <= 1.0

    def step_promised(self, *groups: str) -> None:
        promised = [one for one in self.machine.reservations.all() if one.cause == "backfill"]
        assert [one.group.name for one in promised if one.group] == list(groups)

    def step_writes(self, *statuses: str) -> None:
        """Check the conditions that are written: True with two members bound, or False with the members' message."""
        written = [(one.status, one.reason, one.message) for one in self.found if isinstance(one, ReportGroup)]
        scheduled = ("True", "Scheduled", "members bound: 2, needed: at least 2")
        assert written == [
            scheduled if status == "True" else ("False", "Unschedulable", self.message) for status in statuses
        ]

    def step_victims(self, *names: str) -> None:
        assert victims(self.found) == sorted(names)

    def step_evicts(self, *names: str) -> None:
        assert sorted(one.pod.metadata.name for one in self.evictions) == sorted(names)

    def step_refuse(self) -> None:
        for eviction in self.evictions:
            assert self.machine.finished(eviction, "refused", self.now) == []


def _seconds(time: str) -> float:
    return float(time[:-1]) * _UNITS_S[time[-1]] if time[-1] in _UNITS_S else float(time)
