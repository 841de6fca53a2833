"""What users, nodes and operators have in common: random actions, one after the other, as the world's source chooses.

What befalls a scheduler process and its connections is here too: it is killed, stopped, frozen or cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from devcluster.apiserver.status import ApiError
from tests.scheduler.simulation.cluster import PodState

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World

Action = Callable[[], Awaitable[None] | None]
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
            try:
                waiting = act()
            except ApiError:
                waiting = None
            if waiting is not None:
                await waiting
            await asyncio.sleep(self._source.expovariate(1 / self.step_s))
            await self._world.revive()
            self._world.check()

    def _choose(self, things: Iterable[Thing]) -> Thing | None:
        listed = list(things)
        return self._source.choice(listed) if listed else None

    def _pod(self, wanted: Callable[[PodState], bool]) -> PodState | None:
        return self._choose(filter(wanted, self._cluster.pods()))

    def _node(self) -> str:
        return self._source.choice(sorted(self._world.agents))

    def _delete(self) -> None:
        if pod := self._pod(lambda one: not one.is_going):
            self._cluster.delete_pod(pod.name)

    def _force_delete(self) -> None:
        if pod := self._pod(lambda one: True):
            self._cluster.delete_pod(pod.name, 0)

    def _sync_node(self) -> None:
        name = self._node()
        if name in self._cluster.nodes():
            self._world.agents[name].sync()

    def _kill(self) -> Awaitable[None] | None:
        slot = self._choose(sorted(self._slots))
        return self._world.kill(slot) if slot else None

    def _stop(self) -> None:
        if slot := self._choose(sorted(self._slots)):
            self._world.loop.signal(self._slots[slot].name)

    def _freeze(self) -> None:
        if slot := self._choose(sorted(self._slots)):
            name = self._slots[slot].name
            self._world.promises.paused.add(name)
            self._world.loop.freeze(name)

    def _thaw(self) -> None:
        for scheduler in self._slots.values():
            self._world.loop.thaw(scheduler.name)

    def _cut_off(self) -> None:
        if slot := self._choose(sorted(self._slots)):
            self._world.network.cut_off(self._slots[slot].name, self._source.uniform(1, 30))
