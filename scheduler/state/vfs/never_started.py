"""Pods that are bound and never started, and whether their nodes contradict their assignments. Pure.

A VF may be gone after a reboot, a NIC may be swapped, two pods may claim one VF: the node refuses such a pod
permanently, and no other program gives it another VF. If a fresh inventory contradicts its assignment for `PATIENCE_S`
without a break, the pod is evicted if a controller will create it again. Otherwise its owner gets a report. An
inventory that is not fresh (another boot's, a node that is not Ready, no inventory) contradicts nothing, and the time
starts again. Time is an argument.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import LOST, Out, Pf
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS
from scheduler.kube.objects import ContainerStatus, Pod

PATIENCE_S = 300.0
# An eviction that the API server did not accept (a disruption budget, an outage) is tried again after this long.
_RETRY_S = 60.0
# Pods that are settled in one step.
_MOST_AT_ONCE = 64
# Reasons of the advertiser that do not count against a pod that already has the VF by assignment.
_HARMLESS = frozenset({"drained", "preparing"})
# Devices that more than one live pod claims, and the pods' uids.
Disputes = Mapping[Unit, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Overdue:
    """A pod that its node has contradicted for too long, why, and whether to evict it or only to report it."""

    pod: Pod
    node: str
    reason: str
    evict: bool


@dataclass(slots=True)
class _Case:
    pod: Pod
    assignment: Assignment
    reason: str = ""
    # Its time is over, and the eviction or report is done.
    is_settled: bool = False


class NeverStarted:
    """The bound pods with VFs that have never started, by uid; a few, however large the cluster."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        self._uids_by_node: dict[str, set[str]] = {}
        # For the contradicted ones only: when their time is over.
        self._due: dict[str, float] = {}

    def record(self, pod: Pod, assignment: Assignment | None) -> bool:
        """Record a bound pod; return whether it is one of these."""
        uid = pod.metadata.uid
        if assignment is None or not assignment.vfs or has_started(pod) or pod.metadata.deletion_timestamp is not None:
            self.drop(uid)
            return False
        case = self._cases.get(uid)
        if case is not None and case.assignment == assignment:
            case.pod = pod
            return True
        self.drop(uid)
        self._cases[uid] = _Case(pod, assignment)
        self._uids_by_node.setdefault(assignment.node, set()).add(uid)
        return True

    def drop(self, uid: str) -> None:
        self._due.pop(uid, None)
        case = self._cases.pop(uid, None)
        if case is not None:
            on_node = self._uids_by_node[case.assignment.node]
            on_node.discard(uid)
            if not on_node:
                del self._uids_by_node[case.assignment.node]

    def judge(self, node: str, current: "NodeClaims", now: float) -> None:
        """Compare the assignments of a node's pods with the node's current inventory."""
        for uid in self._uids_by_node.get(node, ()):
            self.judge_pod(uid, current, now)

    def judge_pod(self, uid: str, current: "NodeClaims", now: float) -> None:
        """Compare one pod's assignment with its node's current inventory."""
        case = self._cases[uid]
        case.reason = current.contradiction(case.assignment, self._leaves)
        if not case.reason:
            case.is_settled = False
            self._due.pop(uid, None)
        elif not case.is_settled:
            self._due.setdefault(uid, now + PATIENCE_S)

    def __contains__(self, uid: str) -> bool:
        return uid in self._cases

    def next_due(self) -> float | None:
        """Return when the first pod's time is over; None if no pod is contradicted."""
        return min(self._due.values(), default=None)

    def overdue(self, now: float) -> list[str]:
        """Return the pods whose time is over, the first first, and of many only a part."""
        due_pods = [(due, uid) for uid, due in self._due.items() if due <= now]
        return [uid for _, uid in heapq.nsmallest(_MOST_AT_ONCE, due_pods)]

    def node_of(self, uid: str) -> str:
        return self._cases[uid].assignment.node

    def take_overdue(self, uid: str, current: "NodeClaims", now: float) -> Overdue | None:
        """Settle, once, a pod whose time is over; None if another that was settled meanwhile leaves it its VFs."""
        self.judge_pod(uid, current, now)
        if self._due.pop(uid, None) is None:
            return None
        case = self._cases[uid]
        case.is_settled = True
        return Overdue(case.pod, case.assignment.node, case.reason, evict=is_controlled(case.pod))

    def retry(self, uid: str, now: float) -> None:
        """Record that an eviction did not happen."""
        case = self._cases.get(uid)
        if case is not None and case.reason:
            case.is_settled = False
            self._due[uid] = now + _RETRY_S

    def _leaves(self, uid: str) -> bool:
        """Return whether a pod is being evicted."""
        case = self._cases.get(uid)
        return case is not None and case.is_settled and is_controlled(case.pod)


def has_started(pod: Pod) -> bool:
    """Return whether anything of a pod has ever run, its sandbox included: then it was given its VFs."""
    status = pod.status
    if status.phase not in (None, "", "Pending"):
        return True
    for condition in status.conditions or ():
        if condition.type == "PodReadyToStartContainers" and condition.status == "True":
            return True
    return has_run(pod)


def has_run(pod: Pod) -> bool:
    """Return whether a container of a pod has ever run."""
    status = pod.status
    return any(map(_has_run, (*(status.container_statuses or ()), *(status.init_container_statuses or ()))))


def _has_run(container: ContainerStatus) -> bool:
    states = [state for state in (container.state, container.last_state) if state is not None]
    return container.restart_count > 0 or any(state.running or state.terminated for state in states)


def is_controlled(pod: Pod) -> bool:
    """Return whether a controller creates the pod again after deletion; a static pod's node does not."""
    return any(owner.controller and owner.kind != "Node" for owner in pod.metadata.owner_references or ())


class NodeClaims:
    """A node's current inventory and what is claimed twice there, to compare the assignments of its pods with.

    One is made for all pods that are judged at a time: its PFs are read once, and only those that a pod names.
    """

    def __init__(self, node_info: NodeInfo | None, disputes: Disputes) -> None:
        is_fresh = node_info is not None and node_info.fault is None and node_info.unready_since is None
        inventory = node_info.inventory if node_info is not None and is_fresh else None
        self._pfs = {pf.name: pf for pf in inventory.pfs} if inventory is not None else None
        self._disputes = disputes
        self._outs: dict[str, dict[int, Out]] = {}

    def contradiction(self, assignment: Assignment, leaves: Callable[[str], bool]) -> str:
        """Return how a fresh inventory contradicts an assignment; empty if it does not, or is not fresh.

        ``leaves`` says of a pod that its claims are about to end.
        """
        if self._pfs is None:
            return ""
        for vf in assignment.vfs:
            reason = self._describe_contradiction(vf, self._pfs.get(vf.pf), assignment.uid)
            if reason or (reason := self._describe_dispute(vf, assignment.uid, leaves)):
                return f"VF {vf.pci} ({vf.pf}/{vf.vf}) {reason}"
        return ""

    def loss(self, assignment: Assignment) -> str:
        """Return which VF of a running pod a fresh inventory shows as lost, or below a PF that is down; else empty."""
        for vf in assignment.vfs if self._pfs is not None else ():
            pf = self._pfs.get(vf.pf) if self._pfs is not None else None
            reason = "" if pf is None or pf.up else "has no network: the link of its PF is down"
            if reason := reason or self._describe_loss(vf, pf, assignment.uid):
                return f"VF {vf.pci} ({vf.pf}/{vf.vf}) {reason}"
        return ""

    def has_lost_vf(self, assignment: Assignment) -> bool:
        """Return whether a fresh inventory shows a VF of a pod as lost."""
        pfs = self._pfs
        return pfs is not None and any(self._describe_loss(vf, pfs.get(vf.pf), assignment.uid) for vf in assignment.vfs)

    def _describe_loss(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        out = None if pf is None else self._outs_of(pf).get(vf.vf)
        if out is not None and out.why.startswith(LOST):
            return "is back in the host's network namespace"
        return self._describe_contradiction(vf, pf, uid)

    def _describe_contradiction(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        if pf is None or vf.vf not in pf.vfs or pf.vf_pci(vf.vf) != vf.pci:
            return "does not exist any more"
        if (pf.link, pf.network) != (vf.link, vf.network):
            return f"is on {pf.link} network {pf.network!r} now, not on {vf.link} network {vf.network!r}"
        out = self._outs_of(pf).get(vf.vf)
        if out is not None and out.why not in _HARMLESS and uid not in out.why:
            return f"cannot be used: {out.why}"
        return ""

    def _outs_of(self, pf: Pf) -> dict[int, Out]:
        """Return a PF's VFs that are out, each of which is named once."""
        if pf.name not in self._outs:
            self._outs[pf.name] = {index: out for out in pf.out for index in out.vfs}
        return self._outs[pf.name]

    def _describe_dispute(self, vf: AssignedVf, uid: str, leaves: Callable[[str], bool]) -> str:
        claimants = self._disputes.get(Unit(VFS, vf.pci), ()) if self._disputes else ()
        other_uids = [claimant for claimant in claimants if claimant != uid and not leaves(claimant)]
        return f"is claimed by another pod too: {_list_uids(other_uids)}" if other_uids else ""


def _list_uids(uids: Iterable[str]) -> str:
    return ", ".join(f"uid {uid}" for uid in uids)
