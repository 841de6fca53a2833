"""Bound pods that their node does not start, or did not keep. Pure.

A VF may be gone after a reboot, a NIC may be replaced, or two pods may claim one VF: the node rejects such a pod
permanently, and no other program gives it another VF. If a fresh inventory contradicts its assignment for `PATIENCE_S`
without a break, the pod is evicted if a controller will create it again. Otherwise its owner gets a report. While the
inventory is not fresh, the time starts again.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from mooring.annotations.assignment import Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import Evict, Instruction, Order, Report, Result
from scheduler.cycle.refusing_nodes import RefusingNodes
from scheduler.kube.objects import Pod
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState
from scheduler.state.vfs.claimed_vfs import NodeClaims, VfDisputes

PATIENCE_S = 300.0
# Seconds after which an eviction is tried again that the API server rejected (a disruption budget, an outage).
_RETRY_S = 60.0
# Number of pods that are settled in one step.
_PORTION = 64


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
                self._due[order.pod.metadata.uid] = now + _RETRY_S
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
                yield self._evict_or_report(case)
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
        uids = [pod.uid for pod in self._cache.assigned_pods_on(node) if pod.uid in self._cases] if self._cases else []
        if changed_uid is not None and not self._vf_disputes.of(node):
            uids = [uid for uid in uids if uid == changed_uid or self._cases[uid].reason]
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

    def _evict_or_report(self, case: _Case) -> Instruction:
        message = f"cannot start on node {case.assignment.node}: {case.reason}"
        if self._evicts and _is_controlled(case.pod):
            return Evict(case.pod, message)
        return Report(case.pod, "NeverStarts", f"{message}; delete it")


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
