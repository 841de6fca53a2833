"""The scheduler without its edges: events in, instructions out, time as an argument.

`nodes` and `pods` take what the watches tell, `bound`, `evicted` and `preempted` what became of a write; `step` decides
about the next pod, `tick` does what is due at a time. All return instructions: `Bind`, `Evict`, `Preempt`, `Report` and
`Notice`. Nothing here does I/O, so a whole life can be replayed in a test.
"""

from collections.abc import Hashable
from dataclasses import replace

from scheduler.cache.assigned_pod import stand_in
from scheduler.cache.cache import Cluster
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle.cycle import Decider, Lap, no_lap
from scheduler.cycle.decisions import Bind, Unschedulable, annotations_fault
from scheduler.cycle.instructions import (
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
from scheduler.cycle.nominations import Nomination
from scheduler.cycle.select_victims import PORTION, Search
from scheduler.extender.extender_pods import Guests
from scheduler.kube.binding_outcome import Outcome
from scheduler.kube.pod_info import Refusal, Task
from scheduler.pending.pending_pods import Roster
from scheduler.queue import NOTHING, Happening, Queue
from scheduler.state.cluster_objects import Surroundings
from scheduler.state.event_handlers import Intake
from scheduler.state.vf_disputes import Trust

__all__ = ["Ending", "Evict", "Instruction", "Machine", "Notice", "Preempt", "Report"]


class Machine:
    """State and its transitions; `intake` holds those that come by the watches."""

    def __init__(
        self,
        scheduler_name: str,
        *,
        evict_never_started: bool = True,
        kinds: Kinds = NONE,
        portion: int = PORTION,
    ) -> None:
        """Look at ``portion`` pods in one step, where a decision has to find out who goes."""
        self.scheduler_name = scheduler_name
        self.cluster = Cluster(kinds)
        self.queue = Queue()
        self._kinds = kinds
        self._decider = Decider(self.cluster)
        self.nominations = self._decider.preemption.nominations
        self.roster = Roster(self.cluster, self.queue, self.nominations, kinds)
        self.trust = Trust(self.cluster, scheduler_name, evicts=evict_never_started)
        surroundings = Surroundings(self.cluster.census, self._decider.preemption.budgets)
        self.guests = Guests(scheduler_name, self.cluster, self.roster, self.queue, self._decider.preemption, kinds)
        stranded = self.guests.stranded
        self.intake = Intake(scheduler_name, self.cluster, self.queue, self.roster, self.trust, surroundings, stranded)
        self._waiting = self.roster.storage.waiting
        # The pod that is being decided about, and what has been found out so far about who has to go for it.
        self._trying = ""
        self._portion = portion
        self._search = Search(portion)
        self.nodes, self.pods, self.see = self.intake.nodes, self.intake.pods, self.intake.see

    def bound(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        """Take a bind's definite end."""
        uid = decision.task.uid
        if outcome.kind == "bound":
            self.cluster.confirm(uid)
            self.roster.forget(uid, now)
            message = f"Successfully assigned {decision.task.pod.key} to {decision.seat.node}"
            report = Report(decision.task.pod, "Scheduled", message, decision.why)
            return [report, *self._ghost(decision)]
        self.roster.unseat(uid, now)
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
        self.roster.unseat(uid, now)
        self.roster.storage.give_up(now)
        self.queue.retry(uid)
        return self.roster.tell(self.roster[uid], "Unschedulable", f"binding volumes: {why}")

    def evicted(self, order: Evict, ending: Ending, now: float) -> list[Instruction]:
        """Take what became of an eviction; one that the API server did not take is tried again later."""
        if ending == "evicted":
            return [Report(order.pod, "NeverStarts", f"evicted: {order.reason}")]
        if ending == "refused":
            self.trust.retry(order.pod.metadata.uid, now)
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
        self.roster.nominating.reject(uid, now)
        pending = self.roster[uid]
        return [*found, *self.roster.tell(pending, "Unschedulable", f"preemption refused: {ending.refused}")]

    def _ghost(self, decision: Bind) -> list[Instruction]:
        """The API server binds to a node that does not exist: say so; the garbage collector removes such pods."""
        if self.cluster.node(decision.seat.node) is not None:
            return []
        about = {"node": decision.seat.node, "pod": decision.task.pod.key, "uid": decision.task.uid}
        return [Notice("node", "pod bound to a node that was deleted meanwhile", about)]

    def step(self, now: float, lap: Lap = no_lap) -> list[Instruction] | None:
        """Decide about the next pod, or go on with that; None if none is ready. ``lap`` is told what has been done."""
        if not self.queue.is_tried(self._trying):
            self._trying, self._search = self.queue.pop(now) or "", Search(self._portion)
            if not self._trying:
                return None
            self.roster[self._trying].attempts += 1
        found = self._try(self._trying, now, lap)
        if found is None:
            return []
        self._trying = ""
        return found

    @property
    def is_trying(self) -> bool:
        """Say whether the decision about a pod takes another step."""
        return bool(self._trying)

    def give_up(self) -> list[Instruction]:
        """Leave out the pod whose decision a fault of ours has cut short: it is told, and its kin get their turn."""
        uid, self._trying = self._trying, ""
        pending = self.roster.get(uid)
        if pending is None or self.cluster.seat(uid) is not None:
            return []
        self.queue.park(uid, NOTHING)
        return self.roster.tell(pending, "Unschedulable", "the scheduler failed to decide about this pod: see its log")

    def _try(self, uid: str, now: float, lap: Lap) -> list[Instruction] | None:
        """Decide about a pod; return None if that takes another step."""
        pending = self.roster[uid]
        if isinstance(pending.task, Refusal):
            self.queue.park(uid, NOTHING)
            return self.roster.tell(pending, "InvalidRequest", pending.task.reason)
        decision = self._known(pending.task) or self._decider.proceed(pending.task, now, self._search, lap)
        if decision is None:
            return None
        if isinstance(decision, Unschedulable):
            return self._park(uid, decision, now)
        self.roster.nominating.renounce(uid, now)
        self.cluster.put(decision.seat, now)
        lap("Reserve")
        self.queue.placed(uid)
        self.queue.wake(Happening.POD_SEATED, now)
        if decision.plan is None:
            return [decision]
        self._waiting.add(decision, now)
        return [Prepare(decision, decision.plan)]

    def _known(self, task: Task) -> Unschedulable | None:
        """Return the answer of a parked pod of the same kin, where nothing has happened since that could help.

        It speaks of the nodes as they are, so that a change of one which helps nobody ends it too.
        """
        uid = self.queue.answered(self._kin(task)) if self.queue.parks else ""
        renewed, answer = (uid and self.roster[uid].answer) or (-1, None)
        return replace(answer, task=task) if answer and renewed == self.cluster.nodes.renewals.end else None

    def _park(self, uid: str, decision: Unschedulable, now: float) -> list[Instruction]:
        """Set a pod aside that fits nowhere; those go for it who are to go, and all who share the answer are told."""
        pending, made, missed = self.roster[uid], decision.nominate, self.queue.missed
        pending.oversized = not decision.helped_by
        pending.answer = self.cluster.nodes.renewals.end, decision
        if made is None:
            self.roster.nominating.renounce(uid, now)
        else:
            self.roster.nominating.nominate(made.nomination, now)
        others = self.queue.park(uid, decision.helped_by, self._kin(decision.task))
        if missed & decision.helped_by:
            # It happened while the search went on, and what was found out before may not hold any more.
            self.queue.rouse(uid)
        told = [self.roster[one] for one in (uid, *sorted(others))]
        found = [one for kin in told for one in self.roster.tell(kin, "Unschedulable", decision.reason, decision.why)]
        if made is None or not made.victims:
            return found
        return [Preempt(pending.pod, made.nomination.node, made.victims), *found]

    def _kin(self, task: Task) -> Hashable:
        """Return what pods share that one answer holds for; a nominated pod waits for its own victims."""
        alone = task.uid if self.nominations.of(task.uid) is not None else ""
        return task.shape, task.kin, task.spread, task.volumes, task.priority, task.pod.spec.preemption_policy, alone

    def tick(self, now: float) -> list[Instruction]:
        """Return what is to be done because of the time: pods that never start, volumes that are bound or never are."""
        found: list[Instruction] = self._settle_volumes(now) if self._waiting else []
        for nomination in self.nominations.overdue(now) if self.nominations else ():
            found += self._stop_waiting(nomination, now)
        found += self.trust.overdue(now)
        found += (Notice("constraint", text, {"constraint": kind}) for kind, text in self._kinds.take_faults())
        return found

    def _settle_volumes(self, now: float) -> list[Instruction]:
        """Bind the pods whose volumes are bound, and take those off their nodes whose volumes never will be."""
        found: list[Instruction] = []
        for decision, unbound in self._waiting.settled(now):
            # Minutes may have gone by since what the Binding adds was held against the pod's own annotations.
            annotations = self.roster[decision.task.uid].pod.annotations
            why = unbound or annotations_fault(annotations, decision.annotations)
            found += self._give_back(decision, why, now) if why else [decision]
        return found

    def _stop_waiting(self, nomination: Nomination, now: float) -> list[Instruction]:
        """Let a pod look for another place than where it waits for VFs that do not come back."""
        uid, why = nomination.seat.uid, self._decider.preemption.stop_waiting(nomination)
        self.roster.nominating.reject(uid, now)
        return self.roster.tell(self.roster[uid], "Unschedulable", f"nomination given up: {why}")

    def retell(self) -> list[Instruction]:
        """Return what stays true until somebody acts: a new leader tells it again."""
        return [*self.trust.retell(), *self.guests.stranded.retell()]

    def next_due(self) -> float | None:
        """Return when `tick` or `step` has something to do, if nothing happens before; None for never."""
        if self._trying:
            return 0.0
        times = self.queue.next_ready(), self.trust.next_due(), self._waiting.next_due(), self.nominations.next_due()
        return min((time for time in times if time is not None), default=None)

    @property
    def budget_spent(self) -> int:
        """How many searches for a placement have run out of steps so far."""
        return self._decider.budget_spent

    def check(self) -> None:
        """Raise AssertionError if anything that is kept contradicts what it is derived from."""
        self.cluster.check()
        self.queue.check()
        self.roster.check()

    def _unbound(self, decision: Bind, outcome: Outcome, now: float) -> list[Instruction]:
        uid, pending = decision.task.uid, self.roster.get(decision.task.uid)
        if pending is None:
            return []
        if outcome.kind in ("changed", "forbidden"):
            self.queue.retry(uid)
            forbidden = outcome.kind == "forbidden"
            return (
                self.roster.tell(pending, "Unschedulable", f"binding forbidden: {outcome.reason}") if forbidden else []
            )
        if outcome.kind == "refused":
            self.queue.park(uid, NOTHING)
            return self.roster.tell(pending, "Unschedulable", f"the API server refuses the binding: {outcome.reason}")
        # Taken, gated, deleting, gone: the watch shows what is next, as a change of this pod or its end.
        self.roster.forget(uid, now)
        return []
