"""Jobs of the simulated cluster: pods that start together, made by a careless user, and what is guaranteed about them.

A job's members are equal, so that whether it fits is a question of how many go to each node: every distribution is
tried here, with nothing shared with the scheduler. Promise 9 is checked at each decision, by what that scheduler knows,
and at each Binding, by the volumes of those that were decided with it.

Which members that have succeeded may count is told here by the decisions: members that a scheduler places beside others
are of the same run as these, and those that it places when it knows of no others begin a new one.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from mooring import names
from mooring.annotations.request import read_request
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims
from scheduler.state.machine import Machine
from tests.scheduler.simulation.api import Api, Json
from tests.scheduler.simulation.cluster import CPUS, RACK, Cluster, PodState, rack_of
from tests.scheduler.simulation.oracle import has_cpu, is_ready, told, vfs_fit
from tests.scheduler.simulation.storage import ANYWHERE, Storage

_POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_API = "scheduling.k8s.io/v1beta1"
# The run of those that were never decided about here.
_UNKNOWN = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What a user wants: ``size`` equal pods, of which ``min`` start together."""

    name: str
    size: int
    min: int
    request: str | None
    cpu: str
    by_pod_group: bool
    priority: str = ""
    with_claims: bool = False
    within: bool = False
    rails: str = ""


@dataclass
class Jobs:
    """All jobs by name, and the uids of all pods that each ever had."""

    api: Api
    cluster: Cluster
    storage: Storage
    jobs: dict[str, Job] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    # Of these, those that were made for its last run.
    made: dict[str, set[str]] = field(default_factory=dict)
    # By uid those that were decided together with it, and when.
    batches: dict[str, tuple[frozenset[str], str]] = field(default_factory=dict)
    # By uid the runs in which schedulers have placed it: two that know different things may both have done so.
    runs: dict[str, frozenset[int]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    decided: int = 0
    completed: int = 0
    # How often others were sent away for one.
    preempted: int = 0
    # Of these, those that had first call on what became free.
    after_hold: int = 0
    # How many decisions were beside members that succeeded in an earlier run.
    run_again: int = 0
    _claims: int = 0

    def create(self, job: Job) -> None:
        self.jobs[job.name] = job
        self.members[job.name] = set()
        self.start(job)

    def start(self, job: Job) -> None:
        """Let a job run, also again: the pods of earlier runs stay."""
        self.made[job.name] = set()
        for _ in range(job.size):
            self.add_member(job)

    def add_member(self, job: Job) -> None:
        """Create a member, as a controller does that replaces one."""
        spec: Json = {"priorityClassName": job.priority} if job.priority else {}
        if job.with_claims:
            self._claims += 1
        if job.with_claims and job.size > 2:
            # All members share one.
            claim = f"{ANYWHERE if job.size > 3 else 'job-'}shared-{job.name}"
            if claim not in self.storage.claims():
                self.storage.create_claim(claim)
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        elif job.with_claims and self._claims % 2:
            # Every second member has none, and waits for the others' all the same.
            claim = f"job-claim-{self._claims}"
            self.storage.create_claim(claim)
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        annotations = {}
        if job.by_pod_group:
            spec["schedulingGroup"] = {"podGroupName": job.name}
            group: Json = {}
        else:
            group = {"name": job.name, "min": job.min} | ({"within": RACK} if job.within else {})
        group |= {"rails": job.rails} if job.rails else {}
        if group:
            annotations[names.GROUP] = json.dumps(group)
        name = self.cluster.create_pod(job.request, cpu=job.cpu, spec=spec, annotations=annotations)
        uid = next(pod.uid for pod in self.cluster.pods() if pod.name == name)
        self.members[job.name].add(uid)
        self.made[job.name].add(uid)

    def put_pod_group(self, job: Job) -> None:
        spec: Json = {"schedulingPolicy": {"gang": {"minCount": job.min}}}
        if job.size % 2:
            spec["disruptionMode"] = {"all": {}}
        if job.within:
            spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
        metadata = {"name": job.name}
        body = {"apiVersion": _API, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        self.api.call("POST", _POD_GROUPS, body)

    def delete_pod_group(self, job: Job) -> None:
        self.api.call("DELETE", f"{_POD_GROUPS}/{job.name}")

    def has_pod_group(self, job: Job) -> bool:
        entries = self.api.cluster.store.collection(("scheduling.k8s.io", "podgroups")).ordered()
        return any(entry.name == job.name for entry in entries)

    def of(self, uid: str) -> Job | None:
        """Return the job that a pod is of; None for a pod on its own."""
        return next((self.jobs[name] for name, uids in self.members.items() if uid in uids), None)

    def pods(self, job: Job) -> list[PodState]:
        return [pod for pod in self.cluster.pods() if pod.uid in self.members[job.name]]

    def size(self) -> int:
        """Return how many pods of jobs there are."""
        every = set[str]().union(*self.members.values())
        return sum(pod.uid in every for pod in self.cluster.pods())

    def decide(self, machine: Machine, binds: Sequence[Bind], now: float) -> None:
        """Check a decision, by what the scheduler that made it knows of the members."""
        for name in dict.fromkeys(job.name for bind in binds if (job := self.of(bind.pod_info.uid)) is not None):
            job, uids = self.jobs[name], self.members[name]
            mine = frozenset(bind.pod_info.uid for bind in binds if bind.pod_info.uid in uids)
            self.decided += 1
            self.completed += len(mine) >= job.min > 1
            holder = machine.pending_groups.holder
            self.after_hold += len(mine) >= job.min > 1 and holder is not None and holder.name == name
            known = [assigned for uid in uids if (assigned := machine.cache.assigned(uid)) is not None]
            placed = [one for one in known if one.affinity_info is None or not one.affinity_info.terminating]
            before = [one for one in placed if one.uid not in mine]
            over, may_count = self._succeeded(job, machine, {one.uid for one in before})
            if len(placed) + may_count < job.min:
                self.broken.append(f"{len(placed)} members of {name} are placed, of at least {job.min}")
            self.run_again += bool(before) and may_count < over
            self._join(mine, {one.uid for one in before})
            self.batches |= dict.fromkeys(mine, (mine, self.api.cluster.now()))
            self._check_racks(job, machine, before, binds, mine)
            # Another scheduler binds where it likes.
            ours = [one for one in placed if one.uid in self.batches]
            networks = {one.assignment.vfs[0].network for one in ours if one.assignment and one.assignment.vfs}
            if job.rails == "same" and len(networks) > 1:
                self.broken.append(f"members of {name} are on two networks: {sorted(networks)}")

    def _succeeded(self, job: Job, machine: Machine, placed: Set[str]) -> tuple[int, int]:
        """Return how many members have succeeded, and how many of these may count beside those that are placed."""
        # Which have is not in the cache.
        there = {pod.uid: pod.phase for pod in self.pods(job)}
        over = {uid for uid, phase in there.items() if phase == "Succeeded"}
        # A scheduler's watch may show later that one of those is deleted.
        standing = machine.groups_by_pod.standing
        over |= {uid for uid in self.members[job.name] - there.keys() if standing(uid) == "succeeded"}
        runs = self._runs(placed)
        may_count = {uid for uid in over if runs and (_UNKNOWN in runs | self._runs({uid}) or runs & self._runs({uid}))}
        return len(over), len(may_count)

    def _join(self, mine: Set[str], before: Set[str]) -> None:
        """Note the run of those that are decided about beside others."""
        runs = self._runs(before) or {max(map(max, self.runs.values()), default=_UNKNOWN) + 1}
        self.runs |= {uid: self.runs.get(uid, frozenset()) | runs for uid in mine}

    def _runs(self, uids: Set[str]) -> frozenset[int]:
        """Return the runs of members; another scheduler binds them in any."""
        return frozenset[int]().union(*(self.runs.get(uid, {_UNKNOWN}) for uid in uids))

    def _check_racks(
        self, job: Job, machine: Machine, before: Sequence[AssignedPod], binds: Sequence[Bind], mine: Set[str]
    ) -> None:
        """Check that members come to one rack, and to those that are placed: where most are, if they are in several."""
        racks = Counter(rack_of(one.node) for one in before if one.node in machine.cache.nodes.row_of)
        chosen = {rack_of(bind.assigned.node) for bind in binds if bind.pod_info.uid in mine}
        allowed = {rack for rack in racks if racks[rack] == max(racks.values())} if before else chosen
        if job.within and (len(chosen) > 1 or not chosen <= allowed):
            self.broken.append(f"members of {job.name} go to racks {sorted(chosen)}, of {dict(racks)} before")

    def preempt(self, machine: Machine, order: DeleteVictims) -> None:
        """Check that enough of a job fits without the victims, by what the scheduler that chose them knows."""
        gone = {one.uid for one in order.victims}
        groups = machine.placed_groups
        for key in {key for uid in gone if (key := groups.whole_group_of(uid)) is not None}:
            if left := set(groups.placed(key)) - gone:
                self.broken.append(f"{sorted(left)} of {key.name} stay, which may only be disrupted as a whole")
        job = self.of(order.pod.metadata.uid)
        if job is None:
            return
        self.preempted += 1
        uids, cache = self.members[job.name], machine.cache
        kept = [one.assigned for uid in uids if (one := machine.nominator.of(uid)) is not None]
        placed = {uid for uid in uids if machine.groups_by_pod.standing(uid) == "placed"}
        there = len(placed) + self._succeeded(job, machine, placed)[1]
        if len(kept) + there < job.min:
            self.broken.append(f"pods go for {len(kept)} members of {job.name}, {there} are placed, of {job.min}")
        for node in {one.node for one in kept}:
            stay = [one for one in cache.assigned_pods_on(node) if one.uid not in gone and not _is_leaving(one)]
            every = [*stay, *(one for one in kept if one.node == node)]
            held = Counter(pci for one in every for pci in _vfs(one))
            twice = {pci for one in kept if one.node == node for pci in _vfs(one) if held[pci] > 1}
            cpu = sum(one.resources.get("cpu", 0) for one in every)
            if cpu > 1000 * CPUS or twice:
                self.broken.append(f"{job.name} does not fit on {node} though {sorted(gone)} go: {cpu} m, {twice}")

    def see_binding(self, uid: str) -> None:
        """Check that the volumes of all that were decided together are bound."""
        batch, since = self.batches.get(uid, (frozenset[str](), ""))
        claims = self.storage.claims()
        for pod in self.cluster.pods() if batch else ():
            # Another scheduler may have bound one of them meanwhile, volumes or not.
            if pod.uid in batch and not pod.is_going and (pod.uid == uid or not pod.node):
                used = [claims[name] for name in _claims_of(pod) if name in claims]
                if any(not claim.volume and claim.created < since for claim in used):
                    self.broken.append(f"the pod of uid {uid} was bound before the volumes of {pod.name}")

    def kept(self, *, but_for: str = "") -> set[str]:
        """Return the nodes on which room may be kept for a job that waits, ``but_for`` one of them."""
        waiting = ((job.name, pod) for job in self.jobs.values() for pod in self.pods(job) if not pod.node)
        return {pod.document["status"].get("nominatedNodeName", "") for name, pod in waiting if name != but_for}

    def unsettled(self, nodes: dict[str, Json], live: Sequence[PodState]) -> Iterator[str]:
        """Yield which jobs wait though they fit, and which members were not told why they wait."""
        for job in self.jobs.values():
            pods = self.pods(job)
            waiting = [one for one in pods if not one.node and not one.is_gated and not one.is_going]
            bound = [_bound_at(one) for one in pods if one.is_live and not one.is_going]
            # More may count: a scheduler that has seen others meanwhile knows that the run is older.
            counting = len(bound) + sum(_ended_at(one) > min(bound) for one in pods if bound)
            needed = max(job.min - counting, 1)
            exists = not job.by_pod_group or self.has_pod_group(job)
            kept = self.kept(but_for=job.name)
            free = {name: node for name, node in nodes.items() if name not in kept}
            fits = exists and len(waiting) >= needed and self._fits(waiting[0], needed, free, live)
            if fits and not (job.with_claims or job.within or job.rails):
                yield f"{needed} members of {job.name} fit and wait: {told(waiting[0])!r}"
            for pod in waiting:
                if not told(pod):
                    yield f"{pod.name} of {job.name} waits and was not told why"

    def _fits(self, member: PodState, count: int, nodes: dict[str, Json], live: Sequence[PodState]) -> bool:
        """Return whether so many members fit, by trying every distribution over the nodes."""
        ready = [name for name, node in nodes.items() if is_ready(node)]
        return any(
            all(_go_to(member, nodes[name], chosen.count(name), live) for name in set(chosen))
            for chosen in itertools.combinations_with_replacement(ready, count)
        )


def _vfs(assigned: AssignedPod) -> list[str]:
    return [vf.pci for vf in assigned.assignment.vfs] if assigned.assignment is not None else []


def _is_leaving(assigned: AssignedPod) -> bool:
    return assigned.affinity_info is not None and assigned.affinity_info.terminating


def _go_to(member: PodState, node: Json, count: int, live: Sequence[PodState]) -> bool:
    """Return whether so many equal pods fit on a node together."""
    there = [one for one in live if one.node == node["metadata"]["name"]]
    request = read_request(member.annotations)
    interfaces = request.interfaces if request else ()
    beside = [*there, *([replace(member)] * (count - 1))]
    return has_cpu(member, beside) and vfs_fit(interfaces * count, node, there)


def _bound_at(pod: PodState) -> str:
    conditions: list[dict[str, str]] = pod.document["status"].get("conditions") or []
    scheduled = (one["lastTransitionTime"] for one in conditions if one["type"] == "PodScheduled")
    return next(scheduled, pod.document["metadata"]["creationTimestamp"])


def _ended_at(pod: PodState) -> str:
    """Return when a pod has succeeded; empty if it has not."""
    states = [one["state"] for one in pod.document["status"].get("containerStatuses") or []]
    return max((one["terminated"]["finishedAt"] for one in states if "terminated" in one), default="")


def _claims_of(pod: PodState) -> list[str]:
    volumes: list[dict[str, Any]] = pod.document["spec"].get("volumes") or []
    return [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]
