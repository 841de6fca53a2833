"""Orders that send away a whole group, cut by the death of their scheduler, and what becomes of the group.

A group whose PodGroup says so goes as a whole. Its victims are marked one after another and then deleted one after
another. ``cuts`` decides after which write of an order its scheduler is killed: between marks and deletions, or between
two deletions. Checked at each write: nobody is deleted before all are marked, and nobody is evicted of a group that has
enough members, unless an order for all of them was cut after a deletion. Checked in the end: what such a cut has left
is gone, or the group lives again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from scheduler.cycle.instructions import DeleteVictims
from scheduler.cycle.preemption.potential_victims import whole_group_of
from scheduler.state.machine import Machine
from tests.scheduler.simulation.actors import MOST_MEMBERS, Action, Actors
from tests.scheduler.simulation.api import Json
from tests.scheduler.simulation.clock import VirtualLoop
from tests.scheduler.simulation.cluster import CLASSES, Cluster, PodState
from tests.scheduler.simulation.faults import STALE_S
from tests.scheduler.simulation.jobs import Job, Jobs

_MOST_IMPORTANT = 5


@dataclass(eq=False)
class _Order:
    """The victims of one order that are of one group, and which of them its scheduler has marked and deleted."""

    process: str
    job: Job
    uids: frozenset[str]
    # After so many writes the scheduler is killed; never if None.
    ends_after: int | None
    marked: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    is_cut: bool = False
    # Whether a member that is no victim had a node since the cut, or the PodGroup was gone: then nobody has to go.
    is_void: bool = False


@dataclass
class Disruptions:
    """The orders for whole groups. ``kill`` ends a process; without ``cuts`` none is."""

    loop: VirtualLoop
    cluster: Cluster
    jobs: Jobs
    kill: Callable[[str], None]
    broken: list[str]
    cuts: random.Random | None = None
    orders: list[_Order] = field(default_factory=list)
    # How often an order was cut before its first deletion, and between two; how many members were evicted after that.
    met: Counter[str] = field(default_factory=Counter)
    _enough_since: dict[str, float] = field(default_factory=dict)
    _is_over: bool = False

    def order(self, process: str, machine: Machine, order: DeleteVictims) -> None:
        """Record which whole groups an order sends away."""
        groups, chosen = machine.group_cache, {one.uid for one in order.victims}
        keys = {key for uid in chosen if (key := whole_group_of(groups, uid)) is not None and key.has_pod_group}
        for key in sorted(keys):
            uids, job = frozenset(chosen & set(groups.placed(key))), self.jobs.jobs.get(key.name)
            if job is None or len(uids) < 2:
                continue
            ends_after = None
            if self.cuts is not None and self.cuts.random() < 0.5:
                ends_after = self.cuts.randrange(len(uids), 2 * len(uids))
            self.orders.append(_Order(process, job, uids, ends_after))

    def stop(self) -> None:
        """Kill nobody any more."""
        self._is_over = True

    def see_status(self, process: str, body: Json) -> None:
        """Note a pod that is marked."""
        conditions = body["status"].get("conditions") or [{"type": ""}]
        if (conditions[0]["type"], conditions[0].get("status")) == ("DisruptionTarget", "True"):
            for one in self._of(process, body["metadata"]["uid"]):
                one.marked.add(body["metadata"]["uid"])
                self._cut(one)

    def see_deletion(self, process: str, uid: str) -> None:
        for one in self._of(process, uid):
            one.deleted.add(uid)
            victims = (pod for pod in self._placed(one.job) if pod.uid in one.uids)
            if unmarked := [pod.name for pod in victims if pod.condition("DisruptionTarget").get("status") != "True"]:
                self.broken.append(f"{uid} of {one.job.name} was deleted before {unmarked} were marked")
            self._cut(one)

    def _of(self, process: str, uid: str) -> list[_Order]:
        """Return the order of a process that a pod is in, the last one."""
        return [one for one in self.orders if one.process == process and uid in one.uids][-1:]

    def _cut(self, order: _Order) -> None:
        if self._is_over or order.ends_after is None:
            return
        if len(order.marked) + len(order.deleted) >= order.ends_after:
            order.ends_after, order.is_cut = None, True
            self.met["between deletions" if order.deleted else "before deletions"] += 1
            self.kill(order.process)

    def see_eviction(self, uid: str) -> None:
        job = self.jobs.of(uid)
        if job is None or not _goes_as_a_whole(job):
            return
        cut = [one for one in self.orders if uid in one.uids]
        self.met["evicted"] += any(one.deleted for one in cut)
        enough_for = self.loop.time() - self._enough_since.get(job.name, self.loop.time())
        if not any(one.deleted for one in cut) and enough_for > STALE_S:
            self.broken.append(f"{uid} of {job.name} was evicted, which has enough members for {enough_for:.0f} s")

    def check(self) -> None:
        """Note which groups have enough members, or live again."""
        if self.cuts is None:
            return
        placed = {job.name: self._placed(job) for job in self.jobs.jobs.values() if _goes_as_a_whole(job)}
        for name, pods in placed.items():
            if len(pods) < self.jobs.jobs[name].min:
                self._enough_since.pop(name, None)
            else:
                self._enough_since.setdefault(name, self.loop.time())
        for one in self.orders:
            if one.is_cut and not one.is_void:
                others = {pod.uid for pod in placed[one.job.name]} - one.uids
                one.is_void = bool(others) or not self.jobs.has_pod_group(one.job)

    def left(self) -> Iterator[str]:
        """Yield what orders that were cut between two deletions have left on nodes."""
        for one in self.orders:
            pods = self._placed(one.job)
            if not one.is_cut or not one.deleted or one.is_void or len(pods) >= one.job.min:
                continue
            if names := sorted(pod.name for pod in pods if pod.uid in one.uids - one.deleted):
                yield f"{names} of {one.job.name} are left, {len(one.deleted)} were deleted by {one.process}"

    def _placed(self, job: Job) -> list[PodState]:
        return [pod for pod in self.jobs.pods(job) if pod.is_live and not pod.is_going]


def _goes_as_a_whole(job: Job) -> bool:
    return job.by_pod_group and bool(job.size % 2)


class Rivals(Actors):
    """Users of groups that go as a whole and of pods for which these have to go; their controllers and nodes."""

    step_s = 1.5

    def weights(self) -> Mapping[Action, int]:
        delete = self._cluster.delete_pod
        return {
            self._create_group: 4,
            self._on(self._jobs.jobs.values, self._replace_members): 1,
            self._on_pod(self._is_member, lambda pod: delete(pod.name)): 1,
            self._create_important: 6,
            self._on_pod(lambda one: one.priority > 0, lambda pod: delete(pod.name)): 3,
            self._sync_node: 36,
            self._world.api.cut_watches: 1,
        }

    def _is_member(self, pod: PodState) -> bool:
        return self._jobs.of(pod.uid) is not None and not pod.is_going

    def _create_group(self) -> None:
        if self._jobs.size() < MOST_MEMBERS:
            name, least = f"whole-{len(self._jobs.jobs)}", self._source.choice((2, 3, 3))
            request, cpu = self._source.choice(("[{}]", "[{},{}]", None)), self._source.choice(("1", "3"))
            job = Job(name, 3, least, request, cpu, by_pod_group=True)
            self._jobs.put_pod_group(job)
            self._jobs.create(job)

    def _create_important(self) -> None:
        if sum(pod.priority > 0 for pod in self._cluster.pods()) < _MOST_IMPORTANT:
            request = self._source.choice(("[{},{},{}]", "[{},{}]", None))
            spec = {"priorityClassName": self._source.choice(CLASSES)}
            self._cluster.create_pod(request, cpu=self._source.choice(("3", "7")), spec=spec)
