"""The random actions of one step, and how often each happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from tests.scheduler.simulation.actors import MOST_MEMBERS, Action, Actors
from tests.scheduler.simulation.cluster import BOXES, CLASSES, VFS, PodState
from tests.scheduler.simulation.jobs import Job

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World

# Pods on their own, and members of jobs: neither keeps the other from being created. Pods that may preempt others come
# also when so many wait that no other pod does.
_MOST_PODS, _MORE_IMPORTANT = 25, 8
_REQUESTS = (
    None,
    "[]",
    "[{}]",
    "[{}]",
    "[{},{}]",
    "[{},{},{}]",
    '[{"min_tx_rate":40000}]',
    '[{"min_tx_rate":60000},{"network":"rail1"}]',
    '[{"min_tx_rate":50000},{"min_tx_rate":50000}]',
    '[{"min_tx_rate":95000}]',
    '[{"unknown":1}]',
    "[{},{},{},{},{},{}]",
)
# Requests that soon exhaust a node, so that preemption happens.
_SCARCE = ("[{},{},{}]", '[{"min_tx_rate":60000},{"network":"rail1"}]', '[{"min_tx_rate":50000},{"min_tx_rate":50000}]')
# Equal members of these fit in any order.
_OF_A_JOB = (None, "[{}]", "[{},{}]", '[{"min_tx_rate":40000}]', '[{"network":"rail1"}]')
_CPUS = ("100m", "100m", "1", "3", "9")


class Actions(Actors):
    """The random actions on a world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._claims = 0
        self._boots = 1

    def weights(self) -> Mapping[Action, int]:
        cluster, storage, source, asked = self._cluster, self._storage, self._source, self._storage.asked
        return {
            self._create: 36,
            self._create_for_kube_scheduler: 36,
            self._create_with_claim: 8,
            self._create_with_units: 8,
            self._on(self._claim_names, self._use): 2,
            self._on(asked, storage.provision): 12,
            self._on(asked, storage.refuse): 3,
            storage.bind_taken: 6,
            lambda: storage.add_volume(self._node()): 2,
            self._on(self._claim_names, storage.delete_claim): 2,
            storage.end_claims: 2,
            self._on(self._missing_claims, storage.create_claim): 2,
            lambda: cluster.create_pod("[{}]", spec={"schedulingGates": [{"name": "g"}]}): 6,
            self._on_pod(lambda one: one.is_gated, cluster.ungate): 6,
            self._on_pod(self._is_waiting_alone, lambda pod: self._request(pod, source.choice(_REQUESTS))): 6,
            **self._deletions(24, by_force=3),
            self._on_pod(lambda one: one.phase == "Running", self._end_pod): 18,
            self._sync_node: 72,
            self._foreign_pod: 6,
            self._foreign_claim: 6,
            self._on_pod(lambda one: one.is_ours and not one.node and not one.is_gated, self._foreign_bind): 3,
            self._change_hardware: 9,
            self._reboot: 1,
            lambda: self._world.tell(self._node(), ready=source.random() < 0.5): 3,
            self._lose_node: 1,
            self._return_node: 6,
            self._collect: 6,
            **self._outages(kill=1, stop=1, freeze=1, thaw=3, cut_off=2),
            self._world.api.compact: 1,
            self._world.api.cut_watches: 6,
            self._create_important: 20,
            lambda: cluster.put_budget(source.choice((0, 1, 5, None))): 6,
            lambda: self._toggle("hangs"): 3,
            self._forbid_binds: 2,
            lambda: self._toggle("keeps"): 1,
            self._create_job: 24,
            self._on(self._jobs.jobs.values, lambda job: self._replace_members(job, ends=0.2)): 24,
            self._on(self._jobs.by_pod_group, self._change_pod_group): 4,
            self._on(self._jobs.running, self._run_again): 12,
        }

    def _claim_names(self) -> list[str]:
        return sorted(self._storage.claims())

    def _missing_claims(self) -> list[str]:
        """Return the claims that pods use and that are not there."""
        used = {claim for pod in self._cluster.pods() for claim in pod.claims}
        return sorted(used - self._storage.claims().keys())

    def _is_waiting_alone(self, pod: PodState) -> bool:
        return not pod.node and self._jobs.of(pod.uid) is None

    def _has_room(self, *, is_important: bool = False) -> bool:
        most = _MOST_PODS + (_MORE_IMPORTANT if is_important else 0)
        return len(self._cluster.pods()) - self._jobs.size() < most

    def _create(self) -> None:
        if self._has_room():
            owned, cpu = self._source.random() < 0.5, self._source.choice(_CPUS)
            self._cluster.create_pod(self._source.choice(_REQUESTS), owned=owned, cpu=cpu)

    def _create_for_kube_scheduler(self) -> None:
        """Create a pod for kube-scheduler, sometimes with a high priority."""
        is_important = self._source.random() < 0.2
        if self._has_room(is_important=is_important):
            spec: dict[str, object] = {"schedulerName": "default-scheduler"}
            if is_important:
                spec["priorityClassName"] = self._source.choice(CLASSES)
            request, cpu = self._source.choice(_REQUESTS), self._source.choice(_CPUS)
            self._cluster.create_pod(request, cpu=cpu, spec=spec, units=self._source.choice((0, 0, 0, 1, 2)))

    def _create_with_claim(self) -> None:
        """Let a user make a claim, mostly, and a pod that uses it."""
        if self._has_room():
            self._claims += 1
            claim = f"c{self._claims}"
            if self._source.random() < 0.8:
                self._storage.create_claim(claim)
            self._use(claim)

    def _create_with_units(self) -> None:
        if self._has_room():
            request = self._source.choice((None, "[{}]", "[{},{}]", '[{"min_tx_rate":60000}]'))
            self._cluster.create_pod(request, owned=True, units=self._source.randrange(1, 4))

    def _use(self, claim: str) -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        self._cluster.create_pod(self._source.choice((None, "[{}]", "[{},{}]")), spec={"volumes": volumes})

    def _create_job(self) -> None:
        """Let a user create a job; its PodGroup, if it has one, may come later."""
        if self._jobs.size() >= MOST_MEMBERS:
            return
        size = self._source.randrange(2, 5)
        job = Job(
            f"job-{len(self._jobs.jobs)}",
            size,
            self._source.choice((size, size, size - 1)),
            self._source.choice(_OF_A_JOB),
            self._source.choice(("100m", "1", "3")),
            self._source.random() < 0.4,
            self._source.choice(("", "", "", CLASSES[0])),
            self._source.random() < 0.2,
            self._source.random() < 0.3,
            self._source.choice(("", "", "same", "index")),
        )
        if len(self._jobs.jobs) % 2 and job.min % 2 == 0 and not job.within:
            job = replace(job, slices=True)
        elif job.min > 1 and not job.within:
            job = replace(job, roles=True)
        self._jobs.create(job)
        if job.by_pod_group and self._source.random() < 0.7:
            self._jobs.put_pod_group(job)

    def _run_again(self, job: Job) -> None:
        """Let the running members of a job succeed, and let it run again if none is left; one earlier run stays."""
        for pod in self._jobs.pods(job):
            if pod.phase == "Running" and pod.node in self._world.agents:
                self._world.agents[pod.node].end(pod)
        left = self._jobs.pods(job)
        if not any(pod.is_live or not pod.node for pod in left):
            for pod in left:
                if pod.uid not in self._jobs.made[job.name]:
                    self._cluster.delete_pod(pod.name)
            self._jobs.start(job)

    def _change_pod_group(self, job: Job) -> None:
        """Delete a job's PodGroup, or make it again."""
        (self._jobs.delete_pod_group if self._jobs.has_pod_group(job) else self._jobs.put_pod_group)(job)

    def _create_important(self) -> None:
        """Create a pod with a high priority, sometimes one that preempts nothing."""
        if self._has_room(is_important=True):
            spec: dict[str, object] = {"priorityClassName": self._source.choice(CLASSES)}
            if self._source.random() < 0.2:
                spec["preemptionPolicy"] = "Never"
            request = self._source.choice((None, *_SCARCE))
            self._cluster.create_pod(request, cpu=self._source.choice(("100m", "3", "9")), spec=spec)

    def _forbid_binds(self) -> None:
        """Let an operator's webhook refuse all Bindings for a while, or none any more."""
        self._world.faults.forbids_binds = self._source.random() < 0.3

    def _end_pod(self, pod: PodState) -> None:
        if pod.node in self._world.agents:
            # Some ranks of jobs fail.
            fails = self._jobs.of(pod.uid) is not None and int(pod.name[1:]) % 3 == 0
            self._world.agents[pod.node].end(pod, "Failed" if fails else "Succeeded")

    def _foreign_pod(self) -> None:
        """Let kube-scheduler place a pod that asks for cpu only."""
        spec = {"schedulerName": "default-scheduler", "nodeName": self._node()}
        pod = self._cluster.create_pod(None, cpu=self._source.choice(_CPUS[:3]), spec=spec)
        self._world.promises.claim(pod.uid)

    def _foreign_claim(self) -> None:
        """Let somebody forge an assignment on a pod that he has bound himself: a VF and a unit, maybe in use."""
        node, index = self._node(), self._source.randrange(2)
        spec = {"schedulerName": "default-scheduler", "nodeName": node}
        pod = self._cluster.create_pod(None, spec=spec)
        self._world.promises.claim(pod.uid)
        vf = self._source.randrange(VFS[index])
        pci = self._world.agents[node].hardware.inventory().pfs[index].vf_pci(vf)
        assigned = AssignedVf(f"pf{index}", vf, pci, "ethernet", f"rail{index}")
        named = self._source.choice((pod.uid, pod.uid, pod.uid, "of-another-pod"))
        unit = {"units": [self._source.choice(BOXES)]}
        text = dump_assignment(Assignment(named, node, (assigned,), {"box": unit}))
        self._cluster.annotate(pod, names.ASSIGNMENT, text)

    def _foreign_bind(self, pod: PodState) -> None:
        """Let another scheduler bind first."""
        self._cluster.bind_elsewhere(pod, self._node())
        self._world.promises.claim(pod.uid)

    def _reboot(self) -> None:
        """Let a node come back with a new boot id, which its advertiser may publish later than its kubelet."""
        name = self._node()
        self._boots += 1
        if self._source.random() < 0.5:
            self._world.tell(name, kernel_boot=f"boot-{self._boots}")
        else:
            self._world.agents[name].reboot(f"boot-{self._boots}")
            self._world.tell(name)

    def _lose_node(self) -> None:
        if len(self._cluster.nodes()) > 1:
            self._cluster.delete_node(self._node())

    def _return_node(self) -> None:
        for name in sorted(self._world.agents.keys() - self._cluster.nodes().keys()):
            self._cluster.put_node(name, self._world.agents[name].hardware)

    def _collect(self) -> None:
        """Do as the pod garbage collector: delete pods on nodes that are gone, and some that have ended."""
        nodes = self._cluster.nodes()
        for pod in self._cluster.pods():
            if (pod.node and pod.node not in nodes) or (pod.node and not pod.is_live):
                self._cluster.delete_pod(pod.name, 0)
