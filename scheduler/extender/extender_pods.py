"""The pods that request VFs and that kube-scheduler schedules: answers for the extender. Pure.

Only what Mooring assigns is evaluated here: whether the VFs, and units of other kinds, fit on a node in addition to its
pods and nominated pods. All other rules are kube-scheduler's own, and it chooses the node. The exact VFs are chosen
here. They are reserved from `reserve` until `finish`, or until the watch shows the result of the Binding. Only pods
that the watch has shown get any: a list that was requested earlier may lack the others, and would free their VFs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from mooring import names
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind, SignAssignment, binding_annotations
from scheduler.cycle.node_dry_run import DryRuns, NodeDryRun, assigned_pod_for
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.potential_victims import PotentialVictims, Victim, importance, pods_of, split
from scheduler.cycle.preemption.select_victims import reprieve
from scheduler.cycle.reserved_room import ReservedRoom
from scheduler.extender.bound_without_vfs import BoundWithoutVfs
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.extender.wire_format import MAX_PRIORITY, Victims
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.pending.pending_pods import PendingPods
from scheduler.placement.assign import NO_DIVISION, NOT_ENOUGH, OUT_OF_BUDGET, demands_on, place_request
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import full_capacity
from scheduler.plugins.device_rules import constraints, node_programs, rdma_vfs
from scheduler.plugins.registry import WEIGHT_OF
from scheduler.queue.queue import Queue

UNKNOWN_NODE = "node(s) were not in Mooring's cache yet"
_NO_GROUPS = "the extender does not support groups: only Mooring's own scheduler places their pods"
_LACK = "not enough free RDMA VFs or bandwidth there"
UNKNOWN_POD = "the pod is not in Mooring's cache yet"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod may not go to a node; empty if it may.

    ``for_good`` if no eviction helps, ``blind`` if nothing is known about the node's VFs.
    """

    reason: str = ""
    for_good: bool = False
    blind: bool = False


@dataclass(slots=True)
class ExtenderPods:
    """The cluster for pods of another scheduler, until they are bound.

    The VFs of some pods must be near ``devices`` that their resource claims have.
    """

    scheduler_name: str
    cache: Cache
    pending_pods: PendingPods
    queue: Queue
    reservations: ReservedRoom
    budgets: Budgets
    groups: GroupCache
    kinds: Kinds
    bound_without_vfs: BoundWithoutVfs = field(default_factory=BoundWithoutVfs)
    sign: SignAssignment | None = None

    def read(self, pod: Pod) -> PodInfo | Refused:
        """Read what a pod requests; kube-scheduler allocates resource claims."""
        pod_info = read_pod_info(pod, self.kinds, has_claims_allocated=True)
        if isinstance(pod_info, PodInfo) and pod_info.membership is not None:
            return Refused(f"group {pod_info.membership.title}: {_NO_GROUPS}")
        return pod_info

    def knows(self, uid: str) -> bool:
        """Return whether the watch has shown a pod that has a node, or waits for another scheduler to bind it."""
        return self.pending_pods.is_foreign(uid) or self.cache.assigned(uid) is not None

    def offer(self, pod_info: PodInfo) -> None:
        """Record that kube-scheduler has received the nodes that fit a pod."""
        if pod_info.interfaces and self.cache.assigned(pod_info.uid) is None:
            self.bound_without_vfs.offer(pod_info.uid)

    def judge(
        self, pod_info: PodInfo, nodes: Iterable[str], now: float, devices: ClaimedDevices | None = None
    ) -> Iterator[tuple[str, Verdict]]:
        """Yield the reason against each node; each is evaluated on the current state when the iterator reaches it."""
        self.cache.tick(now)
        nominations, dry_runs = self.reservations.counting_for(pod_info), self._dry_runs(pod_info)
        for node in nodes:
            nominees = nominations.get(node, ())
            verdict = self._judge(dry_runs, node, nominees)
            if devices is not None and not verdict.reason and self.cache.assigned(pod_info.uid) is None:
                verdict = self._judge_near(devices, pod_info, node, nominees)
            yield node, verdict

    def score(self, pod_info: PodInfo, node: str) -> int:
        """Return how well the pod's VFs and units suit a node, from 0 to `MAX_PRIORITY`."""
        nodes = self.cache.nodes
        row = nodes.row_of.get(node)
        if row is None:
            return 0
        total, weights = 0, 0
        for plugin in (rdma_vfs.SCORE, constraints.SCORE):
            score = plugin.pre_filter(pod_info, nodes)
            if score is not None:
                total += WEIGHT_OF[plugin.name] * int(score(nodes.row_view(row)))
                weights += WEIGHT_OF[plugin.name]
        return total * MAX_PRIORITY // (100 * max(weights, 1))

    def reserve(
        self, pod_info: PodInfo, node: str, now: float, devices: ClaimedDevices | None = None
    ) -> Bind | Refused:
        """Reserve exact VFs on the chosen node; return the Bind, or why there are none."""
        self.cache.tick(now)
        if reason := self._binding_fault(pod_info):
            return Refused(reason)
        self.bound_without_vfs.clear_evidence(pod_info.uid)
        ((_, verdict),) = self.judge(pod_info, (node,), now, devices)
        if verdict.reason:
            return Refused(f"node {node!r}: {verdict.reason}")
        assigned_pod = self._assign(_near(pod_info, devices), node)
        annotations = binding_annotations(pod_info.pod, assigned_pod.assignment, self.sign)
        if isinstance(annotations, Refused):
            return annotations
        self.cache.assume(assigned_pod, now)
        self.queue.move_on_event(ClusterEvent.POD_ASSIGNED, now)
        return Bind(pod_info, assigned_pod, annotations, {"v": 1, "node": node})

    def _binding_fault(self, pod_info: PodInfo) -> str:
        """Return why a pod must not be bound here, or no longer; empty if it may."""
        if pod_info.pod.spec.scheduler_name == self.scheduler_name:
            return f"pods with schedulerName {self.scheduler_name!r} are bound by that scheduler only"
        # kube-scheduler had a reason to ask: a request, even an empty one, or a managed resource.
        has_request = pod_info.request is not None or bool(pod_info.wishes)
        if not has_request and not pod_info.resources.keys() & names.EXTENDED_RESOURCES:
            return f"pod {pod_info.pod.key} requests no resource of Mooring"
        if (assigned_pod := self.cache.assigned(pod_info.uid)) is not None:
            return _in_progress(assigned_pod)
        return "" if self.knows(pod_info.uid) else UNKNOWN_POD

    def finish(self, decision: Bind, outcome: Outcome, now: float) -> None:
        """Record a Binding's definite outcome."""
        uid = decision.pod_info.uid
        if outcome.kind == "bound":
            self.cache.finish_binding(uid)
        else:
            self.pending_pods.release([uid], now)

    def make_room(
        self, pod_info: PodInfo, node: str, victims: Victims, now: float, devices: ClaimedDevices | None = None
    ) -> Victims | None:
        """Return the victims for which the pod's VFs fit on a node too; None if no eviction helps."""
        self.cache.tick(now)
        row = self.cache.nodes.row_of.get(node)
        if row is None or self._node_fault(pod_info, row) or (devices is not None and node != devices.node):
            return None
        nominees = self.reservations.counting_for(pod_info).get(node, ())
        with self._dry_runs(_near(pod_info, devices)).on(row, nominees) as dry_run:
            uids = set(victims.uids)
            dry_run.take_off(*(pod for pod in self.cache.assigned_pods_on(node) if pod.uid in uids))
            if not dry_run.refusal():
                return victims
            potential_victims = PotentialVictims(self.cache, self.groups, exempt_uids=uids)
            return self._add_victims(dry_run, victims, potential_victims.below(node, pod_info.priority))

    def _add_victims(self, dry_run: NodeDryRun, victims: Victims, candidates: list[Victim]) -> Victims | None:
        """Add less important pods that must also leave; kube-scheduler has no information about the assumed ones.

        No group is removed as a whole, because kube-scheduler deletes only pods of the one node.
        """
        singles = [victim for victim in candidates if not victim.is_whole and not victim.pods[0].assumed]
        dry_run.take_off(*pods_of(singles))
        if dry_run.refusal():
            return None
        violators, rest = split(self.budgets, sorted(singles, key=importance))
        violating_victims = reprieve(dry_run, violators)
        pods = pods_of([*violating_victims, *reprieve(dry_run, rest)])
        return Victims((*victims.uids, *(pod.uid for pod in pods)), victims.broken_budgets + len(violating_victims))

    def spare_groups(self, victims_by_node: Mapping[str, Victims]) -> dict[str, Victims]:
        """Exclude nodes where a group loses more members than it can spare, if another node loses nothing more
        important.

        kube-scheduler does not support groups by annotation, and chooses among the remaining nodes.
        """
        priorities = dict[str, int]()
        for node, victims in victims_by_node.items():
            pods = filter(None, map(self.cache.assigned, victims.uids))
            priorities[node] = max((pod.priority for pod in pods), default=0)
        groups = PotentialVictims(self.cache, self.groups)
        harmless_nodes = {node for node, victims in victims_by_node.items() if groups.can_spare(victims.uids)}
        lowest = min((priorities[node] for node in harmless_nodes), default=None)
        return {
            node: victims
            for node, victims in victims_by_node.items()
            if node in harmless_nodes or lowest is None or priorities[node] < lowest
        }

    def _judge_near(
        self, devices: ClaimedDevices, pod_info: PodInfo, node: str, nominees: Sequence[AssignedPod]
    ) -> Verdict:
        """Evaluate a node that has the pod's VFs: are they near the devices?"""
        row = self.cache.nodes.row_of.get(node)
        if row is None:
            return Verdict()
        if node != devices.node:
            return Verdict(devices.location, for_good=True)
        near_pod = _near(pod_info, devices)
        reason = self._judge(self._dry_runs(near_pod), node, nominees).reason
        if not reason:
            return Verdict()
        if self._never_fits(near_pod, row):
            return Verdict(devices.refusal(NO_DIVISION), for_good=True)
        return Verdict(devices.refusal(_LACK if reason in (*NOT_ENOUGH.values(), NO_DIVISION) else reason))

    def _never_fits(self, pod_info: PodInfo, row: int) -> bool:
        """Return whether a pod's VFs do not fit on a node even if all VFs are free."""
        request, free_vfs = pod_info.request, full_capacity(self.cache.nodes.free_vfs_of_row[row].pfs)
        demands = demands_on(request, free_vfs.pfs) if request is not None else ()
        if request is None or isinstance(demands, Refused):
            return False
        placement = place_request(request, demands, free_vfs, Steps())
        return isinstance(placement, Refused) and placement.reason != OUT_OF_BUDGET

    def _judge(self, dry_runs: DryRuns, node: str, nominees: Sequence[AssignedPod]) -> Verdict:
        pod_info, row = dry_runs.pod_info, self.cache.nodes.row_of.get(node)
        if (assigned_pod := self.cache.assigned(pod_info.uid)) is not None:
            return Verdict("" if assigned_pod.node == node else _in_progress(assigned_pod), for_good=True)
        if not pod_info.interfaces and not pod_info.wishes:
            return Verdict()
        if row is None:
            return Verdict(UNKNOWN_NODE, for_good=True, blind=True)
        if fault := self._node_fault(pod_info, row):
            return fault
        with dry_runs.on(row, nominees) as dry_run:
            return Verdict("".join(dry_run.refusal()[:1]))

    def _node_fault(self, pod_info: PodInfo, row: int) -> Verdict | None:
        """Return the reason against the node itself, whichever pods run there."""
        if reason := node_programs.gpu_refusal(pod_info, self.cache.nodes, row):
            return Verdict(reason, for_good=True)
        if pod_info.request is None or not pod_info.interfaces:
            return None
        fault, pfs = self.cache.nodes.models[row][0], self.cache.nodes.free_vfs_of_row[row].pfs
        if fault is not None:
            return Verdict(rdma_vfs.FAULTS[fault], for_good=True, blind=True)
        demands = demands_on(pod_info.request, pfs)
        return Verdict(demands.reason, for_good=True) if isinstance(demands, Refused) else None

    def _assign(self, pod_info: PodInfo, node: str) -> AssignedPod:
        row = self.cache.nodes.row_of.get(node)
        if row is None:
            return assigned_pod_for(pod_info, node)
        with self._dry_runs(pod_info).on(row, self.reservations.counting_for(pod_info).get(node, ())) as dry_run:
            return dry_run.assigned_pod()

    def _dry_runs(self, pod_info: PodInfo) -> DryRuns:
        return DryRuns(pod_info, self.cache, Steps(), reserves_only=True)


def _near(pod_info: PodInfo, devices: ClaimedDevices | None) -> PodInfo:
    """Return a pod whose VFs must be near claimed devices, if it has any."""
    if devices is None or pod_info.request is None:
        return pod_info
    return msgspec.structs.replace(pod_info, request=replace(pod_info.request, devices=devices.roots))


def _in_progress(assigned_pod: AssignedPod) -> str:
    return f"the pod is being bound to node {assigned_pod.node!r}"
