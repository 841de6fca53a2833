"""Pods that are bound and never started, and whether their nodes contradict their assignments. Pure.

A VF may be gone after a reboot, a NIC may be swapped, two pods may claim one VF: the node refuses such a pod
permanently, and no other program gives it another VF. If a fresh inventory contradicts its assignment for `PATIENCE_S`
without a break, the pod is evicted if a controller will create it again. Otherwise its owner gets a report. An
inventory that is not fresh (another boot's, a node that is not Ready, no inventory) contradicts nothing, and the time
starts again. Time is an argument.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mooring.assignment import AssignedVf, Assignment
from mooring.inventory import Pf
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS
from scheduler.kube.objects import ContainerStatus, Pod

PATIENCE_S = 300.0
# An eviction that the API server did not accept (a disruption budget, an outage) is tried again after this long.
_AGAIN_S = 60.0
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
    why: str = ""
    # Its time is over, and the eviction or report is done.
    settled: bool = False


class NeverStarted:
    """The bound pods with VFs that have never started, by uid; a few, however large the cluster."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        self._on: dict[str, set[str]] = {}
        # For the contradicted ones only: when their time is over.
        self._due: dict[str, float] = {}

    def see(self, pod: Pod, assignment: Assignment | None) -> bool:
        """Record a bound pod; return whether it is one of these."""
        uid = pod.metadata.uid
        if assignment is None or not assignment.vfs or has_started(pod) or pod.metadata.deletion_timestamp is not None:
            self.drop(uid)
            return False
        known = self._cases.get(uid)
        if known is not None and known.assignment == assignment:
            known.pod = pod
            return True
        self.drop(uid)
        self._cases[uid] = _Case(pod, assignment)
        self._on.setdefault(assignment.node, set()).add(uid)
        return True

    def drop(self, uid: str) -> None:
        self._due.pop(uid, None)
        case = self._cases.pop(uid, None)
        if case is not None:
            on_node = self._on[case.assignment.node]
            on_node.discard(uid)
            if not on_node:
                del self._on[case.assignment.node]

    def judge(self, node: str, node_info: NodeInfo | None, disputes: Disputes, now: float) -> None:
        """Compare the assignments of a node's pods with the node's current inventory."""
        for uid in self._on.get(node, ()):
            self.judge_pod(uid, node_info, disputes, now)

    def judge_pod(self, uid: str, node_info: NodeInfo | None, disputes: Disputes, now: float) -> None:
        """Compare one pod's assignment with its node's current inventory."""
        case = self._cases[uid]
        case.why = _contradiction(case, node_info, self._contested(disputes, uid)) if node_info is not None else ""
        if not case.why:
            case.settled = False
            self._due.pop(uid, None)
        elif not case.settled:
            self._due.setdefault(uid, now + PATIENCE_S)

    def next_due(self) -> float | None:
        """Return when the first pod's time is over; None if no pod is contradicted."""
        return min(self._due.values(), default=None)

    def take_overdue(self, now: float) -> Overdue | None:
        """Return, once, the pod whose time was over first; judge its node again before the next call."""
        over = [(due, uid) for uid, due in self._due.items() if due <= now]
        if not over:
            return None
        _, uid = min(over)
        case = self._cases[uid]
        case.settled = True
        del self._due[uid]
        return Overdue(case.pod, case.assignment.node, case.why, evict=is_controlled(case.pod))

    def retry(self, uid: str, now: float) -> None:
        """Record that an eviction did not happen."""
        case = self._cases.get(uid)
        if case is not None and case.why:
            case.settled = False
            self._due[uid] = now + _AGAIN_S

    def _contested(self, disputes: Disputes, uid: str) -> Disputes:
        """Return the devices that other pods claim, without pods that are being deleted."""
        staying = {
            unit: tuple(one for one in uids if one != uid and not self._leaves(one)) for unit, uids in disputes.items()
        }
        return {unit: others for unit, others in staying.items() if others}

    def _leaves(self, uid: str) -> bool:
        case = self._cases.get(uid)
        return case is not None and case.settled and is_controlled(case.pod)


def has_started(pod: Pod) -> bool:
    """Return whether anything of a pod has ever run, its sandbox included: then it was given its VFs."""
    status = pod.status
    if status.phase not in (None, "", "Pending"):
        return True
    for condition in status.conditions or ():
        if condition.type == "PodReadyToStartContainers" and condition.status == "True":
            return True
    return any(map(_has_run, (*(status.container_statuses or ()), *(status.init_container_statuses or ()))))


def _has_run(container: ContainerStatus) -> bool:
    states = [state for state in (container.state, container.last_state) if state is not None]
    return container.restart_count > 0 or any(state.running or state.terminated for state in states)


def is_controlled(pod: Pod) -> bool:
    """Return whether a controller creates the pod again after deletion; a static pod's node does not."""
    return any(owner.controller and owner.kind != "Node" for owner in pod.metadata.owner_references or ())


def _contradiction(case: _Case, node_info: NodeInfo, contested: Disputes) -> str:
    """Return how a fresh inventory contradicts an assignment; empty if it does not, or is not fresh."""
    if node_info.inventory is None or node_info.fault is not None or node_info.unready_since is not None:
        return ""
    for vf in case.assignment.vfs:
        if why := _contradicted(vf, node_info.inventory.pf(vf.pf), case.assignment.uid, contested):
            return f"VF {vf.pci} ({vf.pf}/{vf.vf}) {why}"
    return ""


def _contradicted(vf: AssignedVf, pf: Pf | None, uid: str, contested: Disputes) -> str:
    if pf is None or vf.vf not in pf.vfs or pf.vf_pci(vf.vf) != vf.pci:
        return "does not exist any more"
    if (pf.link, pf.network) != (vf.link, vf.network):
        return f"is on {pf.link} network {pf.network!r} now, not on {vf.link} network {vf.network!r}"
    for out in pf.out:
        if vf.vf in out.vfs and out.why not in _HARMLESS and uid not in out.why:
            return f"cannot be used: {out.why}"
    others = contested.get(Unit(VFS, vf.pci)) if contested else None
    return f"is claimed by another pod too: {_listed(others)}" if others else ""


def _listed(uids: Iterable[str]) -> str:
    return ", ".join(f"uid {uid}" for uid in uids)
