"""The scheduler without its edges: events in, instructions out, time as an argument.

`nodes` and `pods` take what the watches tell, `bound`, `evicted` and `preempted` what became of a write; `step` decides
about the next pod, `tick` does what is due at a time. All return instructions: `Bind`, `Evict`, `Preempt`, `Report` and
`Notice`. Nothing here does I/O, so a whole life can be replayed in a test.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from mooring.assignment import Assignment
from mooring.kube.events import Change, Changed, Event, Identity, Removed, Synced, Unreadable
from scheduler.cluster import Cluster, Seat
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle import Bind, Decider, Lap, Unschedulable, Why, no_lap
from scheduler.happenings import of_leaving, of_node
from scheduler.instructions import (
    Blame,
    Ending,
    Evict,
    Instruction,
    Notice,
    Preempt,
    Preempted,
    Prepare,
    Prepared,
    Report,
)
from scheduler.left_out import LeftOut
from scheduler.missing import missing
from scheduler.nodes import NodeFacts, read_node
from scheduler.nominating import Nominating
from scheduler.objects import Node, Pod
from scheduler.outcomes import Outcome
from scheduler.pending import Pending
from scheduler.queue import NOTHING, Happening, Queue
from scheduler.seating import read_seat, stand_in
from scheduler.surroundings import Surrounding, Surroundings
from scheduler.task import Refusal, Task, read_task
from scheduler.unstarted import Overdue, Unstarted
from scheduler.volumes import catalogue
from scheduler.volumes.storage import Storage

__all__ = ["Ending", "Evict", "Instruction", "Machine", "Notice", "Preempt", "Report"]


class Machine:
    """State and its transitions. Pods are known by uid: a name may be used again, a uid never is."""

    def __init__(self, scheduler_name: str, *, evict_never_started: bool = True, kinds: Kinds = NONE) -> None:
        self.cluster = Cluster(kinds)
        self._kinds = kinds
        self._decider = Decider(self.cluster)
        self.queue = Queue()
        self.scheduler_name = scheduler_name
        self._evicts = evict_never_started
        self._pending: dict[str, Pending] = {}
        self._gated: set[str] = set()
        self._unstarted = Unstarted()
        self._surroundings = Surroundings(self.cluster.census, self._decider.preemption.budgets)
        self.nominations = self._decider.preemption.nominations
        self._nominating = Nominating(self.nominations, self.queue)
        self._storage = Storage(self.cluster, self.queue)
        self._waiting = self._storage.waiting
        self._disputes: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self._left_out = LeftOut()
        # The pod that is being decided about.
        self._trying = ""

    def nodes(self, event: Change[Node], now: float) -> list[Instruction]:
        match event:
            case Changed(identity, node):
                return self._node(node, identity, now)
            case Unreadable(identity, why):
                return self._leave_out_node(identity, why, now)
            case Removed(identity):
                self._left_out.drop(Node, identity)
                self._remove_node(identity.name, now)
                return []

    def pods(self, event: Change[Pod], now: float) -> list[Instruction]:
        match event:
            case Changed(identity, pod) if identity.uid:
                self._left_out.drop(Pod, identity)
                return self._pod(pod, now)
            case Changed(identity):
                return self._leave_out_pod(identity, "metadata.uid is missing", now)
            case Unreadable(identity, why):
                return self._leave_out_pod(identity, why, now)
            case Removed(identity):
                self._left_out.drop(Pod, identity)
                self._leave(identity.uid, now)
                return []

    def see(self, kind: type[Any], event: Event[Any], now: float) -> list[Instruction]:
        """Take what a watch tells of any kind of object."""
        if isinstance(event, Synced):
            for _ in self.keeping(kind, event.there, now):
                pass
            return [one for entry in event.entries for one in self.see(kind, entry, now)]
        if kind is Node:
            return self.nodes(event, now)
        if kind is Pod:
            return self.pods(event, now)
        return self.stored(kind, event, now) if kind in catalogue.PATHS else self.around(kind, event, now)

    def has(self, kind: type[Any], identity: Identity) -> bool:
        """Say whether an object is known in just this version; only of bound pods, which are many."""
        seat = self.cluster.seat(identity.uid) if kind is Pod else None
        return seat is not None and seat.version != "" and seat.version == identity.resource_version

    def keeping(self, kind: type[Any], there: Sequence[Identity], now: float) -> Iterator[None]:
        """Take it that there are no objects of this kind but these, little by little, at each step of the iterator."""
        if kind is Node:
            for name in sorted(self.cluster.node_names() - {identity.name for identity in there}):
                self._remove_node(name, now)
        elif kind is Pod:
            known = [*self._pending, *self._gated, *self.cluster.uids()]
            for uid in missing(known, [identity.uid for identity in there]):
                if uid is not None:
                    self._leave(uid, now)
                yield
        elif kind in catalogue.PATHS:
            self._storage.keep(kind, there, now)
        else:
            self.queue.wake(self._surroundings.keep(kind, there), now)
        self._left_out.keep(kind, there)

    def stored(self, kind: type[catalogue.Stored], event: Change[catalogue.Stored], now: float) -> list[Instruction]:
        """Take what a watch tells of volumes, claims, storage classes and what nodes can attach."""
        return self._leave_out_others(kind, event, "storage", self._storage.take(kind, event, now))

    def around(self, kind: type[Surrounding], event: Change[Surrounding], now: float) -> list[Instruction]:
        """Take what a watch tells of namespaces, services and controllers."""
        helps, left_out = self._surroundings.take(kind, event)
        self.queue.wake(helps, now)
        return self._leave_out_others(kind, event, "surroundings", left_out)

    def _leave_out_others(
        self, kind: type[Any], event: Change[Any], blame: Blame, left_out: Sequence[tuple[Identity, str]]
    ) -> list[Instruction]:
        if not left_out:
            self._left_out.drop(kind, event.identity)
        found: list[Instruction] = []
        for identity, why in left_out:
            about = {"object": f"{identity.namespace}/{identity.name}", "kind": kind.__name__, "reason": why}
            found += self._leave_out(kind, identity, Notice(blame, "left out", about))
        return found

    def bound(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        """Take a bind's definite end."""
        uid = decision.task.uid
        if outcome.kind == "bound":
            self.cluster.confirm(uid)
            self._forget(uid, now)
            message = f"Successfully assigned {decision.task.pod.key} to {decision.seat.node}"
            report = Report(decision.task.pod, "Scheduled", message, decision.why)
            return [report, *self._ghost(decision)]
        self._unseat(uid, now)
        return self._unbound(decision, outcome, now)

    def prepared(self, order: Prepare, outcome: Prepared, now: float) -> list[Instruction]:
        """Take what became of the writes that a pod's volumes need."""
        if not outcome.fault:
            self._waiting.written(order.decision, outcome.versions)
            return []
        return self._give_back(order.decision, outcome.fault, now) if self._waiting.failed(order.decision) else []

    def _give_back(self, decision: Bind, why: str, now: float) -> list[Instruction]:
        """Take a pod whose volumes were not bound off its node, and let it come again."""
        uid = decision.task.uid
        self._unseat(uid, now)
        self.queue.retry(uid)
        return self._tell(self._pending[uid], "Unschedulable", f"binding volumes: {why}")

    def _unseat(self, uid: str, now: float) -> None:
        seat = self.cluster.seat(uid)
        if seat is not None and seat.assumed:
            self.cluster.remove(uid, now)
            self.queue.wake(of_leaving(seat), now)

    def evicted(self, order: Evict, ending: Ending, now: float) -> list[Instruction]:
        """Take what became of an eviction; one that the API server did not take is tried again later."""
        if ending == "evicted":
            return [Report(order.pod, "NeverStarts", f"evicted: {order.reason}")]
        if ending == "refused":
            self._unstarted.retry(order.pod.metadata.uid, now)
        return []

    def preempted(self, order: Preempt, ending: Preempted, now: float) -> list[Instruction]:
        """Take what became of a preemption; a pod for which not all could be deleted is decided about anew."""
        message = f"Preempted by pod {order.pod.metadata.uid} on node {order.node}"
        found: list[Instruction] = [
            Report(stand_in(seat), "Preempted", message, related=order.pod) for seat in ending.deleted
        ]
        uid = order.pod.metadata.uid
        if not ending.refused or self.nominations.node_of(uid) != order.node:
            return found
        self._nominating.reject(uid, now)
        pending = self._pending[uid]
        return [*found, *self._tell(pending, "Unschedulable", f"preemption refused: {ending.refused}")]

    def _ghost(self, decision: Bind) -> list[Instruction]:
        """The API server binds to a node that does not exist: say so; the garbage collector removes such pods."""
        if self.cluster.node(decision.seat.node) is not None:
            return []
        about = {"node": decision.seat.node, "pod": decision.task.pod.key, "uid": decision.task.uid}
        return [Notice("node", "pod bound to a node that was deleted meanwhile", about)]

    def step(self, now: float, lap: Lap = no_lap) -> list[Instruction] | None:
        """Decide about the next pod; None if none is ready. ``lap`` is told what has been done of it."""
        uid = self.queue.pop(now)
        if uid is None:
            return None
        self._trying = uid
        found = self._try(uid, now, lap)
        self._trying = ""
        return found

    def give_up(self) -> list[Instruction]:
        """Leave out the pod whose decision a fault of ours has cut short: it is told, and its kin get their turn."""
        uid, self._trying = self._trying, ""
        pending = self._pending.get(uid)
        if pending is None or self.cluster.seat(uid) is not None:
            return []
        self.queue.park(uid, NOTHING)
        return self._tell(pending, "Unschedulable", "the scheduler failed to decide about this pod: see its log")

    def _try(self, uid: str, now: float, lap: Lap) -> list[Instruction]:
        pending = self._pending[uid]
        pending.attempts += 1
        if isinstance(pending.task, Refusal):
            self.queue.park(uid, NOTHING)
            return self._tell(pending, "InvalidRequest", pending.task.reason)
        decision = self._decider.decide(pending.task, now, lap)
        if isinstance(decision, Unschedulable):
            return self._park(uid, decision, now)
        self._nominating.renounce(uid, now)
        self.cluster.put(decision.seat, now)
        lap("Reserve")
        self.queue.placed(uid)
        self.queue.wake(Happening.POD_SEATED, now)
        if decision.plan is None:
            return [decision]
        self._waiting.add(decision, now)
        return [Prepare(decision, decision.plan)]

    def _park(self, uid: str, decision: Unschedulable, now: float) -> list[Instruction]:
        """Set a pod aside that fits nowhere; those go for it who are to go, and all who share the answer are told."""
        pending, made = self._pending[uid], decision.nominate
        pending.oversized = not decision.helped_by
        if made is None:
            self._nominating.renounce(uid, now)
        else:
            self._nominating.nominate(made.nomination, now)
        others = self.queue.park(uid, decision.helped_by, self._kin(decision.task))
        told = [self._pending[one] for one in (uid, *sorted(others))]
        found = [one for kin in told for one in self._tell(kin, "Unschedulable", decision.reason, decision.why)]
        if made is None or not made.victims:
            return found
        return [Preempt(pending.pod, made.nomination.node, made.victims), *found]

    def _kin(self, task: Task) -> Hashable:
        """Return what pods share that one answer holds for; a nominated pod waits for its own victims."""
        alone = task.uid if self.nominations.of(task.uid) is not None else ""
        return task.shape, task.kin, task.spread, task.volumes, task.priority, task.pod.spec.preemption_policy, alone

    def tick(self, now: float) -> list[Instruction]:
        """Return what is to be done because of the time: pods that never start, volumes that are bound or never are."""
        found: list[Instruction] = []
        for decision, why in self._waiting.settled(now):
            found += self._give_back(decision, why, now) if why else [decision]
        while (overdue := self._unstarted.take_overdue(now)) is not None:
            self._judge(overdue.node, now)
            found.append(_end_of_patience(overdue, evict=overdue.evict and self._evicts))
        return [*found, *(Notice("constraint", text, {"constraint": kind}) for kind, text in self._kinds.take_faults())]

    def retell(self) -> list[Instruction]:
        """Tell what stays true until somebody acts: who led before may have ended before it told."""
        found = [(node, pci, uids) for node, vfs in self._disputes.items() for pci, uids in vfs.items()]
        return [one for dispute in found for one in self._tell_dispute(*dispute)]

    def next_due(self) -> float | None:
        """Return when `tick` or `step` has something to do, if nothing happens before; None for never."""
        times = self.queue.next_ready(), self._unstarted.next_due(), self._waiting.next_due()
        return min((time for time in times if time is not None), default=None)

    def waited(self, uid: str) -> tuple[float, int]:
        """Return since when a pending pod has been in the queue, and how often it was tried."""
        pending = self._pending[uid]
        return pending.since, pending.attempts

    def depths(self) -> Mapping[str, int]:
        """Count the pods that wait, by where; gated ones wait for their gates to be lifted."""
        return self.queue.depths() | {"gated": len(self._gated)}

    @property
    def budget_spent(self) -> int:
        """How many searches for a placement have run out of steps so far."""
        return self._decider.budget_spent

    def disputed(self) -> int:
        """Count the VFs that more than one live pod claims."""
        return sum(len(disputes) for disputes in self._disputes.values())

    def check(self) -> None:
        """Raise AssertionError if anything that is kept contradicts what it is derived from."""
        self.cluster.check()
        self.queue.check()
        self._waiting.check()
        assert set(self.nominations) <= self._pending.keys(), "a pod is nominated that does not wait"
        assert set(self.queue.uids()) == self._pending.keys(), "the queue and the pending pods differ"

    def _node(self, node: Node, identity: Identity, now: float) -> list[Instruction]:
        known = self.cluster.node(node.metadata.name)
        try:
            facts, error = read_node(node, known, now)
        except ValueError as unreadable:
            return self._leave_out_node(identity, str(unreadable), now)
        self._left_out.drop(Node, identity)
        found: list[Instruction] = []
        if facts != known:
            self.cluster.put_node(facts)
            self.queue.wake(of_node(known, facts), now)
            found = self._settle(facts.name, now)
            self._judge(facts.name, now)
            found += self._unreadable(facts)
        fields = {"node": facts.name, "reason": error}
        return [*found, Notice("inventory", "node left out: inventory cannot be read", fields)] if error else found

    def _unreadable(self, facts: NodeFacts) -> Iterator[Instruction]:
        """Yield what of a node is left out because its inventory of another kind cannot be used."""
        for kind, why in self.cluster.shelves.unreadable(facts.name):
            about = {"node": facts.name, "constraint": kind, "reason": why}
            yield Notice("constraint", "node left out: inventory of another kind cannot be read", about)

    def _remove_node(self, name: str, now: float) -> None:
        self.cluster.remove_node(name)
        self._disputes.pop(name, None)
        self._judge(name, now)
        self._waiting.touch_node(name)
        self.queue.wake(Happening.NODE_REMOVED, now)
        self._nominating.close(name, now)

    def _leave_out_node(self, identity: Identity, why: str, now: float) -> list[Instruction]:
        self._remove_node(identity.name, now)
        about = {"node": identity.name, "reason": why}
        return self._leave_out(Node, identity, Notice("node", "node left out", about))

    def _leave_out_pod(self, identity: Identity, why: str, now: float) -> list[Instruction]:
        """Leave a pod out; what it is known to hold on its node it keeps."""
        if identity.uid in self._waiting:
            self._unseat(identity.uid, now)
        self._forget(identity.uid, now)
        fields = {"pod": f"{identity.namespace}/{identity.name}", "uid": identity.uid, "reason": why}
        return self._leave_out(Pod, identity, Notice("pod", "pod left out", fields))

    def _leave_out(self, kind: type[Any], identity: Identity, notice: Notice) -> list[Instruction]:
        return [notice] if self._left_out.note(kind, identity, notice.fields["reason"]) else []

    def _pod(self, pod: Pod, now: float) -> list[Instruction]:
        uid = pod.metadata.uid
        if pod.is_over:
            self._leave(uid, now)
            return []
        if pod.spec.node_name:
            return self._seat(pod, now)
        if self.cluster.seat(uid) is not None:
            if pod.metadata.deletion_timestamp is not None and uid in self._waiting:
                self._leave(uid, now)
            # Else its bind is on the way, or done and not shown yet.
            if (pending := self._pending.get(uid)) is not None:
                pending.pod, pending.task = pod, read_task(pod, self._kinds)
            return []
        ours = pod.spec.scheduler_name == self.scheduler_name and pod.metadata.deletion_timestamp is None
        if ours and not pod.spec.scheduling_gates:
            self._offer(pod, now)
        else:
            self._forget(uid, now)
            if ours:
                self._gated.add(uid)
        return []

    def _offer(self, pod: Pod, now: float) -> None:
        uid, known = pod.metadata.uid, self._pending.get(pod.metadata.uid)
        self._gated.discard(uid)
        if known is None:
            known = self._pending[uid] = Pending(pod, read_task(pod, self._kinds), now)
            asks_anew = True
        else:
            asks_anew = known.take(pod, self._kinds)
        self._nominating.adopt(known, now)
        if not asks_anew:
            return
        self._storage.offer(uid, known.task)
        self.queue.offer(uid, pod.spec.priority or 0, pod.metadata.creation_timestamp or "", now)

    def _seat(self, pod: Pod, now: float) -> list[Instruction]:
        uid, node = pod.metadata.uid, pod.spec.node_name or ""
        self._forget(uid, now)
        known = self.cluster.seat(uid)
        if known is not None and known.version and known.version == pod.metadata.resource_version:
            # Listed again as it was.
            return []
        seat, notices = read_seat(pod, known)
        self.cluster.put(seat, now)
        # For our own bind, or a change of a pod's status, nobody waits.
        if known is None or replace(known, assumed=False) != seat:
            left = of_leaving(known) | Happening.POD_LABELS if known is not None else NOTHING
            self.queue.wake(left | Happening.POD_SEATED, now)
        if self._unstarted.see(pod, _ours(pod, seat, self.scheduler_name)):
            self._unstarted.judge_pod(uid, self.cluster.node(node), self._disputes.get(node, {}), now)
        if seat.assignment is not None and (known is None or known.assignment != seat.assignment):
            notices += self._settle(node, now)
        return notices

    def _settle(self, node: str, now: float) -> list[Instruction]:
        """Look anew which VFs of a node are claimed twice, tell what is new, and judge its pods by it."""
        known, found = self._disputes.get(node, {}), self.cluster.disputes(node)
        if found:
            self._disputes[node] = found
        else:
            self._disputes.pop(node, None)
        if found != known:
            self._judge(node, now)
        news = [(pci, uids) for pci, uids in found.items() if set(uids) - set(known.get(pci, ()))]
        return [one for pci, uids in news for one in self._tell_dispute(node, pci, uids)]

    def _tell_dispute(self, node: str, pci: str, uids: Sequence[str]) -> Iterator[Instruction]:
        seats = [seat for uid in uids if (seat := self.cluster.seat(uid)) is not None]
        claimants = f"claimed by {', '.join(seat.pod for seat in seats)}"
        about = {"node": node, "pci": pci, "pod": seats[-1].pod, "uid": seats[-1].uid, "reason": claimants}
        yield Notice("dispute", "VF is claimed twice", about)
        for seat in seats:
            message = f"VF {pci} of node {node} is {claimants}: not given again before all of them are gone"
            yield Report(stand_in(seat), "DisputedVf", message)

    def _judge(self, node: str, now: float) -> None:
        self._unstarted.judge(node, self.cluster.node(node), self._disputes.get(node, {}), now)

    def _leave(self, uid: str, now: float) -> None:
        self._forget(uid, now)
        self._unstarted.drop(uid)
        seat = self.cluster.remove(uid, now)
        if seat is not None:
            self.queue.wake(of_leaving(seat), now)
            if seat.node in self._disputes:
                self._settle(seat.node, now)

    def _forget(self, uid: str, now: float) -> None:
        self._nominating.renounce(uid, now)
        self._pending.pop(uid, None)
        self._gated.discard(uid)
        self._storage.forget(uid)
        self.queue.forget(uid)

    def _unbound(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
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
        self._forget(uid, now)
        return []

    def _tell(
        self,
        pending: Pending,
        reason: Literal["Unschedulable", "InvalidRequest"],
        message: str,
        why: Why | None = None,
    ) -> list[Instruction]:
        node, shown = self.nominations.node_of(pending.pod.metadata.uid), pending.shown_node
        if pending.knows(message, node):
            return []
        pending.told, pending.told_node = message, node
        return [Report(pending.pod, reason, message, why or {"v": 1}, node if node or shown else None)]


def _ours(pod: Pod, seat: Seat, scheduler_name: str) -> Assignment | None:
    """Return what we gave a pod; nobody else's pod is evicted for what its annotation says."""
    return seat.assignment if pod.spec.scheduler_name == scheduler_name else None


def _end_of_patience(overdue: Overdue, *, evict: bool) -> Instruction:
    message = f"cannot start on node {overdue.node}: {overdue.reason}"
    return Evict(overdue.pod, message) if evict else Report(overdue.pod, "NeverStarts", f"{message}; delete it")
