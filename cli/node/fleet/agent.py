"""Bring one node into the desired state in its turn, and keep it there.

Killed at any moment, the next agent of the node continues: a turn is kept in the Lease, and what was begun on the host
is in the journal of `mooring-node install`. The agent never changes the host without a turn.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

from cli.node.plan.turns import BEAT_S, Postponement, SilenceClock, Turns, beat, begin, fail, give_back, succeed
from mooring.kube.failures import Conflict, KubeError

State = Literal["waiting", "working", "done", "failed"]
# A waiting node asks again after so many seconds: often at first, then rarely, because 5,000 nodes may wait.
_ASK_FIRST_S, _ASK_LAST_S, _ASK_GROWTH = 5.0, 60.0, 1.5
_RETRY_FIRST_S, _RETRY_LAST_S = 60.0, 1800.0
# Agents that start together read the Lease within this part of the time between two checks: 5,000 within 10 s.
_START_WITHIN = 1 / 30
_AGAIN_S = 2.0


class Store(Protocol):
    """Where the fleet keeps its turns."""

    async def read(self, *, cached: bool = False) -> tuple[Turns, str]:
        """Return the turns and their version, perhaps older ones if ``cached``; raise KubeError."""
        ...

    async def write(self, turns: Turns, version: str) -> None:
        """Replace the turns of that version; raise Conflict if they have changed since, or another KubeError."""
        ...


class Node(Protocol):
    """The node that is changed."""

    def target(self) -> str:
        """Return what the fleet moves to, by the settings as they are now; raise OSError or ValueError."""
        ...

    async def difference(self) -> str:
        """Return what a turn would change, empty if nothing."""
        ...

    async def obstacle(self) -> str:
        """Return why a turn cannot succeed now, empty if it can: pods that have VFs forbid a removal."""
        ...

    def is_repair(self) -> bool:
        """Return whether a turn would only remove or repair what is installed: why the node is not Ready, perhaps."""
        ...

    async def change(self) -> str:
        """Change the node; return why that failed, empty if the node is as desired."""
        ...

    async def report(self, state: State, text: str) -> None:
        """Make the state known on the node, with the reason."""
        ...


class Nodes(Protocol):
    """The nodes of the cluster."""

    async def unready(self, name: str) -> str:
        """Return why a node is not Ready, empty if it is."""
        ...

    async def has_left(self, name: str) -> bool:
        """Return whether a node does not belong to the fleet any more."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """What this agent is for: its node, how many nodes change at once."""

    node: str
    at_once: int
    check_every_s: float


class Agent:
    def __init__(self, task: Task, store: Store, nodes: Nodes, node: Node, random: Random) -> None:
        self._task = task
        self._store = store
        self._nodes = nodes
        self._node = node
        self._random = random
        self._silence = SilenceClock()

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.sleep(self._random.uniform(0, self._task.check_every_s * _START_WITHIN))
        retry_s = _RETRY_FIRST_S
        has_turn = (await self._turns()).of(self._task.node) is not None
        while True:
            if not has_turn and not await self._node.difference():
                await self._node.report("done", "")
                retry_s = _RETRY_FIRST_S
                await asyncio.sleep(self._jittered(self._task.check_every_s))
            elif not has_turn and (obstacle := await self._node.obstacle()):
                await self._node.report("waiting", obstacle)
                await asyncio.sleep(self._jittered(_ASK_LAST_S))
            else:
                failure = await self._take_turn()
                has_turn = bool(failure)
                if failure:
                    await self._node.report("failed", failure)
                    await asyncio.sleep(self._jittered(retry_s))
                    retry_s = min(2 * retry_s, _RETRY_LAST_S)

    async def _take_turn(self) -> str:
        """Wait for the turn, and change the node; return why that failed. The turn ends unless it failed."""
        node = self._task.node
        await self._begin()
        # Pods may have come while the node waited, or since it failed.
        if await self._node.obstacle():
            await self._write(lambda turns: give_back(turns, node))
            return ""
        await self._node.report("working", "")
        async with self._beating():
            failure = await self._change()
        await self._write(lambda turns: fail(turns, node, failure) if failure else succeed(turns, node))
        return failure

    async def _change(self) -> str:
        """Change the node if it differs; return why it is not as desired then."""
        if not await self._node.difference():
            return ""
        if failure := await self._node.change():
            return failure
        difference = await self._node.difference()
        return f"was changed, but still differs: {difference}" if difference else ""

    async def _begin(self) -> None:
        wait_s = _ASK_FIRST_S
        while True:
            reason = await self._try_to_begin()
            if not reason:
                return
            await self._node.report("waiting", reason)
            await asyncio.sleep(self._jittered(wait_s))
            wait_s = min(wait_s * _ASK_GROWTH, _ASK_LAST_S)

    async def _try_to_begin(self) -> str:
        """Return why this node cannot begin now, empty if it has its turn."""
        node = self._task.node
        try:
            turns, version = await self._store.read(cached=True)
            silent = self._silence.silent(turns, asyncio.get_running_loop().time())
            asked = begin(turns, node, self._node.target(), self._task.at_once, silent)
            if isinstance(asked, Postponement):
                if asked.blocker and await self._nodes.has_left(asked.blocker):
                    await self._store.write(give_back(turns, asked.blocker), version)
                return asked.reason
            # Once a node has begun, its change may be why it is not Ready: it keeps its turn.
            if turns.of(node) is None and not self._node.is_repair() and (why := await self._nodes.unready(node)):
                return why
            await self._store.write(asked, version)
        except Conflict:
            return "another node has changed the turns"
        except (KubeError, OSError, ValueError) as error:
            return str(error)
        return ""

    @asynccontextmanager
    async def _beating(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(self._beat())
            yield
            beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._write(lambda turns: beat(turns, self._task.node))

    async def _write(self, change: Callable[[Turns], Turns]) -> None:
        """Change the turns, however often others are first or the API server does not answer."""
        while True:
            try:
                turns, version = await self._store.read()
                if (changed := change(turns)) != turns:
                    await self._store.write(changed, version)
            except KubeError:
                await asyncio.sleep(self._jittered(_AGAIN_S))
            else:
                return

    async def _turns(self) -> Turns:
        while True:
            try:
                return (await self._store.read(cached=True))[0]
            except KubeError as error:
                await self._node.report("waiting", str(error))
                await asyncio.sleep(self._jittered(_ASK_FIRST_S))

    def _jittered(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.5, 1.5)
