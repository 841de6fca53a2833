"""What befalls a scheduler process and its connections: it is killed, stopped, frozen or cut off."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World


class SchedulerFaults:
    """The faults, each of a process that the world's source of randomness chooses."""

    def __init__(self, world: World) -> None:
        self._world, self._source = world, world.source

    def kill(self) -> Awaitable[None] | None:
        slot = self._slot()
        return self._world.kill(slot) if slot else None

    def stop(self) -> None:
        if slot := self._slot():
            self._world.loop.signal(self._world.slots[slot].name)

    def freeze(self) -> None:
        if slot := self._slot():
            name = self._world.slots[slot].name
            self._world.promises.paused.add(name)
            self._world.loop.freeze(name)

    def thaw(self) -> None:
        for scheduler in self._world.slots.values():
            self._world.loop.thaw(scheduler.name)

    def cut_off(self) -> None:
        if slot := self._slot():
            self._world.network.cut_off(self._world.slots[slot].name, self._source.uniform(1, 30))

    def cut_watches(self) -> None:
        self._world.api.cut_watches()

    def _slot(self) -> str | None:
        return self._source.choice(sorted(self._world.slots)) if self._world.slots else None
