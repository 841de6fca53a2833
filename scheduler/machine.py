"""The scheduler without its edges: events in, instructions out, time as an argument.

`nodes` and `pods` take what the watches tell, `bound` what became of a bind; `step` decides about the next pod. All
return instructions: `Bind`, `Report` and `Notice`. Nothing here does I/O, so a whole life can be replayed in a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mooring import names
from mooring.assignment import Assignment, believe
from mooring.errors import AnnotationError
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from scheduler.cluster import Cluster, Seat
from scheduler.cycle import Bind, Unschedulable, decide
from scheduler.nodes import read_node
from scheduler.objects import Node, Pod
from scheduler.outcomes import Outcome
from scheduler.queue import NOTHING, Happening, Queue
from scheduler.resources import pod_requests
from scheduler.task import Refusal, Task, host_ports, read_task

Blame = Literal["pod", "node", "inventory", "assignment", "dispute"]


@dataclass(frozen=True, slots=True)
class Report:
    """Tell a pod's owner: by an event, and unless the pod was scheduled by its PodScheduled condition."""

    pod: Pod
    reason: Literal["Scheduled", "Unschedulable", "InvalidRequest", "DisputedVf"]
    message: str
    why: str = '{"v":1}'


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to log and to count: an object left out, an assignment not believed, a VF claimed twice."""

    blame: Blame
    event: str
    fields: Mapping[str, str] = field(default_factory=dict)


Instruction = Bind | Report | Notice


@dataclass(slots=True)
class _Pending:
    """A pod of ours that has no node yet, and the last message that its owner was told."""

    pod: Pod
    task: Task | Refusal
    told: str = ""


class Machine:
    """State and its transitions. Pods are known by uid: a name may be used again, a uid never is."""

    def __init__(self, scheduler_name: str) -> None:
        self.cluster = Cluster()
        self.queue = Queue()
        self._scheduler_name = scheduler_name
        self._pending: dict[str, _Pending] = {}
        self._left_out: dict[str, str] = {}

    def nodes(self, event: Event[Node], now: float) -> list[Instruction]:
        match event:
            case Synced(entries):
                gone = self.cluster.node_names() - {entry.identity.name for entry in entries}
                for name in gone:
                    self.cluster.remove_node(name)
                return [one for entry in entries for one in self.nodes(entry, now)]
            case Changed(_, node):
                return self._node(node, now)
            case Unreadable(identity, why):
                return self._leave_out_node(identity.name, why)
            case Removed(identity):
                self.cluster.remove_node(identity.name)
                return []

    def pods(self, event: Event[Pod], now: float) -> list[Instruction]:
        match event:
            case Synced(entries):
                there = {entry.identity.uid for entry in entries}
                known = self._pending.keys() | {seat.uid for seat in self.cluster.seats()}
                for uid in sorted(known - there):
                    self._leave(uid, now)
                return [one for entry in entries for one in self.pods(entry, now)]
            case Changed(identity, pod) if identity.uid:
                self._left_out.pop(identity.uid, None)
                return self._pod(pod, now)
            case Changed(identity):
                return self._leave_out_pod(identity, "metadata.uid is missing")
            case Unreadable(identity, why):
                return self._leave_out_pod(identity, why)
            case Removed(identity):
                self._left_out.pop(identity.uid, None)
                self._leave(identity.uid, now)
                return []

    def bound(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        """Take a bind's definite end."""
        uid = decision.task.uid
        if outcome.kind == "bound":
            self.cluster.confirm(uid)
            self._forget(uid)
            message = f"Successfully assigned {decision.task.pod.key} to {decision.seat.node}"
            report = Report(decision.task.pod, "Scheduled", message, decision.why)
            return [report, *self._ghost(decision)]
        seat = self.cluster.seat(uid)
        if seat is not None and seat.assumed:
            self.cluster.remove(uid, now)
            self.queue.wake(Happening.POD_GONE)
        return self._unbound(decision, outcome)

    def _ghost(self, decision: Bind) -> list[Instruction]:
        """The API server binds to a node that does not exist: say so; the garbage collector removes such pods."""
        if self.cluster.node(decision.seat.node) is not None:
            return []
        about = {"node": decision.seat.node, "pod": decision.task.pod.key, "uid": decision.task.uid}
        return [Notice("node", "pod bound to a node that was deleted meanwhile", about)]

    def step(self, now: float) -> list[Instruction] | None:
        """Decide about the next pod; None if none is ready."""
        uid = self.queue.pop(now)
        if uid is None:
            return None
        pending = self._pending[uid]
        if isinstance(pending.task, Refusal):
            self.queue.park(uid, NOTHING)
            return self._tell(pending, "InvalidRequest", pending.task.reason)
        decision = decide(pending.task, self.cluster, now)
        if isinstance(decision, Unschedulable):
            self.queue.park(uid, decision.helped_by)
            return self._tell(pending, "Unschedulable", decision.reason, decision.why)
        self.cluster.put(decision.seat, now)
        return [decision]

    def check(self) -> None:
        """Raise AssertionError if anything that is kept contradicts what it is derived from."""
        self.cluster.check()
        self.queue.check()
        assert set(self.queue.uids()) == self._pending.keys(), "the queue and the pending pods differ"

    def _node(self, node: Node, now: float) -> list[Instruction]:
        known = self.cluster.node(node.metadata.name)
        try:
            facts, error = read_node(node, known, now)
        except ValueError as unreadable:
            return self._leave_out_node(node.metadata.name, str(unreadable))
        self._left_out.pop(f"node {facts.name}", None)
        if facts != known:
            self.cluster.put_node(facts)
            self.queue.wake(Happening.NODE)
        fields = {"node": facts.name, "reason": error}
        return [Notice("inventory", "node left out: inventory cannot be read", fields)] if error else []

    def _leave_out_node(self, name: str, why: str) -> list[Instruction]:
        self.cluster.remove_node(name)
        return self._leave_out(f"node {name}", Notice("node", "node left out", {"node": name, "reason": why}))

    def _leave_out_pod(self, identity: Identity, why: str) -> list[Instruction]:
        """Leave a pod out; what it is known to hold on its node it keeps."""
        self._forget(identity.uid)
        fields = {"pod": f"{identity.namespace}/{identity.name}", "uid": identity.uid, "reason": why}
        return self._leave_out(identity.uid, Notice("pod", "pod left out", fields))

    def _leave_out(self, key: str, notice: Notice) -> list[Instruction]:
        """Say once why an object is left out, not at each of its heartbeats."""
        known, self._left_out[key] = self._left_out.get(key), notice.fields["reason"]
        return [] if known == notice.fields["reason"] else [notice]

    def _pod(self, pod: Pod, now: float) -> list[Instruction]:
        uid = pod.metadata.uid
        if pod.is_over:
            self._leave(uid, now)
            return []
        if pod.spec.node_name:
            return self._seat(pod, now)
        if self.cluster.seat(uid) is not None:
            # Its bind is on the way, or done and not shown yet.
            if (pending := self._pending.get(uid)) is not None:
                pending.pod, pending.task = pod, read_task(pod)
            return []
        waits = pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates
        if waits and pod.spec.scheduler_name == self._scheduler_name:
            self._offer(pod, now)
        else:
            self._forget(uid)
        return []

    def _offer(self, pod: Pod, now: float) -> None:
        uid, known = pod.metadata.uid, self._pending.get(pod.metadata.uid)
        if known is not None and _asks_the_same(known.pod, pod):
            # Only its status changed, most often by our own hand.
            known.pod = pod
            return
        self._pending[uid] = _Pending(pod, read_task(pod), known.told if known else _condition_message(pod))
        self.queue.offer(uid, pod.spec.priority or 0, pod.metadata.creation_timestamp or "", now)

    def _seat(self, pod: Pod, now: float) -> list[Instruction]:
        uid, node = pod.metadata.uid, pod.spec.node_name or ""
        self._forget(uid)
        assumed = self.cluster.seat(uid)
        seat, notices = _seated(pod)
        self.cluster.put(seat, now)
        if assumed is not None and assumed.node != node:
            self.queue.wake(Happening.POD_GONE)
        if seat.assignment is not None and (assumed is None or assumed.assignment != seat.assignment):
            notices += self._disputes(pod, seat)
        return notices

    def _disputes(self, pod: Pod, seat: Seat) -> list[Instruction]:
        found: list[Instruction] = []
        for pci, uids in self.cluster.disputes(seat.node).items():
            if seat.uid not in uids:
                continue
            pods = ", ".join(other.pod for uid in uids if (other := self.cluster.seat(uid)) is not None)
            message = f"VF {pci} of node {seat.node} is claimed by {pods}: not given again before all of them are gone"
            fields = {"node": seat.node, "pci": pci, "pod": seat.pod, "uid": seat.uid, "reason": f"claimed by {pods}"}
            found += [Notice("dispute", "VF is claimed twice", fields), Report(pod, "DisputedVf", message)]
        return found

    def _leave(self, uid: str, now: float) -> None:
        self._forget(uid)
        if self.cluster.remove(uid, now) is not None:
            self.queue.wake(Happening.POD_GONE)

    def _forget(self, uid: str) -> None:
        self._pending.pop(uid, None)
        self.queue.forget(uid)

    def _unbound(self, decision: Bind, outcome: Outcome) -> list[Instruction]:
        uid, pending = decision.task.uid, self._pending.get(decision.task.uid)
        if pending is None:
            return []
        if outcome.kind in ("changed", "forbidden"):
            self.queue.retry(uid)
            forbidden = outcome.kind == "forbidden"
            return self._tell(pending, "Unschedulable", f"binding forbidden: {outcome.reason}") if forbidden else []
        if outcome.kind == "refused":
            self.queue.park(uid, NOTHING)
            return self._tell(pending, "Unschedulable", f"the API server refuses the binding: {outcome.reason}")
        # Taken, gated, deleting, gone: the watch shows what is next, as a change of this pod or its end.
        self._forget(uid)
        return []

    def _tell(
        self, pending: _Pending, reason: Literal["Unschedulable", "InvalidRequest"], message: str, why: str = '{"v":1}'
    ) -> list[Instruction]:
        if pending.told == message:
            return []
        pending.told = message
        return [Report(pending.pod, reason, message, why)]


def _seated(pod: Pod) -> tuple[Seat, list[Instruction]]:
    """Return what a bound pod uses; what cannot be read counts as nothing, and a notice says so."""
    uid, node = pod.metadata.uid, pod.spec.node_name or ""
    notices: list[Instruction] = []
    assignment: Assignment | None = None
    resources: Mapping[str, int] = {}
    about = {"pod": pod.key, "uid": uid, "node": node}
    try:
        assignment = believe(pod.annotations, uid, node)
    except AnnotationError as unreadable:
        notices.append(Notice("assignment", "assignment is not believed", about | {"reason": str(unreadable)}))
    try:
        resources = pod_requests(pod.spec)
    except ValueError as unreadable:
        notices.append(Notice("pod", "pod's resources cannot be read", about | {"reason": str(unreadable)}))
    return Seat(uid, pod.key, node, resources, tuple(host_ports(pod.spec)), assignment), notices


def _asks_the_same(old: Pod, new: Pod) -> bool:
    keys = (names.REQUEST, names.SEED_REQUEST, names.PLACEMENT, names.ASSIGNMENT)
    same_keys = all(old.annotations.get(key) == new.annotations.get(key) for key in keys)
    return same_keys and old.spec == new.spec and old.metadata.labels == new.metadata.labels


def _condition_message(pod: Pod) -> str:
    """Return what the owner was told before we started."""
    scheduled = (one for one in pod.status.conditions or () if one.type == "PodScheduled" and one.status == "False")
    return next((one.message or "" for one in scheduled), "")
