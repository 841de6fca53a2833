"""The installers' agents, each a process: started, killed with what it runs on its host, and started again.

An agent is that of `mooring-node fleet`: its turns are in the Lease of an API server. Its clock is several times as
fast, so that its waits of minutes are seconds.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from bench.fleet.host import ForkedProcess, SimulatedHost
from cli.node.fleet.agent import Agent, Task
from cli.node.fleet.host import FleetNode
from cli.node.fleet.lease import LeaseStore
from cli.node.fleet.nodes import KubeNodes
from cli.node.fleet.runtime import Runtime
from mooring.kube.access import Access
from mooring.kube.client import Client

NAMESPACE, LEASE = "mooring-node", "mooring-node-installer"
_CHECK_EVERY_S = 300.0


@dataclass(frozen=True, slots=True)
class Desired:
    """What the DaemonSet's template says: the image, and what its pods do; ``at_once`` nodes are changed together.

    ``release`` is what the real image installs, whose tag is ``tag``; all nodes move to it.
    """

    image: Runtime
    at_once: int
    removes: bool = False
    tag: str = ""
    release: str = ""


class SimulatedNode(FleetNode):
    """A node whose small image stands for the real one."""

    release: str

    def target(self) -> str:
        """Return what the fleet moves to: for this image what it is for the real one."""
        return super().target().replace(self.runtime.release, self.release or self.runtime.release)


@dataclass(slots=True)
class Agents:
    """The agents by their nodes' names; their clocks are ``speed`` times as fast as this machine's."""

    access: Access
    settings: Path
    random: Random
    log: Path
    speed: float
    running: dict[str, int] = field(default_factory=dict)
    kills: int = 0

    def start(self, host: SimulatedHost, desired: Desired) -> None:
        seed = self.random.random()
        if (child := os.fork()) != 0:
            # Here too, because the agent may be killed before it runs.
            os.setpgid(child, child)
            self.running[host.name] = child
            return
        with contextlib.suppress(BaseException), self.log.open("a") as log:
            os.setpgid(0, 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            with asyncio.Runner(loop_factory=partial(_FastLoop, self.speed)) as runner:
                runner.run(self._act(host, desired, Random(seed)))
        os._exit(1)

    async def _act(self, host: SimulatedHost, desired: Desired, random: Random) -> None:
        node = SimulatedNode(
            name=host.name,
            root=host.root,
            runtime=desired.image,
            settings=self.settings,
            removes=desired.removes,
            process=ForkedProcess(root=host.root),
        )
        node.release = desired.release
        async with Client(self.access) as client:
            store = LeaseStore(client, NAMESPACE, LEASE, host.name)
            task = Task(host.name, desired.at_once, _CHECK_EVERY_S)
            await Agent(task, store, KubeNodes(client), node, random).run()

    def kill(self, name: str) -> None:
        """Kill an agent together with the `mooring-node` that it runs, as the end of a container does."""
        if (child := self.running.pop(name, None)) is not None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.kills += 1

    def ended(self) -> list[str]:
        """Return the nodes whose agents have ended by themselves, which none ever does."""
        return [name for name, child in self.running.items() if os.waitpid(child, os.WNOHANG)[0]]


class _FastSelector(selectors.DefaultSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout / self._speed)


class _FastLoop(asyncio.SelectorEventLoop):
    def __init__(self, speed: float) -> None:
        super().__init__(_FastSelector(speed))
        self._speed = speed

    def time(self) -> float:
        return time.monotonic() * self._speed
