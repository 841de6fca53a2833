"""One simulated run of a cluster: a seed chooses the actions of users, nodes and operators, and the faults."""

import asyncio
import gc
import logging
import random
import re
import secrets
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Container, Iterator, MutableMapping, Set
from contextlib import contextmanager
from datetime import datetime, tzinfo
from functools import partial
from typing import Self

import pytest
import structlog

from devcluster.apiserver.call import Call
from scheduler.cycle.instructions import DeleteVictims
from scheduler.state.machine import Machine
from tests.scheduler.simulation.api import Api, Json
from tests.scheduler.simulation.clock import VirtualLoop
from tests.scheduler.simulation.cluster import Cluster, PodState
from tests.scheduler.simulation.disruption import Disruptions
from tests.scheduler.simulation.faults import Faults
from tests.scheduler.simulation.jobs import Jobs
from tests.scheduler.simulation.kube_scheduler import KubeScheduler
from tests.scheduler.simulation.kubelet import NodeAgent
from tests.scheduler.simulation.network import CLIENT, Network, accepting
from tests.scheduler.simulation.oracle import placement
from tests.scheduler.simulation.promises import Promises
from tests.scheduler.simulation.rates import Rates
from tests.scheduler.simulation.reserved_room import ReservedRooms, nodes_of_spares
from tests.scheduler.simulation.schedulers import Decision, RecordedExtenderPods, Scheduler, machine
from tests.scheduler.simulation.storage import Storage

NODES = ("n1", "n2", "n3")
# When everything works again, all that fits is bound within this long: a lease runs out (15 s), the API edge waits 30 s
# at the most between its tries, and the bind timeout (5 s) and one backoff (10 s) come on top.
_SETTLED_WITHIN_S = 90.0
# So much longer if an order was cut or a node keeps VFs: a leader waits for a minute, and looks each 5 s. Then it
# evicts what the order has left, or gives up room whose VFs are not released.
_WAIT_S = 70.0
# The simulated cluster has no admission policies, and says so as it must.
_UNGUARDED = "admission policy is not enforced"
# Longer than any request is under way, in seconds.
_FLUSH_S = 60.0


class World:
    """A cluster with two schedulers, a kube-scheduler that uses them, and everything that a seed decides."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.source = random.Random(seed)
        self.faults = Faults(random.Random(seed + 1))
        self.api = Api(loop, self.faults)
        self.network = Network(loop, random.Random(seed + 2), self.api.connection)
        loop.connect, loop.listen = self.network.connect, self.network.listen
        self.cluster = Cluster(self.api)
        self.agents: dict[str, NodeAgent] = {}
        # What was wrong; the programs' errors too.
        self.broken = list[str]()
        self.storage = Storage(self.api)
        self.jobs = Jobs(self.api, self.cluster, self.storage, self.broken)
        self.promises, self.rates, self.reserved_rooms = Promises(self), Rates(self), ReservedRooms()
        self.disruptions = Disruptions(loop, self.cluster, self.jobs, self.network.bury, self.broken)
        self.api.carried_out = self._see
        self.decided: Callable[[str, Decision], None] = self.promises.decide
        self.kube_scheduler = KubeScheduler(loop, self.cluster, self.broken, random.Random(seed + 4))
        self.slots: dict[str, Scheduler] = {}
        self._starts = 0
        self._restart_at: dict[str, float] = {}

    def add_nodes(self, *nodes: str) -> None:
        for name in nodes:
            agent = self.agents[name] = NodeAgent(name, self.cluster, tell=partial(self.tell, name))
            agent.hardware.shares_port = name == NODES[-1]
            self.promises.offer(name)
            self.cluster.put_node(name, agent.hardware)

    def tell(self, name: str, *, ready: bool = True, kernel_boot: str = "") -> None:
        """Let a node's advertiser publish what its hardware offers."""
        self.promises.offer(name)
        if name in self.cluster.nodes():
            self.cluster.put_node(name, self.agents[name].hardware, ready=ready, kernel_boot=kernel_boot)

    def _see(self, process: str, call: Call) -> None:
        """Show a write of a scheduler, which the API server has carried out, to those who check such writes."""
        match call.target.plural, call.target.subresource or call.method:
            case "leases", _:
                self.promises.see_lease(process, call.parsed())
            case "pods", "binding":
                self.promises.see_binding(process, call.given())
            case "pods", "eviction":
                self.disruptions.see_eviction(call.parsed()["deleteOptions"]["preconditions"]["uid"])
            case "pods", "status":
                self.disruptions.see_status(process, call.parsed())
                self.rates.see_status(process, call.parsed())
            case _, "DELETE":
                uid = call.parsed()["preconditions"]["uid"]
                self.promises.see_deletion(process, uid)
                self.disruptions.see_deletion(process, uid)

    def start(self, slot: str) -> None:
        self._starts += 1
        self.slots[slot] = Scheduler(f"{slot}{self._starts}", self)
        self.slots[slot].start()

    def preempt(self, process: str, machine: Machine, order: DeleteVictims, going: Set[str]) -> None:
        """Check a decision that victims go; ``going`` had to go before."""
        self.jobs.preempt(machine, order, going)
        self.disruptions.order(process, machine, order)

    def kill_at(self, count: int) -> None:
        """Kill a scheduler at its ``count``-th request, all together: when it arrives, or when it is carried out."""
        left = iter(range(count))

        def witness(process: str) -> None:
            if next(left, None) is None:
                self.api.witness = lambda _: None
                self.network.bury(process)

        self.api.witness = witness

    async def kill(self, slot: str) -> None:
        """End a scheduler as SIGKILL does: what it has sent arrives, nothing else happens."""
        scheduler = self.slots.pop(slot, None)
        if scheduler is not None:
            self.network.bury(scheduler.name)
            await self.loop.end(scheduler.name)

    async def revive(self) -> None:
        """Clean up schedulers that have ended, and start them again after a moment."""
        for slot, scheduler in list(self.slots.items()):
            if scheduler.task.done() or scheduler.name in self.network.dead:
                assert not scheduler.failure, scheduler.failure
                await self.kill(slot)
        for slot in ("a", "b"):
            if slot not in self.slots:
                due = self._restart_at.setdefault(slot, self.loop.time() + self.source.uniform(0.5, 5))
                if self.loop.time() >= due:
                    del self._restart_at[slot]
                    self.start(slot)

    def check(self) -> None:
        """Raise AssertionError if a guarantee is violated."""
        assert not self.broken, "; ".join(self.broken)
        self.promises.check()
        self.disruptions.check()
        self.rates.check()
        if self.kube_scheduler.task.done():
            self.kube_scheduler.task.result()
        for scheduler in self.slots.values():
            if scheduler.machine is not None:
                scheduler.machine.check()
                if self.promises.leads(scheduler.name):
                    self.reserved_rooms.check(scheduler.name, scheduler.machine)

    async def settle(self) -> None:
        """Let all faults end; then whatever fits must be bound in bounded time, and the rest have its reason."""
        self.faults.stop()
        self.network.heal()
        for agent in self.agents.values():
            agent.hangs = False
        for scheduler in self.slots.values():
            self.loop.thaw(scheduler.name)
        self.disruptions.stop()
        waits = any(self.disruptions.left()) or any(agent.keeps for agent in self.agents.values())
        within = _SETTLED_WITHIN_S + _WAIT_S * waits
        until = self.loop.time() + within
        while (late := self.unsettled()) and self.loop.time() < until:
            for agent in self.agents.values():
                agent.sync()
            self.storage.work(self.cluster.nodes())
            self.rates.work()
            await asyncio.sleep(1.0)
            await self.revive()
            self.check()
        assert not late, f"{within:.0f} s after the last fault: {'; '.join(late)}"

    def unsettled(self) -> list[str]:
        """Return what is not yet as it must be in the end."""
        nodes, live = self.cluster.nodes(), list(self.cluster.live())
        machines = {one.name: one.machine for one in self.slots.values() if one.machine is not None}
        leading = machines.get(self.promises.leader)
        spare_nodes = nodes_of_spares(leading) if leading is not None else set()
        kept = self.jobs.kept() | spare_nodes
        late = [f"{pod.name} is being deleted" for pod in self.cluster.pods() if pod.is_going and pod.node in nodes]
        for pod in self.cluster.pods():
            is_single = pod.is_waiting and self.jobs.of(pod.uid) is None
            if is_single and (fitting := placement(pod, 1, self._free(pod, nodes, kept), live)):
                late.append(f"{pod.name} fits on {fitting} and waits: {pod.message!r}")
            elif pod.is_waiting and not pod.message:
                late.append(f"{pod.name} waits and was not told why")
        late += self.jobs.unsettled(nodes, live, spare_nodes)
        late += self.disruptions.left()
        late += self.rates.unsettled()
        late += self.unreported_disputes(nodes)
        # What is reserved for pods that are on no node.
        uids = {pod.uid for pod in live}
        for name, one in machines.items():
            lost = [assigned for assigned in one.cache.assigned_pods() if assigned.uid not in uids]
            late += [f"{name} keeps what is {assigned.pod}'s" for assigned in lost]
        return late

    def _free(self, pod: PodState, nodes: dict[str, Json], kept: Set[str]) -> dict[str, Json]:
        """Return the nodes where a pod's claims let it go, without those where room may be kept."""
        places = self.storage.places(pod)
        return {name: nodes[name] for name in nodes if name not in kept and (places is None or name in places)}

    def unreported_disputes(self, nodes: Container[str]) -> Iterator[str]:
        disputes = self.promises.disputes()
        said = [one["message"] for one in self.cluster.events("DisputedVf", "DisputedUnit")] if disputes else []
        for (node, unit), pods in disputes.items():
            about = " ".join(message for message in said if f" {unit} of node {node} " in message)
            if node in nodes and not all(re.search(rf"/{pod.name}\b", about) for pod in pods):
                yield f"{unit} of {node} is claimed by {[pod.name for pod in pods]}, and nobody was told"

    async def end(self) -> None:
        """Kill what runs, and let the server handle what is still under way."""
        for slot in list(self.slots):
            await self.kill(slot)
        await self.loop.end(CLIENT)
        await asyncio.sleep(_FLUSH_S)


def _clock_of(loop: VirtualLoop) -> type[datetime]:
    """Return a `datetime` that shows the time of the running process."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(loop.wall(), tz)

    return Clock


@contextmanager
def virtual(seed: int) -> Iterator[VirtualLoop]:
    """Give a loop in virtual time; all clocks, threads and chances are the simulation's meanwhile."""
    loop = VirtualLoop()
    chance = random.Random(seed + 3)
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=lambda: loop) as runner:
        # aiohttp reads this clock to drop idle connections; it has its own name for it.
        for clock in ("time.monotonic", "aiohttp.connector.monotonic"):
            patch.setattr(clock, loop.look)
        patch.setattr(time, "time", loop.wall)
        patch.setattr(time, "time_ns", lambda: int(loop.wall() * 1e9))
        for module in ("scheduler.server.leader", "scheduler.server.report_writer"):
            patch.setattr(f"{module}.datetime", _clock_of(loop))
        patch.setattr("scheduler.__main__.Machine", machine)
        patch.setattr("scheduler.state.machine.ExtenderPods", RecordedExtenderPods)
        patch.setattr("scheduler.server.metrics.expose", lambda machine: None)
        patch.setattr("mooring.http.application.accept_connections", accepting)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
        patch.setattr(secrets, "token_hex", lambda length: chance.randbytes(length).hex())
        # A collection would end forgotten generators at any time: no two runs would be equal.
        patch.setattr(gc, "freeze", lambda: None)
        gc.disable()
        random.seed(seed)
        asyncio.set_event_loop(runner.get_loop())
        try:
            yield loop
        finally:
            asyncio.set_event_loop(None)
            gc.enable()


@contextmanager
def _listening(broken: list[str]) -> Iterator[None]:
    """Collect what the programs log as errors, and drop the rest: there must be none."""
    known = structlog.get_config()

    def hear(logger: object, name: str, event: MutableMapping[str, object]) -> str:
        if event["event"] != _UNGUARDED:
            broken.append(f"{event.pop('event')}: {sys.exc_info()[1]!r} {event}")
        raise structlog.DropEvent

    structlog.configure(processors=[hear], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**known)


def simulate(seed: int, story: Callable[[World], Awaitable[None]]) -> World:
    """Run a story in a world of three nodes and two schedulers; raise AssertionError if a guarantee is violated."""
    with virtual(seed) as loop:
        world = World(loop, seed)
        loop.set_exception_handler(
            lambda _, context: world.broken.append(f"{context['message']} {context.get('exception')!r}")
        )
        with _listening(world.broken):
            world.add_nodes(*NODES)
            loop.run_until_complete(_tell(world, story))
    return world


async def _tell(world: World, story: Callable[[World], Awaitable[None]]) -> None:
    try:
        for slot in ("a", "b"):
            world.start(slot)
        world.kube_scheduler.start()
        await story(world)
        world.check()
    finally:
        await world.end()
