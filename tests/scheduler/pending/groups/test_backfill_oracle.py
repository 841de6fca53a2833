"""EASY backfill on small clusters in virtual time, against an oracle that counts free VFs: with true run times every
promise holds, the promised start is the earliest, and nobody who starts before delays it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest

from mooring import names
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.reserved_room import START_S, Reservation
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import Life, binds, changed
from tests.scheduler.group_scene import GroupScene

_STEP_S = 5.0
# A pod ends in one step, and the group is decided about in the next.
_LATE_S = 2 * _STEP_S
# A backoff, and the interval at which the first group is chosen.
_IDLE_S = 20.0


@dataclass
class _Run:
    """A pod on a node: what it takes, when it is Running, and when it ends."""

    pod: Pod
    node: str
    vfs: int
    runs_s: float
    running_at: float
    is_running: bool = False

    @property
    def end(self) -> float:
        return self.running_at + self.runs_s


@dataclass
class _World:
    """A cluster in which pods and groups come, run as long as they declare, and end."""

    life: Life
    random: Random
    vfs: dict[str, int]
    overrun: float = 0.0
    runs: dict[str, _Run] = field(default_factory=dict)
    # By group: the first promise, and when the group started.
    promises: dict[str, float] = field(default_factory=dict)
    starts: dict[str, float] = field(default_factory=dict)
    backfilled: int = 0
    # Since when a pod could start that waits.
    fitting: dict[str, float] = field(default_factory=dict)

    def arrive(self, number: int) -> None:
        runs_s = self.random.choice((60, 120, 300, 600, 900))
        if self.random.random() < 0.25:
            size, vfs = self.random.randint(2, 4), self.random.choice((1, 2))
            group = f'{{"name":"g{number}","min":{size},"runs":"{runs_s}s"}}'
            members = [self.life.member(f"g{number}-{rank}", group, request=[{}] * vfs) for rank in range(size)]
            self.life.see(*members)
            return
        annotations = {names.RUNS: f"{runs_s}s"} if self.random.random() < 0.9 else {}
        if annotations or number % 7 == 0:
            vfs = self.random.choice((1, 1, 2))
            self.life.see(self.life.make_pod(f"s{number}", [{}] * vfs, annotations=annotations))

    def step(self) -> None:
        """Let pods begin and end, then decide."""
        now = self.life.now + _STEP_S
        for uid, run in list(self.runs.items()):
            if not run.is_running and run.running_at <= now:
                run.is_running, run.running_at = True, now
                self.life.see(changed(run.pod, status={"phase": "Running"}), now=now)
            elif run.is_running and run.end + self.overrun <= now:
                self.life.gone(run.pod)
                del self.runs[uid]
        head = self.head()
        for bind in binds(self.life.work(now - self.life.now)):
            self._started(bind, head)
        self._check_promise()
        self._check_claims()
        self._check_idle()

    def head(self) -> Reservation | None:
        reservations = self.life.machine.reservations
        owner = self.life.machine.pending_groups.room_owner
        reservation = reservations.of_owner(owner) if owner is not None else None
        return reservation if reservation is not None and reservation.cause == "backfill" else None

    def _started(self, bind: Bind, head: Reservation | None) -> None:
        (pod,) = self.life.bound(bind)
        runs_s = float(bind.pod_info.runs_s or 10**9)
        begins = self.life.now + self.random.uniform(0.0, START_S - _STEP_S)
        self.runs[pod.metadata.uid] = _Run(pod, bind.assigned.node, len(bind.pod_info.interfaces), runs_s, begins)
        if bind.pod_info.membership is not None:
            self.starts.setdefault(bind.pod_info.membership.title, self.life.now)
        elif head is not None:
            self.backfilled += 1

    def _check_promise(self) -> None:
        """Compare a new promise with the oracle, and a kept one with what was promised first."""
        head = self.head()
        if head is None or head.group is None:
            return
        name = head.group.name
        if name not in self.promises:
            self.promises[name] = head.since
            rooms = list(head.rooms.values())
            assert rooms[0].assignment is not None
            earliest = self._earliest(len(rooms), len(rooms[0].assignment.vfs))
            assert abs(head.since - earliest) <= START_S + 1.0, f"{name}: promised {head.since}, earliest is {earliest}"
        elif not self.overrun:
            assert head.since <= self.promises[name] + 1.0, f"{name}: {self.promises[name]} was promised"
            assert self.life.now <= self.promises[name] + _LATE_S, f"{name}: waits after its promise"

    def _check_idle(self) -> None:
        """No pod waits for long that fits and ends before the room of the first group is reserved."""
        head, now, free = self.head(), self.life.now, self._free(-inf)
        infos = [one.pod_info for one in self.life.machine.pending_pods.pending.values()]
        fitting = [
            info.uid
            for info in infos
            if isinstance(info, PodInfo)
            and info.membership is None
            and self.life.machine.cache.assigned(info.uid) is None
            and len(info.interfaces) <= max(free.values())
            and (head is None or (info.runs_s is not None and now + START_S + info.runs_s <= head.since))
        ]
        self.fitting = {uid: self.fitting.get(uid, now) for uid in fitting}
        late = [uid for uid, since in self.fitting.items() if now - since > _IDLE_S]
        assert not late, f"{late} fit since {self.fitting}"

    def _free(self, at: float) -> dict[str, int]:
        """Return by node how many VFs are free at a time, if pods end as they declare."""
        free = dict(self.vfs)
        for run in self.runs.values():
            free[run.node] -= run.vfs if run.end > at else 0
        return free

    def _earliest(self, members: int, vfs: int) -> float:
        """Return when so many members with so many VFs each fit; infinite for never."""
        times = sorted({max(run.end, self.life.now) for run in self.runs.values()} | {self.life.now})
        fits = (time for time in times if sum(count // vfs for count in self._free(time).values()) >= members)
        return next(fits, inf)

    def _check_claims(self) -> None:
        """No VF has two pods, and no promised room is promised twice."""
        rooms = [room for one in self.life.machine.reservations.all() for room in one.rooms.values()]
        for claims in (_claims(self.life.machine.cache.assigned_pods()), _claims(rooms)):
            assert len(claims) == len(set(claims))
        assert {room.uid for room in rooms} <= set(self.life.machine.pending_pods.uids())

    def live(self, arrivals: int, steps: int = 0) -> None:
        for number in range(arrivals):
            self.arrive(number)
            for _ in range(self.random.randint(1, 8)):
                self.step()
        for _ in range(steps):
            self.step()


def _claims(pods: Iterable[AssignedPod]) -> list[tuple[str, str]]:
    return [(pod.node, vf.pci) for pod in pods if pod.assignment for vf in pod.assignment.vfs]


def _world(make_scene: MakeScene, seed: int, overrun: float = 0.0) -> _World:
    random = Random(seed)
    vfs = {f"n{number}": random.choice((1, 2, 4)) for number in range(4)}
    world = _World(make_scene(GroupScene, backfill=True), random, vfs, overrun)
    for name, count in vfs.items():
        world.life.nodes(name, vfs=count)
    return world


@pytest.mark.parametrize("seed", range(12))
def test_with_true_run_times_every_promise_holds(make_scene: MakeScene, seed: int) -> None:
    world = _world(make_scene, seed)
    world.live(40, steps=600)
    while world.life.now < max(world.promises.values(), default=0.0) + _LATE_S:
        world.step()
    for name, promise in world.promises.items():
        assert world.starts.get(name, inf) <= promise + _LATE_S, f"{name} was promised {promise}"


def test_the_runs_reach_promises_and_backfill(make_scene: MakeScene) -> None:
    worlds = [_world(make_scene, seed) for seed in range(100, 104)]
    for world in worlds:
        world.live(40)
    assert sum(len(world.promises) for world in worlds) > 4
    assert sum(world.backfilled for world in worlds) > 4


@pytest.mark.parametrize("seed", range(6))
def test_with_exceeded_run_times_nothing_is_given_twice_and_nobody_starves(make_scene: MakeScene, seed: int) -> None:
    """Every pod runs 100 s longer than it declared: groups start later, and all of them do."""
    world = _world(make_scene, seed, 100.0)
    world.live(30, steps=1200)
    assert set(world.promises) <= set(world.starts)
