"""What a node's fresh inventory shows of the VFs of its pods, and VFs that two live pods claim. Pure.

An inventory that is not fresh (from another boot, of a node that is not Ready, or missing) contradicts nothing.

A disputed VF stays reserved until both pods are gone, and both owners get a report. The node's ledger decides which pod
has it. The same applies to two pods that claim one unit of another kind.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import LOST, Out, Pf
from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS
from scheduler.cycle.instructions import Instruction, Notice, Report
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState

# Reasons of the advertiser that do not count against a pod that already has the VF by assignment.
_HARMLESS = frozenset({DRAINED, "preparing"})
# Devices that more than one live pod claims, and the pods' uids.
Disputes = Mapping[Unit, tuple[str, ...]]
NO_DISPUTES: Disputes = MappingProxyType({})


class NodeClaims:
    """A node's current inventory and its disputed devices, to compare with the assignments of its pods.

    One instance serves all pods that are judged together: the inventory's PFs are indexed once, and their VFs only for
    PFs that a pod names.
    """

    def __init__(self, node_info: NodeInfo | None, disputes: Disputes = NO_DISPUTES) -> None:
        is_fresh = node_info is not None and node_info.fault is None and node_info.unready_since is None
        inventory = node_info.inventory if node_info is not None and is_fresh else None
        self._pfs = {pf.name: pf for pf in inventory.pfs} if inventory is not None else None
        self._disputes = disputes
        self._outs: dict[str, dict[int, Out]] = {}

    def contradiction(self, assignment: Assignment, leaves: Callable[[str], bool]) -> str:
        """Return how a fresh inventory contradicts an assignment; empty if it does not, or is not fresh.

        ``leaves`` returns whether a pod's claims are about to end.
        """
        return self._first(
            assignment, lambda vf, pf, uid: self._mismatch(vf, pf, uid) or self._dispute(vf, uid, leaves)
        )

    def loss(self, assignment: Assignment) -> str:
        """Return which VF of a running pod is lost, or on a PF that is down, in a fresh inventory; empty for none."""
        return self._first(assignment, self._loss_or_link)

    def has_lost_vf(self, assignment: Assignment) -> bool:
        return self._first(assignment, self._loss) != ""

    def _first(self, assignment: Assignment, describe: Callable[[AssignedVf, Pf | None, str], str]) -> str:
        """Return the first VF with a reason against it; empty if there is none, or the inventory is not fresh."""
        for vf in assignment.vfs if self._pfs is not None else ():
            pf = self._pfs.get(vf.pf) if self._pfs is not None else None
            if reason := describe(vf, pf, assignment.uid):
                return f"VF {vf.pci} ({vf.pf}/{vf.vf}) {reason}"
        return ""

    def _loss_or_link(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        is_up = pf is None or pf.up
        return self._loss(vf, pf, uid) if is_up else "has no network: the link of its PF is down"

    def _loss(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        out = None if pf is None else self._outs_of(pf).get(vf.vf)
        if out is not None and out.why.startswith(LOST):
            return "is back in the host's network namespace"
        return self._mismatch(vf, pf, uid)

    def _mismatch(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        if pf is None or vf.vf not in pf.vfs or pf.vf_pci(vf.vf) != vf.pci:
            return "no longer exists"
        if (pf.link, pf.network) != (vf.link, vf.network):
            return f"is now on {pf.link} network {pf.network!r}, not on {vf.link} network {vf.network!r}"
        out = self._outs_of(pf).get(vf.vf)
        if out is not None and out.why not in _HARMLESS and uid not in out.why:
            return f"cannot be used: {out.why}"
        return ""

    def _outs_of(self, pf: Pf) -> dict[int, Out]:
        if pf.name not in self._outs:
            self._outs[pf.name] = {index: out for out in pf.out for index in out.vfs}
        return self._outs[pf.name]

    def _dispute(self, vf: AssignedVf, uid: str, leaves: Callable[[str], bool]) -> str:
        claimants = self._disputes.get(Unit(VFS, vf.pci), ()) if self._disputes else ()
        rivals = [f"uid {claimant}" for claimant in claimants if claimant != uid and not leaves(claimant)]
        return f"is also claimed by another pod: {', '.join(rivals)}" if rivals else ""


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
        assignment, previous = change.assigned_pod.assignment, change.previous
        if assignment is not None and (previous is None or previous.assignment != assignment):
            return self._update(change.assigned_pod.node)
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
        return [
            instruction
            for unit, uids in new_disputes.items()
            if set(uids) - set(old_disputes.get(unit, ()))
            for instruction in self._report(node, unit, uids)
        ]

    def repeat_reports(self) -> list[Instruction]:
        return [
            instruction
            for node, disputes in self._disputes.items()
            for unit, uids in disputes.items()
            for instruction in self._report(node, unit, uids)
        ]

    def _report(self, node: str, unit: Unit, uids: Sequence[str]) -> Iterator[Instruction]:
        assigned_pods = [assigned_pod for uid in uids if (assigned_pod := self._cache.assigned(uid)) is not None]
        claimants = f"claimed by {', '.join(assigned_pod.pod for assigned_pod in assigned_pods)}"
        last_pod, is_vf = assigned_pods[-1], unit.kind == VFS
        fields = {"node": node, "pod": last_pod.pod, "uid": last_pod.uid, "reason": claimants}
        if is_vf:
            yield Notice("dispute", "VF is claimed twice", fields | {"pci": unit.id})
        else:
            yield Notice("dispute", "unit is claimed twice", fields | {"constraint": unit.kind, "unit": unit.id})
        kind = "VF" if is_vf else unit.kind
        message = f"{kind} {unit.id} of node {node} is {claimants}: it is not assigned again until all of them are gone"
        for assigned_pod in assigned_pods:
            yield Report(pod_reference(assigned_pod), "DisputedVf" if is_vf else "DisputedUnit", message)
