"""Those who have done nothing: a pod that waits for its node, a kubelet that probes, a node that tells what it offers.

Each asks once at a time, and then again: whatever stands still for a while makes one of them wait that long.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec

from bench.advertiser import cpu_s
from bench.hostile.node_innocents import ContainerRuntime, Kubelet
from bench.hostile.node_programs import PROGRAMS
from bench.hostile.stage import HOST, NODES, PODS, Stage
from bench.loads import scheduler_load as load
from mooring import names

_PAUSE_S = 0.05
# The advertiser patches once a second at most, whoever asks.
_BETWEEN_PATCHES_S = 1.5
_LONGEST_S = 300.0
# Ask once more; call what is given when the time begins to count.
_Ask = Callable[[int, Callable[[], None]], Awaitable[None]]


@asynccontextmanager
async def watched(stage: Stage, program: str) -> AsyncIterator["Waits"]:
    """Let innocents of a program go on meanwhile; yield what they wait."""
    waits = Waits(lambda: cpu_s(stage.processes.pid(program)))
    async with _asked(stage, program) as asked:
        tasks = [asyncio.create_task(waits.ask(name, ask)) for name, ask in asked.items()]
        try:
            yield waits
        finally:
            waits.enough = True
            await asyncio.gather(*tasks)


@asynccontextmanager
async def _asked(stage: Stage, program: str) -> AsyncIterator[dict[str, _Ask]]:
    """Yield what is asked of a program, by name."""
    if program in PROGRAMS:
        node = Kubelet(stage.node) if program == "shim" else ContainerRuntime(stage.node)
        try:
            yield node.asked()
        finally:
            await node.leave()
        return
    port = stage.metrics_port if program == "scheduler" else stage.getpfs_port
    path = "/livez" if program == "scheduler" else "/healthz"
    asked: dict[str, _Ask] = {"probe": _Probe(f"http://127.0.0.1:{port}{path}").ask}
    yield asked | ({"pod": _Pods(stage).ask} if program == "scheduler" else {"inventory": _Inventory(stage).ask})


@dataclass(slots=True)
class Longest:
    """The longest wait of one kind of innocent, in seconds, and the most CPU that the program used during one."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    count: int = 0


class Waits:
    """What each kind of innocent waited."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self.longest: dict[str, Longest] = {}
        self.enough = False
        self._cpu_s = cpu

    async def ask(self, name: str, ask: _Ask) -> None:
        """Ask until it is enough."""
        longest = self.longest[name] = Longest()
        began_s = spent_s = 0.0

        def begin() -> None:
            nonlocal began_s, spent_s
            began_s, spent_s = time.monotonic(), self._cpu_s()

        while not self.enough:
            await ask(longest.count, begin)
            longest.wall_s = max(longest.wall_s, time.monotonic() - began_s)
            longest.cpu_s = max(longest.cpu_s, self._cpu_s() - spent_s)
            longest.count += 1
            await asyncio.sleep(_PAUSE_S)

    async def reach(self, count: int) -> None:
        """Wait until each innocent was answered so many times more; raise TimeoutError if that takes too long."""
        wanted = {name: longest.count + count for name, longest in self.longest.items()}
        async with asyncio.timeout(_LONGEST_S):
            while any(self.longest[name].count < many for name, many in wanted.items()):
                await asyncio.sleep(_PAUSE_S)


class _Probe:
    """A kubelet's probe, over a new connection each time, again until it is answered."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def ask(self, _: int, begin: Callable[[], None]) -> None:
        begin()
        while not await self._answered():
            await asyncio.sleep(_PAUSE_S)

    async def _answered(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self._url) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


class _Pods:
    """Pods with one VF, each created when the one before it has its node."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._last = ""

    async def ask(self, number: int, begin: Callable[[], None]) -> None:
        if self._last:
            await self._stage.delete(f"{PODS}/{self._last}")
        pod = load.pod(number, [{}], "1m", {})
        name = pod["metadata"]["name"] = f"innocent-{time.monotonic_ns()}-{number}"
        selected = {"watch": "true", "fieldSelector": f"metadata.name={name}", "resourceVersion": await self._version()}
        async with self._stage.api.stream(PODS, selected, _LONGEST_S) as batches:
            await self._stage.create(PODS, pod)
            # From here on it is the scheduler's: a large object of the attacker's keeps the API server too.
            begin()
            async for lines in batches:
                if any(msgspec.json.decode(line)["object"]["spec"].get("nodeName") for line in lines):
                    break
            self._last = name

    async def _version(self) -> str:
        page = msgspec.json.decode(await self._stage.api.request("GET", PODS, params={"limit": "1"}))
        return str(page["metadata"]["resourceVersion"])


class _Inventory:
    """A VF of the node is drained, or no longer: its inventory says so."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def ask(self, number: int, begin: Callable[[], None]) -> None:
        await asyncio.sleep(_BETWEEN_PATCHES_S)
        drained = number % 2 == 0
        annotations = {names.DRAIN: '["enp4s0f0/2"]' if drained else None}
        await self._stage.patch(f"{NODES}/{HOST}", {"metadata": {"annotations": annotations}})
        begin()
        while True:
            node = json.loads(await self._stage.api.request("GET", f"{NODES}/{HOST}"))
            if ("drained" in node["metadata"]["annotations"].get(names.INVENTORY, "")) == drained:
                return
            await asyncio.sleep(_PAUSE_S)
