"""Resolve claims on VFs: which VFs are claimed twice, and which pods' nodes contradict their assignments.

If two live pods claim one VF, neither is trusted to free it, the node's ledger decides, and both owners get a report.
The same holds for two pods that claim one unit of another kind. A pod that its node contradicts for long enough before
it has started is evicted, or its owner gets a report (`scheduler.state.vfs.never_started`). Pure: time is an argument,
instructions are returned.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS
from scheduler.cycle.instructions import Evict, Instruction, Notice, Order, Report, Result
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState
from scheduler.state.vfs.never_started import Disputes, NeverStarted, NodeClaims, Overdue


class VfDisputes(Part):
    """The disputes of each node, and the pods that never started."""

    def __init__(self, state: SharedState, never_started: NeverStarted, *, evicts: bool) -> None:
        self._cache, self._scheduler_name = state.cache, state.scheduler_name
        self._evicts = evicts
        self._never_started = never_started
        self._disputes: dict[str, Disputes] = {}

    @property
    def dispute_counts(self) -> Counter[str]:
        """How many units more than one live pod claims, by kind; the kind of the VFs is `VFS`."""
        return Counter(unit.kind for disputes in self._disputes.values() for unit in disputes)

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        instructions = self._settle(node.name, now)
        self._judge(node.name, now)
        return instructions

    def node_removed(self, name: str, now: float) -> None:
        self._disputes.pop(name, None)
        self._judge(name, now)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Record a bound pod; only pods of ours are evicted for the contents of their annotation."""
        pod, assigned_pod, previous = change.pod, change.assigned, change.previous
        assignment = assigned_pod.assignment if pod.spec.scheduler_name == self._scheduler_name else None
        if self._never_started.record(pod, assignment):
            self._never_started.judge_pod(assigned_pod.uid, self._current(assigned_pod.node), now)
        if assigned_pod.assignment is not None and (previous is None or previous.assignment != assigned_pod.assignment):
            return self._settle(assigned_pod.node, now)
        return ()

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._never_started.drop(uid)
        if assigned_pod is not None and assigned_pod.node in self._disputes:
            # Its removal may settle a dispute.
            self._settle(assigned_pod.node, now)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Try an eviction again later if the API server did not accept it."""
        if isinstance(order, Evict) and result == "refused":
            self._never_started.retry(order.pod.metadata.uid, now)
        return ()

    def _settle(self, node: str, now: float) -> list[Instruction]:
        """Find again what is claimed twice on a node, report new disputes, and judge its pods by the result."""
        old_disputes, new_disputes = self._disputes.get(node, {}), self._cache.disputes(node)
        if new_disputes:
            self._disputes[node] = new_disputes
        else:
            self._disputes.pop(node, None)
        if new_disputes != old_disputes:
            self._judge(node, now)
        news = [(unit, uids) for unit, uids in new_disputes.items() if set(uids) - set(old_disputes.get(unit, ()))]
        return [instruction for unit, uids in news for instruction in self._tell(node, unit, uids)]

    def _judge(self, node: str, now: float) -> None:
        """Compare the assignments of a node's pods with the node's current inventory."""
        self._never_started.judge(node, self._current(node), now)

    def tick(self, now: float) -> Iterator[Instruction]:
        """Yield the instructions for pods whose time to start is over; of many for a part, the rest stays due."""
        current = dict[str, NodeClaims]()
        for uid in self._never_started.overdue(now):
            node = self._never_started.node_of(uid)
            if node not in current:
                current[node] = self._current(node)
            overdue = self._never_started.take_overdue(uid, current[node], now)
            if overdue is not None:
                yield self._evict_or_report(overdue)
        for node, claims in current.items():
            self._never_started.judge(node, claims, now)

    def _current(self, node: str) -> NodeClaims:
        return NodeClaims(self._cache.node(node), self._disputes.get(node, {}))

    def next_due(self) -> float | None:
        return self._never_started.next_due()

    def report_again(self) -> list[Instruction]:
        disputes = [(node, unit, uids) for node, units in self._disputes.items() for unit, uids in units.items()]
        return [instruction for dispute in disputes for instruction in self._tell(*dispute)]

    def _tell(self, node: str, unit: Unit, uids: Sequence[str]) -> Iterator[Instruction]:
        assigned_pods = [assigned_pod for uid in uids if (assigned_pod := self._cache.assigned(uid)) is not None]
        claimants = f"claimed by {', '.join(assigned_pod.pod for assigned_pod in assigned_pods)}"
        fields = {"node": node, "pod": assigned_pods[-1].pod, "uid": assigned_pods[-1].uid, "reason": claimants}
        if unit.kind == VFS:
            yield Notice("dispute", "VF is claimed twice", fields | {"pci": unit.id})
        else:
            yield Notice("dispute", "unit is claimed twice", fields | {"constraint": unit.kind, "unit": unit.id})
        kind = "VF" if unit.kind == VFS else unit.kind
        for assigned_pod in assigned_pods:
            message = f"{kind} {unit.id} of node {node} is {claimants}: not given again before all of them are gone"
            yield Report(pod_reference(assigned_pod), "DisputedVf" if unit.kind == VFS else "DisputedUnit", message)

    def _evict_or_report(self, overdue: Overdue) -> Instruction:
        message = f"cannot start on node {overdue.node}: {overdue.reason}"
        if overdue.evict and self._evicts:
            return Evict(overdue.pod, message)
        return Report(overdue.pod, "NeverStarts", f"{message}; delete it")
