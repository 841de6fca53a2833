"""Jobs of the simulated cluster: pods that start together, made by a careless user, and what is guaranteed about them.

A job's members are equal, so that whether it fits is a question of how many go to each node: every distribution is
tried here, with nothing shared with the scheduler. Promise 9 is checked at each decision, by what that scheduler knows,
and at each Binding, by the volumes of those that were decided with it.

Whether a group may have started is told here by its Bindings, as they were: members that were ever bound while others
of them lived are of one life. Its members may only be joined if there were as many as the group needs.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from mooring import names
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims
from scheduler.cycle.preemption.potential_victims import is_terminating, whole_group_of, whole_min
from scheduler.state.machine import Machine
from tests.scheduler.simulation.api import MERGE, Api, Json
from tests.scheduler.simulation.cluster import CPUS, RACK, Cluster, PodState, rack_of
from tests.scheduler.simulation.oracle import placement
from tests.scheduler.simulation.storage import ANYWHERE, Storage

_POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_API = "scheduling.k8s.io/v1beta1"
_CONTROLLER = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
_CONTROLLERS = "/apis/batch/v1/namespaces/default/jobs"

_INDEX, _SLICE = "batch.kubernetes.io/job-completion-index", 2
_ROLE = "role"


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
    # Each two ranks are in one rack.
    slices: bool = False
    # Rank 0 has a role of its own, and starts with the others.
    roles: bool = False


@dataclass
class Jobs:
    """All jobs by name, and the uids of all pods that each ever had."""

    api: Api
    cluster: Cluster
    storage: Storage
    broken: list[str]
    jobs: dict[str, Job] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    # Of these, those that were made for its last run.
    made: dict[str, set[str]] = field(default_factory=dict)
    # By uid those that were decided together with it, and when.
    batches: dict[str, tuple[frozenset[str], str]] = field(default_factory=dict)
    # The reference to the controller of a job's last run; pods of other jobs have none.
    controllers: dict[str, Json] = field(default_factory=dict)
    # By uid the uid of the pod's controller, when the pod was created and bound, and in which life of its job.
    owners: dict[str, str] = field(default_factory=dict)
    times: dict[str, tuple[str, str]] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)
    # Those that have succeeded by what the Job of a run says.
    counted: set[str] = field(default_factory=set)
    # How many decisions completed a job, also as the first to use what became free, were made while members of an
    # earlier run had succeeded, or placed members with roles; and how many slices were placed or joined.
    met: Counter[str] = field(default_factory=Counter)
    # The uids of all pods that had rank 0.
    firsts: set[str] = field(default_factory=set)
    _claims: int = 0

    def create(self, job: Job) -> None:
        self.jobs[job.name] = job
        self.members[job.name] = set()
        self.start(job)

    def start(self, job: Job) -> None:
        """Let a job run, also again: the pods of earlier runs stay. Each third job has no controller."""
        self.made[job.name] = set()
        if sum(job.name.encode()) % 3:
            run = f"{job.name}-{len(self.owners)}"
            made = self.api.call("POST", _CONTROLLERS, {"metadata": {"name": run}})
            self.controllers[job.name] = _CONTROLLER | {"name": run, "uid": made["metadata"]["uid"]}
        for _ in range(job.size):
            self.add_member(job)

    def add_member(self, job: Job) -> None:
        """Create a member, as a controller does that replaces one."""
        spec: Json = {"priorityClassName": job.priority} if job.priority else {}
        self._claims += job.with_claims
        # All members of a large job share one; of a small one each second has none, and waits for the others' anyway.
        shared, own = f"{ANYWHERE if job.size > 3 else 'job-'}shared-{job.name}", f"job-claim-{self._claims}"
        if job.with_claims and (job.size > 2 or self._claims % 2):
            claim = shared if job.size > 2 else own
            if claim not in self.storage.claims():
                self.storage.create_claim(claim)
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        group: Json = {}
        if job.by_pod_group:
            spec["schedulingGroup"] = {"podGroupName": job.name}
        else:
            group = {"name": job.name, "min": job.min} | ({"within": RACK} if job.within else {})
        group |= {"rails": job.rails} if job.rails else {}
        group |= {"slices": {"size": _SLICE, "within": RACK}} if job.slices else {}
        group |= {"role_from": _ROLE, "roles": {"first": 1, "other": job.min - 1}} if job.roles else {}
        group |= {"spares": 1} if self.has_spare(job) else {}
        annotations = {names.GROUP: json.dumps(group)} if group else {}
        owner = self.controllers.get(job.name)
        used = {_index(pod) for pod in self.pods(job) if pod.phase != "Failed" and pod.uid in self.made[job.name]}
        index = next(number for number in itertools.count() if number not in used)
        more = {"labels": {_INDEX: str(index), _ROLE: "other" if index else "first"}, "annotations": annotations}
        uid = self.cluster.create_pod(job.request, cpu=job.cpu, spec=spec, owner=owner, **more).uid
        self.owners[uid] = owner["uid"] if owner else ""
        self.firsts |= {uid} if index == 0 else set()
        self.members[job.name].add(uid)
        self.made[job.name].add(uid)

    def has_spare(self, job: Job) -> bool:
        """Return whether room is kept for one more member: of small jobs, where run times are declared."""
        return self.cluster.declares_runs and job.size < 4 and not (job.slices or job.roles)

    def sync(self, job: Job) -> int:
        """Let the Job count its pods that have succeeded, and every second one be deleted; return how many were."""
        owner = self.controllers.get(job.name)
        if owner is None:
            return 0
        mine = {uid for uid in self.made[job.name] if self.owners[uid] == owner["uid"]}
        there = {pod.uid: pod for pod in self.pods(job) if pod.uid in mine}
        self.counted |= {uid for uid, pod in there.items() if pod.phase == "Succeeded"}
        path = f"{_CONTROLLERS}/{owner['name']}/status"
        self.api.call("PATCH", path, {"status": {"succeeded": len(mine & self.counted)}}, MERGE)
        for pod in there.values():
            if pod.uid in self.counted and int(pod.name[1:]) % 2:
                self.cluster.delete_pod(pod.name, 0)
        return sum(int(uid in self.counted and uid not in {one.uid for one in self.pods(job)}) for uid in mine)

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
        return job.name in self.api.objects("scheduling.k8s.io", "podgroups")

    def of(self, uid: str) -> Job | None:
        """Return the job that a pod is of; None for a pod on its own."""
        return next((self.jobs[name] for name, uids in self.members.items() if uid in uids), None)

    def by_pod_group(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.by_pod_group]

    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if any(pod.phase == "Running" for pod in self.pods(job))]

    def pods(self, job: Job) -> list[PodState]:
        return [pod for pod in self.cluster.pods() if pod.uid in self.members[job.name]]

    def size(self) -> int:
        """Return how many pods of jobs there are."""
        every = set[str]().union(*self.members.values())
        return sum(pod.uid in every for pod in self.cluster.pods())

    def decide(self, machine: Machine, binds: Sequence[Bind]) -> None:
        """Check a decision, by what the scheduler that made it knows of the members."""
        for name in dict.fromkeys(job.name for bind in binds if (job := self.of(bind.pod_info.uid)) is not None):
            job, uids = self.jobs[name], self.members[name]
            mine = {bind.pod_info.uid: bind.assigned for bind in binds if bind.pod_info.uid in uids}
            known = [assigned for uid in uids if (assigned := machine.cache.assigned(uid)) is not None]
            placed = [one for one in known if not is_terminating(one)]
            before = [one for one in placed if one.uid not in mine]
            owners, holder = {self.owners[uid] for uid in mine}, machine.pending_groups.room_owner
            self.met["completed"] += len(mine) >= job.min > 1
            self.met["after hold"] += len(mine) >= job.min > 1 and holder is not None and holder.name == name
            self.met["with roles"] += job.roles
            self.met["run again"] += bool(self._succeeded(job, machine, set(self.owners.values()) - owners))
            uids_placed, done = {one.uid for one in placed}, self._succeeded(job, machine, owners)
            count, lacks_first = len(uids_placed) + len(done), job.roles and not (uids_placed | done) & self.firsts
            may_start = count >= job.min and not lacks_first
            if not may_start and not self._may_have_started(job, machine, owners, uids_placed - mine.keys()):
                first = ", and rank 0 does not" if lacks_first else ""
                self.broken.append(f"{count} members of {name} count, of at least {job.min}{first}; it has not started")
            self.batches |= dict.fromkeys(mine, (frozenset(mine), self.api.cluster.now()))
            self._check_racks(job, machine, before, mine)
            self._check_slices(job, [*before, *mine.values()], mine.keys())
            # Another scheduler binds where it likes.
            ours = [one for one in placed if one.uid in self.batches]
            networks = {one.assignment.vfs[0].network for one in ours if one.assignment and one.assignment.vfs}
            if job.rails == "same" and len(networks) > 1:
                self.broken.append(f"members of {name} are on two networks: {sorted(networks)}")

    def _succeeded(self, job: Job, machine: Machine, owners: Set[str]) -> set[str]:
        """Return the members of these owners that have succeeded, as far as a scheduler may know."""
        # A scheduler's watch may show later that one is deleted; and a Job counts those that are.
        done = self.counted | {pod.uid for pod in self.pods(job) if pod.phase == "Succeeded"}
        mine = [uid for uid in self.members[job.name] if self.owners[uid] in owners]
        return {uid for uid in mine if uid in done or machine.group_cache.state(uid) == "succeeded"}

    def _may_have_started(self, job: Job, machine: Machine, owners: Set[str], before: Set[str]) -> bool:
        """Return whether enough members were bound together with those that live, or have succeeded for these owners.

        Those of one life were; a scheduler that starts knows it of all that were bound since the oldest was created.
        """
        self._note_bound(job)
        known = {uid for uid in before | self._succeeded(job, machine, owners) if uid in self.times}
        if not known:
            return False
        lives, since = {self.lives[uid] for uid in known}, min(self.times[uid][0] for uid in known)
        ever = {
            uid
            for uid in self.members[job.name]
            if uid in self.times and (self.lives[uid] in lives or self.times[uid][1] >= since)
        }
        has_roles = not job.roles or bool(ever & self.firsts)
        return has_roles and len(ever) >= job.min and owners <= {self.owners[uid] for uid in ever}

    def note_bound(self, uid: str) -> None:
        """Note that a pod has come to have a node, if it is a member."""
        if (job := self.of(uid)) is not None:
            self._note_bound(job)

    def _note_bound(self, job: Job) -> None:
        """Note the members that have come to have a node: they are of the life of those that live, or begin one."""
        pods = self.pods(job)
        for pod in pods:
            if pod.node and pod.uid not in self.times:
                done = self.counted | {one.uid for one in pods if one.phase == "Succeeded"}
                others = {uid for uid in done if self.owners.get(uid) == self.owners[pod.uid]}
                others |= {one.uid for one in pods if one.is_live}
                lives = [self.lives[uid] for uid in others & self.lives.keys()]
                self.lives[pod.uid] = max(lives, default=len(self.lives))
                bound = pod.condition("PodScheduled").get("lastTransitionTime", pod.created)
                self.times[pod.uid] = pod.created, bound

    def _check_racks(
        self, job: Job, machine: Machine, before: Sequence[AssignedPod], mine: Mapping[str, AssignedPod]
    ) -> None:
        """Check that members come to one rack, and to those that are placed: where most are, if they are in several."""
        racks = Counter(rack_of(one.node) for one in before if one.node in machine.cache.nodes.row_of)
        chosen = {rack_of(one.node) for one in mine.values()}
        if job.within and _are_astray(chosen, racks, is_first=not before):
            self.broken.append(f"members of {job.name} go to racks {sorted(chosen)}, of {dict(racks)} before")

    def _check_slices(self, job: Job, placed: Sequence[AssignedPod], chosen: Set[str]) -> None:
        """Check that the chosen members are where most of their slice is."""
        pods = {pod.uid: pod for pod in self.pods(job)}
        if not job.slices or len({self.owners[one.uid] for one in placed}) > 1:
            return
        for number in range(job.size):
            mine = [one for one in placed if one.uid in pods and _index(pods[one.uid]) // _SLICE == number]
            before = Counter(rack_of(one.node) for one in mine if one.uid not in chosen)
            racks = {rack_of(one.node) for one in mine if one.uid in chosen}
            self.met["sliced"] += bool(racks)
            if _are_astray(racks, before, is_first=not before):
                self.broken.append(f"slice {number} of {job.name} goes to racks {sorted(racks)}, of {dict(before)}")

    def preempt(self, machine: Machine, order: DeleteVictims, going: Set[str]) -> None:
        """Check that enough of a job fits without the victims, by what the scheduler that chose them knows.

        Those that were ``going`` before take nobody with them who joined later.
        """
        gone = {one.uid for one in order.victims}
        groups = machine.group_cache
        for key in {key for uid in gone - going if (key := whole_group_of(groups, uid)) is not None}:
            left = set(groups.placed(key)) - gone - going
            if left and key.has_pod_group:
                self.broken.append(f"{sorted(left)} of {key.name} stay, which may only be disrupted as a whole")
            elif 0 < len(left) < whole_min(groups, key):
                self.broken.append(f"{sorted(left)} of {key.name} stay, which are fewer than it needs")
        job = self.of(order.pod.metadata.uid)
        if job is None:
            return
        uids, cache = self.members[job.name], machine.cache
        kept = [one for uid in uids if (one := machine.reservations.room_of(uid)) is not None]
        placed = {uid for uid in uids if machine.group_cache.state(uid) == "placed"}
        owners = {self.owners[uid] for uid in uids if machine.reservations.of(uid) is not None}
        there = len(placed) + len(self._succeeded(job, machine, owners))
        if len(kept) + there < job.min and not self._may_have_started(job, machine, owners, placed):
            self.broken.append(f"pods go for {len(kept)} members of {job.name}, {there} are placed, of {job.min}")
        placed_pods = [one for uid in placed if (one := cache.assigned(uid)) is not None and uid not in gone]
        self._check_slices(job, [*placed_pods, *kept], {one.uid for one in kept})
        for node in {one.node for one in kept}:
            stay = [one for one in cache.assigned_pods_on(node) if one.uid not in gone and not is_terminating(one)]
            every = [*stay, *(one for one in kept if one.node == node)]
            held = Counter(pci for one in every for pci in _vfs(one))
            twice = {pci for one in kept if one.node == node for pci in _vfs(one) if held[pci] > 1}
            cpu = sum(one.resources.get("cpu", 0) for one in every)
            if cpu > 1000 * CPUS or twice:
                self.broken.append(f"{job.name} does not fit on {node} though {sorted(gone)} go: {cpu} m, {twice}")

    def see_binding(self, uid: str) -> None:
        """Check that the volumes of all that were decided together are bound."""
        self.note_bound(uid)
        batch, since = self.batches.get(uid, (frozenset[str](), ""))
        claims = self.storage.claims()
        for pod in self.cluster.pods() if batch else ():
            # Another scheduler may have bound one of them meanwhile, volumes or not.
            if pod.uid in batch and not pod.is_going and (pod.uid == uid or not pod.node):
                used = [claims[name] for name in pod.claims if name in claims]
                if any(not claim.volume and claim.created < since for claim in used):
                    self.broken.append(f"the pod of uid {uid} was bound before the volumes of {pod.name}")

    def kept(self, *, but_for: str = "") -> set[str]:
        """Return the nodes on which room may be kept for a job that waits, ``but_for`` one of them."""
        waiting = ((job.name, pod) for job in self.jobs.values() for pod in self.pods(job) if not pod.node)
        return {pod.document["status"].get("nominatedNodeName", "") for name, pod in waiting if name != but_for}

    def unsettled(self, nodes: dict[str, Json], live: Sequence[PodState], spare_nodes: Set[str]) -> Iterator[str]:
        """Yield which jobs wait though they fit."""
        for job in self.jobs.values():
            pods = self.pods(job)
            waiting = [one for one in pods if one.is_waiting]
            owners = {self.owners[one.uid] for one in waiting}
            done = {one.uid for one in pods if one.phase == "Succeeded"} | (self.counted & self.members[job.name])
            # Fewer are needed if it has started.
            counting = sum(one.is_live and not one.is_going for one in pods)
            counting += sum(self.owners[uid] in owners for uid in done) if len(owners) == 1 else 0
            needed = max(job.min - counting, 1)
            exists = not job.by_pod_group or self.has_pod_group(job)
            kept = self.kept(but_for=job.name) | spare_nodes
            free = {name: node for name, node in nodes.items() if name not in kept}
            has_rules = job.with_claims or job.within or job.rails or job.slices or job.roles or self.has_spare(job)
            if not has_rules and exists and len(waiting) >= needed and placement(waiting[0], needed, free, live):
                yield f"{needed} members of {job.name} fit and wait: {waiting[0].message!r}"


def _are_astray(racks: Set[str], before: Counter[str], *, is_first: bool) -> bool:
    """Return whether members go to several racks, or to another than where most of those before them are."""
    allowed = {rack for rack in before if before[rack] == max(before.values())}
    return len(racks) > 1 or not (is_first or racks <= allowed)


def _index(pod: PodState) -> int:
    return int(pod.document["metadata"]["labels"][_INDEX])


def _vfs(assigned: AssignedPod) -> list[str]:
    return [vf.pci for vf in assigned.assignment.vfs] if assigned.assignment is not None else []
