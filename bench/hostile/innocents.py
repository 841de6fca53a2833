"""Those who have done nothing: a pod that waits for its node, a kubelet that probes, a node that tells what it offers.

Each asks once at a time, and then again: whatever stands still for a while makes one of them wait that long.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from bench import scheduler_load as load
from bench.hostile.stage import HOST, NODES, PODS, Stage
from mooring import names

_PAUSE_S = 0.05
# The advertiser patches once a second at most, whoever asks.
_BETWEEN_PATCHES_S = 1.5
_LONGEST_S = 300.0
# Ask once more, and return how long that took, in seconds.
_Ask = Callable[[int], Awaitable[float]]


@asynccontextmanager
async def watched(stage: Stage, program: str) -> AsyncIterator["Waits"]:
    """Let innocents of a program go on meanwhile; yield what they wait."""
    waits = Waits()
    port = stage.metrics_port if program == "scheduler" else stage.getpfs_port
    path = "/livez" if program == "scheduler" else "/healthz"
    asked: dict[str, _Ask] = {"probe": lambda _: _probe(f"http://127.0.0.1:{port}{path}")}
    asked |= {"pod": _Pods(stage).ask} if program == "scheduler" else {"inventory": _Inventory(stage).ask}
    tasks = [asyncio.create_task(waits.ask(name, ask)) for name, ask in asked.items()]
    try:
        yield waits
    finally:
        waits.enough = True
        await asyncio.gather(*tasks)


class Waits:
    """The longest wait of each kind of innocent, in seconds, and how many of it there were."""

    def __init__(self) -> None:
        self.longest_s: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.enough = False

    async def ask(self, name: str, ask: _Ask) -> None:
        """Ask until it is enough."""
        self.longest_s[name], self.counts[name] = 0.0, 0
        while not self.enough:
            self.longest_s[name] = max(self.longest_s[name], await ask(self.counts[name]))
            self.counts[name] += 1
            await asyncio.sleep(_PAUSE_S)

    async def reach(self, count: int) -> None:
        """Wait until each innocent was answered so many times more; raise TimeoutError if that takes too long."""
        wanted = {name: before + count for name, before in self.counts.items()}
        async with asyncio.timeout(_LONGEST_S):
            while any(self.counts[name] < many for name, many in wanted.items()):
                await asyncio.sleep(_PAUSE_S)


async def _probe(url: str) -> float:
    """Ask over a new connection, as a kubelet does, until there is an answer."""
    began_s = time.monotonic()
    while True:
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                if answer.status == 200:
                    return time.monotonic() - began_s
        except aiohttp.ClientError:
            await asyncio.sleep(_PAUSE_S)


class _Pods:
    """Pods with one VF, each created when the one before it has its node."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def ask(self, number: int) -> float:
        pod = load.pod(number, [{}], "1m", {})
        name = pod["metadata"]["name"] = f"innocent-{time.monotonic_ns()}-{number}"
        selected = {"watch": "true", "fieldSelector": f"metadata.name={name}", "resourceVersion": await self._version()}
        async with self._stage.api.stream(PODS, selected, _LONGEST_S) as batches:
            await self._stage.create(PODS, pod)
            # From here on it is the scheduler's: a large object of the attacker's keeps the API server too.
            began_s = time.monotonic()
            async for lines in batches:
                if any(msgspec.json.decode(line)["object"]["spec"].get("nodeName") for line in lines):
                    break
        waited_s = time.monotonic() - began_s
        await self._stage.delete(f"{PODS}/{name}")
        return waited_s

    async def _version(self) -> str:
        page = msgspec.json.decode(await self._stage.api.request("GET", PODS, params={"limit": "1"}))
        return str(page["metadata"]["resourceVersion"])


class _Inventory:
    """A VF of the node is drained, or no longer: its inventory says so."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def ask(self, number: int) -> float:
        await asyncio.sleep(_BETWEEN_PATCHES_S)
        drained = number % 2 == 0
        annotations = {names.DRAIN: '["enp4s0f0/2"]' if drained else None}
        await self._stage.patch(f"{NODES}/{HOST}", {"metadata": {"annotations": annotations}})
        began_s = time.monotonic()
        while True:
            node = json.loads(await self._stage.api.request("GET", f"{NODES}/{HOST}"))
            if ("drained" in node["metadata"]["annotations"].get(names.INVENTORY, "")) == drained:
                return time.monotonic() - began_s
            await asyncio.sleep(_PAUSE_S)
