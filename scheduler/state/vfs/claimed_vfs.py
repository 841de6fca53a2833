"""VFs that pods claim: what a node's fresh inventory shows of them, those that two live pods claim, and bound pods that
their node does not start, or did not keep. Pure.

An inventory that is not fresh (from another boot, of a node that is not Ready, or missing) contradicts nothing.

A disputed VF stays reserved until both pods are gone, and both owners get a report. The node's ledger decides which pod
has it. The same applies to two pods that claim one unit of another kind.

A VF may be gone after a reboot, a NIC may be replaced, or two pods may claim one VF: the node rejects such a pod
permanently, and no other program gives it another VF. If a fresh inventory contradicts its assignment for `PATIENCE_S`
without a break, the pod is evicted if a controller will create it again. Otherwise its owner gets a report.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import LOST, Out, Pf
from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS
from scheduler.cycle.instructions import EVICTION_RETRY_S, Evict, Instruction, Notice, Order, Report, Result
from scheduler.cycle.refusing_nodes import RefusingNodes
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState

PATIENCE_S = 300.0
# Number of pods that are settled in one step.
_PORTION = 64
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


@dataclass(slots=True)
class _Case:
    pod: Pod
    assignment: Assignment
    reason: str = ""


class UnstartedPods(Part):
    """The bound pods with VFs that have never started, by uid; a few, however large the cluster."""

    def __init__(self, state: SharedState, vf_disputes: VfDisputes, *, evicts: bool) -> None:
        self._cache, self._scheduler_name = state.cache, state.scheduler_name
        self._vf_disputes, self._evicts = vf_disputes, evicts
        self._cases: dict[str, _Case] = {}
        # For the contradicted ones only: when their time is over; infinite once they are evicted or reported.
        self._due: dict[str, float] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._cases

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Record a bound pod; only pods of this scheduler are evicted because of their annotation."""
        pod, uid, assignment = change.pod, change.pod.metadata.uid, change.assigned_pod.assignment
        is_ours = pod.spec.scheduler_name == self._scheduler_name and pod.metadata.deletion_timestamp is None
        case = self._cases.get(uid)
        if assignment is None or not assignment.vfs or not is_ours or _has_started(pod):
            self._drop(uid)
        elif case is not None and case.assignment == assignment:
            case.pod = pod
        else:
            self._drop(uid)
            self._cases[uid] = _Case(pod, assignment)
        self._judge(change.assigned_pod.node, now, uid)
        return ()

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._drop(uid)
        if assigned_pod is not None:
            # Its end may settle a dispute.
            self._judge(assigned_pod.node, now)

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        self._judge(node.name, now)
        return ()

    def node_removed(self, name: str, now: float) -> None:
        self._judge(name, now)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, Evict) and result == "refused":
            case = self._cases.get(order.pod.metadata.uid)
            if case is not None and case.reason:
                self._due[order.pod.metadata.uid] = now + EVICTION_RETRY_S
        return ()

    def tick(self, now: float) -> Iterator[Instruction]:
        """Yield the instructions for pods whose time to start is over; of many only a part, and the rest stays due."""
        due_pods = [(due, uid) for uid, due in self._due.items() if due <= now]
        claims = dict[str, NodeClaims]()
        for _, uid in heapq.nsmallest(_PORTION, due_pods):
            case = self._cases[uid]
            node = case.assignment.node
            if node not in claims:
                claims[node] = self._claims(node)
            # Another pod that was settled meanwhile may release the VF.
            self._judge_pod(uid, claims[node], now)
            if uid in self._due:
                self._due[uid] = inf
                message = f"cannot start on node {node}: {case.reason}"
                if self._evicts and _is_controlled(case.pod):
                    yield Evict(case.pod, message)
                else:
                    yield Report(case.pod, "NeverStarts", f"{message}; delete it")
        for node in claims:
            self._judge(node, now)

    def next_due(self) -> float | None:
        due = min(self._due.values(), default=inf)
        return None if due == inf else due

    def _drop(self, uid: str) -> None:
        self._due.pop(uid, None)
        self._cases.pop(uid, None)

    def _judge(self, node: str, now: float, changed_uid: str | None = None) -> None:
        """Judge the pods of a node; after a change of one pod only those that a dispute can concern."""
        is_about_one = changed_uid is not None and not self._vf_disputes.of(node)
        # A pod with a reason against it is due.
        if self._cases and (self._due or not is_about_one):
            uids = [pod.uid for pod in self._cache.assigned_pods_on(node) if pod.uid in self._cases]
            uids = [uid for uid in uids if not is_about_one or uid == changed_uid or uid in self._due]
        else:
            uids = [changed_uid] if changed_uid in self._cases else []
        if uids:
            claims = self._claims(node)
            for uid in uids:
                self._judge_pod(uid, claims, now)

    def _judge_pod(self, uid: str, claims: NodeClaims, now: float) -> None:
        case = self._cases[uid]
        case.reason = claims.contradiction(case.assignment, self._leaves)
        if case.reason:
            self._due.setdefault(uid, now + PATIENCE_S)
        else:
            self._due.pop(uid, None)

    def _claims(self, node: str) -> NodeClaims:
        return NodeClaims(self._cache.node(node), self._vf_disputes.of(node))

    def _leaves(self, uid: str) -> bool:
        return self._due.get(uid) == inf and _is_controlled(self._cases[uid].pod)


class RefusedPods(Part):
    """Records the nodes of pods that end, from the start of this process on, because of the kubelet or a lost VF."""

    def __init__(self, cache: Cache, refusing_nodes: RefusingNodes) -> None:
        self._cache, self._refusing_nodes = cache, refusing_nodes

    def pod_updated(self, pod: Pod, now: float) -> None:
        assigned_pod = self._cache.assigned(pod.metadata.uid)
        if assigned_pod is None or not (pod.is_over or pod.metadata.deletion_timestamp is not None):
            return
        node, assignment = assigned_pod.node, assigned_pod.assignment
        # As `rejectPod` writes it; a pod that ran has the statuses of its containers.
        is_rejected = pod.status.phase == "Failed" and bool(pod.status.reason) and not _has_run(pod)
        if is_rejected or (assignment is not None and NodeClaims(self._cache.node(node)).has_lost_vf(assignment)):
            self._refusing_nodes.note(pod, node, now)

    def tick(self, now: float) -> Iterable[Instruction]:
        self._refusing_nodes.forget(now)
        return ()

    def next_due(self) -> float | None:
        return self._refusing_nodes.next_end()


def _has_started(pod: Pod) -> bool:
    """Return whether any part of a pod has ever run, its sandbox included: then it got its VFs."""
    sandbox = pod.condition("PodReadyToStartContainers")
    is_pending = pod.status.phase in (None, "", "Pending")
    return not is_pending or (sandbox is not None and sandbox.status == "True") or _has_run(pod)


def _has_run(pod: Pod) -> bool:
    containers = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return any(
        container.restart_count > 0 or (state is not None and (state.running or state.terminated))
        for container in containers
        for state in (container.state, container.last_state)
    )


def _is_controlled(pod: Pod) -> bool:
    """Return whether a controller creates the pod again after deletion; a static pod's node does not."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind != "Node"
