"""Random actions of users, nodes and operators, one after the other, as the world's source chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from devcluster.apiserver.status import ApiError
from mooring import names
from tests.scheduler.simulation.cluster import OFFER_MBPS, VFS, PodState
from tests.scheduler.simulation.jobs import Job
from tests.scheduler.simulation.kubelet import NodeAgent

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World

# Beyond so many pods of jobs none is made.
MOST_MEMBERS = 12
Action = Callable[[], object]
Thing = TypeVar("Thing")


class Actors:
    """The actions on a world, and how often each happens."""

    # A step takes this long on average, in seconds of virtual time.
    step_s = 0.4

    def __init__(self, world: World) -> None:
        self._world, self._source, self._slots = world, world.source, world.slots
        self._cluster, self._storage, self._jobs = world.cluster, world.storage, world.jobs

    def weights(self) -> Mapping[Action, int]:
        """Return the actions with their weights."""
        raise NotImplementedError

    async def live(self, steps: int) -> None:
        """Do so many random actions, and check after each; one that the API server refuses has not happened."""
        weights = self.weights()
        for _ in range(steps):
            (act,) = self._source.choices(list(weights), list(weights.values()))
            with suppress(ApiError):
                if isinstance(waiting := act(), Awaitable):
                    await waiting
            await asyncio.sleep(self._source.expovariate(1 / self.step_s))
            await self._world.revive()
            self._world.check()

    def _choose(self, things: Iterable[Thing]) -> Thing | None:
        listed = list(things)
        return self._source.choice(listed) if listed else None

    def _on(self, things: Callable[[], Iterable[Thing]], act: Callable[[Thing], object]) -> Action:
        """Return an action on one of the things that there are when it happens, if there are any."""

        def act_on_one() -> object:
            return act(thing) if (thing := self._choose(things())) is not None else None

        return act_on_one

    def _on_pod(self, wanted: Callable[[PodState], bool], act: Callable[[PodState], object]) -> Action:
        return self._on(lambda: filter(wanted, self._cluster.pods()), act)

    def _on_process(self, act: Callable[[str], object]) -> Action:
        return self._on(lambda: sorted(self._slots), lambda slot: act(self._slots[slot].name))

    def _node(self) -> str:
        return self._source.choice(sorted(self._world.agents))

    def _agent(self) -> NodeAgent:
        return self._world.agents[self._node()]

    def _deletions(self, weight: int, by_force: int) -> Mapping[Action, int]:
        delete = self._cluster.delete_pod
        return {
            self._on_pod(lambda one: not one.is_going, lambda pod: delete(pod.name)): weight,
            self._on_pod(lambda one: True, lambda pod: delete(pod.name, 0)): by_force,
        }

    def _sync_node(self) -> None:
        self._agent().sync()

    def _outages(self, kill: int, stop: int, freeze: int, thaw: int, cut_off: int) -> Mapping[Action, int]:
        """Return with these weights what befalls a scheduler process and its connections."""
        loop, network = self._world.loop, self._world.network
        return {
            self._on(lambda: sorted(self._slots), self._world.kill): kill,
            self._on_process(loop.signal): stop,
            self._on_process(self._freeze): freeze,
            self._thaw: thaw,
            self._on_process(lambda name: network.cut_off(name, self._source.uniform(1, 30))): cut_off,
        }

    def _freeze(self, name: str) -> None:
        self._world.promises.paused.add(name)
        self._world.loop.freeze(name)

    def _thaw(self) -> None:
        for scheduler in self._slots.values():
            self._world.loop.thaw(scheduler.name)

    def _replace_members(self, job: Job, ends: float = 0.0) -> None:
        """Let a job's controller make again what is missing, or, at this probability, delete all."""
        collected, made = self._jobs.sync(job), self._jobs.made[job.name]
        there = [pod for pod in self._jobs.pods(job) if pod.uid in made and not pod.is_going and pod.phase != "Failed"]
        if self._source.random() < ends:
            for pod in there:
                self._cluster.delete_pod(pod.name)
        elif self._jobs.size() < MOST_MEMBERS:
            for _ in range(job.size - len(there) - collected):
                self._jobs.add_member(job)

    def _toggle(self, flag: Literal["hangs", "keeps", "refuses_rates"]) -> None:
        """Let a node go wrong in this way for a while, or no longer."""
        agent = self._agent()
        setattr(agent, flag, not getattr(agent, flag))

    def _change_hardware(self) -> None:
        """Take a VF out or back, a PF down or up, or let a link degrade; the advertiser publishes it."""
        name, index = self._node(), self._source.randrange(2)
        hardware = self._world.agents[name].hardware
        what = self._source.randrange(3)
        if what == 0:
            hardware.out[index] ^= {self._source.randrange(VFS[index])}
        elif what == 1:
            hardware.up[index] = not hardware.up[index]
        else:
            hardware.offer_mbps[index] = self._source.choice((0, 50_000, OFFER_MBPS, OFFER_MBPS))
        self._world.tell(name)

    def _request(self, pod: PodState, request: str | None) -> None:
        """Let a user change what a pod requests."""
        self._cluster.annotate(pod, names.REQUEST, request)
        self._world.promises.edited[pod.uid] = self._world.loop.time()
