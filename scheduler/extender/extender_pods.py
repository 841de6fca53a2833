"""Pods that kube-scheduler decides about and that ask for VFs: what is asked of us about them. Pure.

Only what Mooring gives is judged here: whether the VFs, and units of other kinds, fit on a node beside what its pods
and nominated pods have. All other rules are kube-scheduler's own, and the node is its choice. The exact VFs are ours:
they are reserved from `reserve` on, until `ended` says what became of the Binding, or the watch does. Only pods that
the watch has shown are given any: a list that was on its way before may lack the others, and would set theirs free.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mooring import names
from mooring.assignment import dump_assignment
from scheduler.cache.cache import Cluster, Seat
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind, annotations_fault
from scheduler.cycle.node_dry_run import Trial, Trials, stand_for
from scheduler.cycle.preemption import Preemption
from scheduler.cycle.select_victims import importance, not_reprieved
from scheduler.extender.bound_without_vfs import Stranded
from scheduler.extender.protocol import MOST, Victims
from scheduler.kube.binding_outcome import Outcome
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import Refusal, Task, read_task
from scheduler.pending.event_hints import of_leaving
from scheduler.pending.pending_pods import Roster
from scheduler.placement.assign import wants_on
from scheduler.plugins import constraints, rdma_vfs
from scheduler.queue import Happening, Queue

UNKNOWN_NODE = "node(s) were not known to Mooring"
UNSEEN = "the pod is not known to Mooring yet"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod may not go to a node, empty if it may.

    ``for_good`` if no other pod's going helps, ``blind`` if nothing is known of the node's VFs.
    """

    reason: str = ""
    for_good: bool = False
    blind: bool = False


@dataclass(slots=True)
class Guests:
    """What is known of the cluster, asked for pods that are nobody of ours until they are bound."""

    scheduler_name: str
    cluster: Cluster
    roster: Roster
    queue: Queue
    preemption: Preemption
    kinds: Kinds
    stranded: Stranded = field(default_factory=Stranded)

    def read(self, pod: Pod) -> Task | Refusal:
        """Read what a pod asks for; resource claims are kube-scheduler's."""
        pod.spec.resource_claims = None
        return read_task(pod, self.kinds)

    def knows(self, uid: str) -> bool:
        """Say whether the watch has shown a pod that waits for somebody else to bind it, or that has a node."""
        return self.roster.waits_for_others(uid) or self.cluster.seat(uid) is not None

    def offer(self, task: Task) -> None:
        """Take note that kube-scheduler was told where a pod may go."""
        if task.interfaces and self.cluster.seat(task.uid) is None:
            self.stranded.offered(task.uid)

    def judge(self, task: Task, nodes: Sequence[str], now: float) -> Iterator[tuple[str, Verdict]]:
        """Yield what speaks against each node; each is judged when it is asked for, as things are then."""
        self.cluster.tick(now)
        rivals, trials = self._rivals(task), self._trials(task)
        for node in nodes:
            yield node, self._judge(trials, node, rivals.get(node, []))

    def score(self, task: Task, node: str) -> int:
        """Return how well the pod's VFs and units suit a node, from 0 to `MOST`."""
        nodes = self.cluster.nodes
        row = nodes.row_of.get(node)
        if row is None:
            return 0
        total, weights = 0, 0
        for preference in (rdma_vfs.PREFERENCE, constraints.PREFERENCE):
            score = preference.prepare(task, nodes)
            if score is not None:
                total += preference.weight * int(score(nodes.look_at(row)))
                weights += preference.weight
        return total * MOST // (100 * max(weights, 1))

    def reserve(self, task: Task, node: str, now: float) -> Bind | str:
        """Take exact VFs on the node that was chosen and return the write, or say why there are none."""
        self.cluster.tick(now)
        if task.pod.spec.scheduler_name == self.scheduler_name:
            return f"pods of schedulerName {self.scheduler_name!r} are bound by it alone"
        if (seat := self.cluster.seat(task.uid)) is not None:
            return _elsewhere(seat)
        if not self.knows(task.uid):
            return UNSEEN
        rivals, trials = self._rivals(task).get(node, []), self._trials(task)
        verdict = self._judge(trials, node, rivals)
        if verdict.reason:
            return f"node {node!r}: {verdict.reason}"
        seat = self._seat(trials, node, rivals)
        annotations = {names.ASSIGNMENT: dump_assignment(seat.assignment)} if seat.assignment is not None else {}
        if fault := annotations_fault(task.pod.annotations, annotations):
            return fault
        self.cluster.put(seat, now)
        self.stranded.bound(task.uid)
        self.queue.wake(Happening.POD_SEATED, now)
        return Bind(task, seat, annotations, {"v": 1, "node": node})

    def ended(self, decision: Bind, outcome: Outcome, now: float) -> None:
        """Take a bind's definite end."""
        uid = decision.task.uid
        seat = self.cluster.seat(uid)
        if outcome.kind == "bound":
            self.cluster.confirm(uid)
        elif seat is not None and seat.assumed:
            self.cluster.remove(uid, now)
            self.queue.wake(of_leaving(seat), now)

    def make_room(self, task: Task, node: str, victims: Victims, now: float) -> Victims | None:
        """Return who has to leave a node so that the pod's VFs fit too; None if nobody's going helps."""
        self.cluster.tick(now)
        row, trials, rivals = self.cluster.nodes.row_of.get(node), self._trials(task), self._rivals(task).get(node, [])
        if row is None or self._fault(task, row):
            return None
        seats = {seat.uid: seat for seat in self.cluster.seats_on(node)}
        with trials.on(row, rivals) as trial:
            for uid in victims.uids:
                if uid in seats:
                    trial.take_off(seats.pop(uid))
            if not trial.refusal():
                return victims
            return self._more(trial, victims, [seat for seat in seats.values() if seat.priority < task.priority])

    def _more(self, trial: Trial, victims: Victims, lower: list[Seat]) -> Victims | None:
        """Add the less important pods that must go as well; kube-scheduler knows none that is only assumed."""
        lower = [seat for seat in lower if not seat.assumed]
        for seat in lower:
            trial.take_off(seat)
        if trial.refusal():
            return None
        breaking, others = self.preemption.budgets.split(sorted(lower, key=importance))
        doomed = not_reprieved(trial, breaking)
        more = [*doomed, *not_reprieved(trial, others)]
        return Victims((*victims.uids, *(seat.uid for seat in more)), victims.broken_budgets + len(doomed))

    def _judge(self, trials: Trials, node: str, rivals: list[Seat]) -> Verdict:
        task, row = trials.task, self.cluster.nodes.row_of.get(node)
        if (seat := self.cluster.seat(task.uid)) is not None:
            return Verdict("" if seat.node == node else _elsewhere(seat), for_good=True)
        if not task.interfaces and not task.wishes:
            return Verdict()
        if row is None:
            return Verdict(UNKNOWN_NODE, for_good=True, blind=True)
        if fault := self._fault(task, row):
            return fault
        with trials.on(row, rivals) as trial:
            return Verdict("".join(trial.refusal()[:1]))

    def _seat(self, trials: Trials, node: str, rivals: list[Seat]) -> Seat:
        row = self.cluster.nodes.row_of.get(node)
        if row is None:
            return stand_for(trials.task, node)
        with trials.on(row, rivals) as trial:
            return trial.seat()

    def _fault(self, task: Task, row: int) -> Verdict | None:
        """Say what of a node itself speaks against the pod, whichever pods are there."""
        if task.request is None or not task.interfaces:
            return None
        fault, pfs = self.cluster.nodes.offers[row]
        if fault:
            return Verdict(fault, for_good=True, blind=True)
        wants = wants_on(task.request, pfs)
        return Verdict(wants, for_good=True) if isinstance(wants, str) else None

    def _rivals(self, task: Task) -> Mapping[str, list[Seat]]:
        return self.preemption.nominations.rivals(task.uid, task.priority)

    def _trials(self, task: Task) -> Trials:
        return Trials(task, self.cluster, lambda _: {}, is_wide=False, only_gives=True)


def _elsewhere(seat: Seat) -> str:
    return f"the pod is being bound to node {seat.node!r}"
