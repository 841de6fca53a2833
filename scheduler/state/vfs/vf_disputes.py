"""VFs that two live pods claim: each stays reserved until both pods are gone, and both owners get a report. Pure.

The node's ledger decides which pod has the VF. The same applies to two pods that claim one unit of another kind.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState
from scheduler.state.vfs.node_claims import NO_DISPUTES, Disputes


class VfDisputes(Part):
    def __init__(self, state: SharedState) -> None:
        self._cache = state.cache
        self._disputes: dict[str, Disputes] = {}

    @property
    def dispute_counts(self) -> Counter[str]:
        """How many units more than one live pod claims, by kind; the kind of the VFs is `VFS`."""
        return Counter(unit.kind for disputes in self._disputes.values() for unit in disputes)

    def of(self, node: str) -> Disputes:
        return self._disputes.get(node, NO_DISPUTES)

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        return self._update(node.name)

    def node_removed(self, name: str, now: float) -> None:
        self._disputes.pop(name, None)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        assignment, previous = change.assigned.assignment, change.previous
        if assignment is not None and (previous is None or previous.assignment != assignment):
            return self._update(change.assigned.node)
        return ()

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        if assigned_pod is not None and assigned_pod.node in self._disputes:
            # Its end may settle a dispute.
            self._update(assigned_pod.node)

    def _update(self, node: str) -> list[Instruction]:
        old_disputes, new_disputes = self.of(node), self._cache.disputes(node)
        if new_disputes:
            self._disputes[node] = new_disputes
        else:
            self._disputes.pop(node, None)
        news = [(unit, uids) for unit, uids in new_disputes.items() if set(uids) - set(old_disputes.get(unit, ()))]
        return [instruction for unit, uids in news for instruction in self._report(node, unit, uids)]

    def report_again(self) -> list[Instruction]:
        disputes = [(node, unit, uids) for node, units in self._disputes.items() for unit, uids in units.items()]
        return [instruction for dispute in disputes for instruction in self._report(*dispute)]

    def _report(self, node: str, unit: Unit, uids: Sequence[str]) -> Iterator[Instruction]:
        assigned_pods = [assigned_pod for uid in uids if (assigned_pod := self._cache.assigned(uid)) is not None]
        claimants = f"claimed by {', '.join(assigned_pod.pod for assigned_pod in assigned_pods)}"
        fields = {"node": node, "pod": assigned_pods[-1].pod, "uid": assigned_pods[-1].uid, "reason": claimants}
        if unit.kind == VFS:
            yield Notice("dispute", "VF is claimed twice", fields | {"pci": unit.id})
        else:
            yield Notice("dispute", "unit is claimed twice", fields | {"constraint": unit.kind, "unit": unit.id})
        kind = "VF" if unit.kind == VFS else unit.kind
        for assigned_pod in assigned_pods:
            message = (
                f"{kind} {unit.id} of node {node} is {claimants}: it is not assigned again until all of them are gone"
            )
            yield Report(pod_reference(assigned_pod), "DisputedVf" if unit.kind == VFS else "DisputedUnit", message)
