"""What happens to groups in a small cluster, as steps of stories.

``a:2h`` declares the run time of a pod. Where a node's name is expected, a pod's name stands for its node.
"""

import json
from typing import Any

from mooring.kube.events import Identity, Removed
from mooring.names import GROUP, RUNS
from scheduler.cycle.instructions import Evict, Report, ReportGroup
from scheduler.kube.workload_objects import PodGroup
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.pending.groups.promises import read_promise
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import annotated, binds, changed, kept_on, show_object, told, victims
from tests.scheduler.pending.scene import Scene, pod_fields

# Of a PodGroup: its members go one by one, or only together.
_MODES: Json = {"": None, "all": {"all": {}}, "single": {"single": {}}}
_UNITS_S = {"h": 3600, "m": 60, "s": 1}


class Story(Scene):
    """A scene with groups, in which pods want two VFs, which is all that a node has."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # By group: the fields of its members.
        self.groups: dict[str, Json] = {}
        self.last_start = 0.0

    def says(self, *words: str) -> None:
        """Check a part of the message, in which ``{a}`` is the node of pod a, and ``$`` its end."""
        nodes = {name: pod.spec.node_name for name, pod in self.pods.items()}
        assert " ".join(words).format_map(nodes) in f"{self.message}$"

    def conceals(self, *words: str) -> None:
        assert " ".join(words) not in self.message

    def on(self, *nodes: str) -> None:
        """Check the nodes of the pods that were bound last."""
        assert sorted(one.assigned.node for one in binds(self.found)) == sorted(map(self.node_of, nodes))

    def reports(self) -> str:
        """Let the first eviction succeed, and return the report's reason and message."""
        (report,) = self.machine.finished(self.evictions[0], "evicted", self.now)
        assert isinstance(report, Report)
        return f"{report.reason} {report.message}"

    @property
    def message(self) -> str:
        """What the members of the first group that waits are told, all the same."""
        pods = [one for one in self.machine.pending_pods.pending.values() if one.membership is not None]
        (message,) = {one.reported_message for one in pods if one.membership == pods[0].membership}
        return message

    @property
    def evictions(self) -> list[Evict]:
        return [one for one in self.found if isinstance(one, Evict)]

    def gang(self, count: str = "", uid: str = "u1", mode: str = "", priority: str = "", **conditions: str) -> None:
        """Show PodGroup train with such conditions, type and status; without a count, delete it."""
        if not count:
            self.machine.handle(PodGroup, Removed(Identity("train", "default")), self.now)
            return
        spec: Json = {"schedulingPolicy": {"gang": {"minCount": int(count)}}, "disruptionMode": _MODES.get(mode, mode)}
        spec |= {"priority": int(priority)} if priority else {}
        shown = [{"type": type_, "status": status, "reason": "", "message": ""} for type_, status in conditions.items()]
        metadata = {"name": "train", "namespace": "default", "uid": uid, "resourceVersion": "7", "generation": 3}
        document = {"metadata": metadata, "spec": spec, "status": {"conditions": shown}}
        show_object(self.machine, PodGroup, document, self.now)

    def come(self, *names: str, group: str = "", **fields: str) -> None:
        """Let pods come, which are further members of a ``group`` that came before."""
        for name, _, runs in (name.partition(":") for name in names):
            if group:
                self.show(self.make_pod(name, **self.groups[group]))
            else:
                self.pod(name, **{"vfs": "2", "runs": runs, **fields})

    def group(self, *names: str, kind: str = "annotation", **fields: str) -> None:
        """Let a group come by its annotation, or with ``kind=PodGroup`` by its PodGroup."""
        name = names[0].rpartition("-")[0]
        group: Json = {key: fields.pop(key) for key in ("within", "runs") if key in fields}
        group |= {"name": name, "min": len(names), "spares": int(fields.pop("spares", "0"))}
        self.groups[name] = members = pod_fields(**{"vfs": "2", **fields})
        if kind == "PodGroup":
            members["spec"]["schedulingGroup"] = {"podGroupName": name}
        else:
            members["annotations"] = {GROUP: json.dumps(group)}
        self.come(*names, group=name)

    def wait(self, *times: str) -> str:
        """Let time pass in so many turns, and return all that is bound; it is after each of them."""
        self.found = []
        for time in times:
            found = self.work(_seconds(time))
            self.found += found
            self.pods |= {pod.metadata.name: pod for pod in self.bound(*binds(found))}
        names = [one.pod_info.pod.metadata.name for one in binds(self.found)]
        return " ".join(sorted(names, key=lambda name: (len(name), name)))

    def quiet(self, *times: str, tries: str = "0") -> None:
        """Let time pass in which groups are tried so often at most; if never, nobody is told anything."""
        decisions = self.machine.group_scheduling.decisions
        before = decisions["unschedulable"]
        self.wait(*times)
        assert decisions["unschedulable"] - before <= int(tries)
        assert int(tries) or not told(self.found)

    def begin(self, time: str) -> None:
        """Let time pass, and make only the first turn of the next decision."""
        self.now += _seconds(time)
        assert self.machine.step(self.now) == []

    def tick(self, time: str) -> None:
        """Let time pass in which nothing is decided."""
        self.now += _seconds(time)
        self.found = [*self.machine.tick(self.now)]

    def leader(self, *nodes: str) -> None:
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
        self.wait("0", "1", "1")

    def put(self, *names: str, **fields: str) -> None:
        self.come(*names, **fields)
        self.wait("0")
        assert all(self.node_of(name.partition(":")[0]) for name in names)

    def run(self, *names: str, **fields: str) -> None:
        self.put(*names, **fields)
        self.phase("Running", *(name.partition(":")[0] for name in names))

    def terminate(self, *names: str, at: str = "2026-01-01T00:00:00Z") -> None:
        """Let the API server accept deletions, which finalizers hold up."""
        metadata = {"deletionTimestamp": at, "finalizers": ["example.com/f"]}
        self.show(*(changed(self.pods[name], metadata=metadata) for name in names))

    def declare(self, *names: str) -> None:
        pods = (name.partition(":") for name in names)
        self.show(*(annotated(self.pods[name], {RUNS: runs}) for name, _, runs in pods))

    def empty(self, node: str) -> None:
        self.delete(*[name for name, pod in self.pods.items() if pod.spec.node_name == node])

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

    def kept(self, *nodes: str) -> None:
        assert kept_on(self) == sorted(map(self.node_of, nodes))

    def owner(self, name: str) -> None:
        """Check which group has first call on what becomes free."""
        owner = self.machine.pending_groups.room_owner
        assert (owner.name if owner is not None else "nobody") == name

    def start(self, time: str, within: str = "1") -> None:
        """Check the promised start, without the time that nodes need; ``same`` as at the last check."""
        promise = read_promise(self.message, 0.0)
        assert promise is not None, self.message
        expected, tolerance = (self.last_start, 0.0) if time == "same" else (_seconds(time), float(within))
        assert abs(promise.at - expected) <= tolerance, self.message
        self.last_start = promise.at

    def since(self, time: str) -> None:
        (reservation,) = self.machine.reservations.all()
        assert abs(reservation.since - _seconds(time)) <= 1.0

    def promised(self, *groups: str) -> None:
        promised = [one for one in self.machine.reservations.all() if one.cause == "backfill"]
        assert [one.group.name for one in promised if one.group] == list(groups)

    def writes(self, *statuses: str) -> None:
        """Check the conditions that are written: True with two members bound, or False with the members' message."""
        written = [(one.status, one.reason, one.message) for one in self.found if isinstance(one, ReportGroup)]
        scheduled = ("True", "Scheduled", "members bound: 2, needed: at least 2")
        assert written == [
            scheduled if status == "True" else ("False", "Unschedulable", self.message) for status in statuses
        ]

    def victims(self, *names: str) -> None:
        assert victims(self.found) == sorted(names)

    def evicts(self, *names: str) -> None:
        assert sorted(one.pod.metadata.name for one in self.evictions) == sorted(names)

    def refuse(self) -> None:
        for eviction in self.evictions:
            assert self.machine.finished(eviction, "refused", self.now) == []


def _seconds(time: str) -> float:
    return float(time[:-1]) * _UNITS_S[time[-1]] if time[-1] in _UNITS_S else float(time)
