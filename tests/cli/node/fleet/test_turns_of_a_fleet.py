"""Agents of a whole fleet in virtual time: killed, a node broken or down, and an API server that loses answers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from cli.node.fleet.agent import Agent, State, Task
from cli.node.plan.turns import SILENT_S, Turn, Turns, dump_turns, read_turns
from mooring.kube.failures import Conflict, Status, Unknown
from tests.cli.node.fleet.virtual_time import run

AT_ONCE, NODES = 4, [f"n{number}" for number in range(20)]
TARGET = "install mooring-0.2.0"


@dataclass
class Host:
    """A node outlives its agents. ``state`` is `old`, `half` (a change began) or `new`.

    A change of a node that is ``is_unchanging`` succeeds, and it differs as before. ``obstacle`` forbids a change. One
    that is not ``is_ready`` fails, too. ``is_repair``: its release is installed already.
    """

    name: str
    state: str = "old"
    is_broken: bool = False
    is_unchanging: bool = False
    obstacle: str = ""
    is_ready: bool = True
    is_repair: bool = False


@dataclass
class Fleet:
    random: Random
    hosts: dict[str, Host]
    target: str = TARGET
    text: str = dump_turns(Turns())
    version: int = 0
    agents: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    reads: int = 0
    breaches: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def turns(self) -> Turns:
        return read_turns(self.text)

    def limit(self) -> int:
        return AT_ONCE if any(host.state == "new" for host in self.hosts.values()) else 1

    def start(self, name: str) -> None:
        task = Task(name, AT_ONCE, 300.0)
        random = Random(self.random.random())
        agent = Agent(task, LossyStore(self), FleetNodes(self), SimulatedNode(self, self.hosts[name]), random)
        self.agents[name] = asyncio.get_running_loop().create_task(agent.run())

    def kill(self, name: str) -> None:
        self.agents.pop(name).cancel()

    def is_complete(self, names: Sequence[str] = NODES) -> bool:
        return all(self.hosts[name].state == "new" for name in names)


@dataclass
class LossyStore:
    """The Lease, with answers that are late, lost, or not given."""

    fleet: Fleet

    async def read(self, *, cached: bool = False) -> tuple[Turns, str]:
        self.fleet.reads += 1
        answer = self.fleet.turns(), str(self.fleet.version)
        # A cached answer may be old.
        await self._wait(3.0 if cached else 0.5)
        return answer if cached else (self.fleet.turns(), str(self.fleet.version))

    async def write(self, turns: Turns, version: str) -> None:
        await self._wait(0.5)
        if version != str(self.fleet.version):
            raise Conflict(Status(409))
        before = self.fleet.turns()
        begun = {turn.node for turn in turns.turns} - {turn.node for turn in before.turns}
        if begun:
            if any(turn.failure for turn in before.turns):
                self.fleet.breaches.append(f"{begun} begins after a failure")
            if len(turns.turns) > self.fleet.limit():
                self.fleet.breaches.append(f"{len(turns.turns)} turns")
        self.fleet.text, self.fleet.version = dump_turns(turns), self.fleet.version + 1
        await self._wait(0.5)

    async def _wait(self, most_s: float) -> None:
        await asyncio.sleep(self.fleet.random.uniform(0, most_s))
        if self.fleet.random.random() < 0.1:
            raise Unknown(Status(0, message="no answer"))


@dataclass
class FleetNodes:
    """The Node objects: a host that is deleted from the fleet has none."""

    fleet: Fleet

    async def unready(self, name: str) -> str:
        return "" if self.fleet.hosts[name].is_ready else f"node {name!r} is not Ready"

    async def has_left(self, name: str) -> bool:
        return name not in self.fleet.hosts


@dataclass
class SimulatedNode:
    fleet: Fleet
    host: Host

    def target(self) -> str:
        return self.fleet.target

    async def difference(self) -> str:
        await asyncio.sleep(1)
        return "" if self.host.state == "new" else self.host.state

    async def obstacle(self) -> str:
        return self.host.obstacle

    def is_repair(self) -> bool:
        return self.host.is_repair

    async def change(self) -> str:
        if self.fleet.turns().of(self.host.name) is None:
            self.fleet.breaches.append(f"{self.host.name} is changed without a turn")
        if self.host.obstacle:
            self.fleet.breaches.append(f"{self.host.name} is changed despite {self.host.obstacle}")
        self.host.state = "half"
        begun = [one.name for one in self.fleet.hosts.values() if one.state == "half"]
        if len(begun) > self.fleet.limit():
            self.fleet.breaches.append(f"{begun} are changed at once")
        await asyncio.sleep(self.fleet.random.uniform(5, 60))
        if self.host.is_broken or not self.host.is_ready:
            return "no space left on device"
        self.host.state = "half" if self.host.is_unchanging else "new"
        return ""

    async def report(self, state: State, text: str) -> None:
        self.fleet.reasons[self.host.name] = text


async def _until(condition: Callable[[], bool], what: str, within_s: float) -> None:
    end = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(1)


async def _kill_at_random(fleet: Fleet) -> None:
    """Kill agents of nodes that are up, and start each again as a kubelet does."""
    while True:
        await asyncio.sleep(fleet.random.uniform(5, 30))
        name = fleet.random.choice(sorted(fleet.agents))
        fleet.kill(name)
        await asyncio.sleep(fleet.random.uniform(0, 40))
        fleet.start(name)


@pytest.mark.parametrize("seed", range(8))
def test_a_fleet_is_installed_in_turns_whatever_is_killed_and_a_failure_stops_it(seed: int) -> None:
    """Never more turns than the limit, none begun after a failure; complete once the broken node is mended."""
    random = Random(seed)
    fleet = Fleet(random, {name: Host(name) for name in NODES})
    # It may be the first one, which goes alone.
    broken = fleet.hosts[random.choice(NODES)]
    broken.is_broken = True

    def changing() -> Sequence[str]:
        return [host.name for host in fleet.hosts.values() if host.state == "half" and host is not broken]

    async def story() -> None:
        for name in NODES:
            fleet.start(name)
        kills = asyncio.create_task(_kill_at_random(fleet))
        await _until(lambda: any(turn.failure for turn in fleet.turns().turns), "the broken node fails", 20000)
        await _until(lambda: len(fleet.turns().turns) == 1, "those that had begun end", 1500)
        states = {name: host.state for name, host in fleet.hosts.items()}
        await asyncio.sleep(4000)
        assert {name: host.state for name, host in fleet.hosts.items()} == states
        broken.is_broken = False
        await _until(lambda: bool(changing()) or fleet.is_complete(), "the fleet goes on", 8000)
        await _until(fleet.is_complete, "the fleet is complete", 20000)
        await _until(lambda: not fleet.turns().turns, "all turns end", 2000)
        kills.cancel()
        _end(fleet)

    run(story())


def test_a_node_that_goes_down_in_its_turn_stops_the_fleet_until_it_is_back() -> None:
    """The others wait however long it is away, also those whose agents start meanwhile; the reason names it."""
    fleet = Fleet(Random(1), {name: Host(name) for name in NODES})

    def began() -> Sequence[str]:
        return [name for name in NODES if fleet.hosts[name].state == "half"]

    async def story() -> None:
        for name in NODES[:10]:
            fleet.start(name)
        await _until(lambda: fleet.limit() > 1 and bool(began()), "several are changed", 3000)
        down = began()[0]
        fleet.kill(down)
        await asyncio.sleep(2 * SILENT_S)
        await _until(lambda: began() == [down], "the others end", 1000)
        before = [host.state for host in fleet.hosts.values()]
        for name in NODES[10:]:
            fleet.start(name)
        await asyncio.sleep(2000)
        assert [host.state for host in fleet.hosts.values()] == before
        named = f"node {down!r} has begun: waits for a sign that it works"
        await _until(lambda: fleet.reasons[NODES[19]] == named, "the reason names it", 500)
        fleet.start(down)
        await _until(fleet.is_complete, "the fleet is complete", 20000)
        _end(fleet)

    run(story())


def test_a_node_that_is_not_ready_waits_and_stops_no_other_node() -> None:
    """It begins when it is Ready; a repair, which may make it Ready, does not wait for that."""
    fleet = Fleet(Random(1), {name: Host(name) for name in NODES[:4]})
    sick = fleet.hosts["n0"]
    sick.is_ready = False

    async def story() -> None:
        fleet.start("n0")
        await _until(lambda: fleet.reasons.get("n0") == "node 'n0' is not Ready", "it waits", 3000)
        for name in NODES[1:4]:
            fleet.start(name)
        await _until(lambda: fleet.is_complete(NODES[1:4]), "the others are changed", 3000)
        assert (sick.state, fleet.turns().of("n0")) == ("old", None)
        sick.is_repair = True
        await _until(lambda: sick.state == "half", "the repair begins", 3000)
        sick.is_ready = True
        await _until(lambda: fleet.is_complete(["n0"]), "it is changed", 8000)
        _end(fleet)

    run(story())


def test_a_node_that_is_not_ready_after_its_change_has_failed_keeps_its_turn() -> None:
    """The change may be the reason, so no other node gets it."""
    fleet = Fleet(Random(1), {name: Host(name) for name in NODES[:3]})
    first = fleet.hosts["n0"]
    first.is_broken = True

    async def story() -> None:
        fleet.start("n0")
        await _until(lambda: bool(fleet.turns().turns and fleet.turns().turns[0].failure), "it fails", 3000)
        first.is_ready = False
        for name in NODES[1:3]:
            fleet.start(name)
        await asyncio.sleep(8000)
        assert [host.state for host in fleet.hosts.values()] == ["half", "old", "old"]
        _end(fleet)

    run(story())


@pytest.mark.parametrize("is_broken", [True, False], ids=["failed", "down"])
def test_the_turn_of_a_node_that_leaves_the_fleet_ends(is_broken: bool) -> None:
    """The others go on, one node first, since nothing is proven."""
    fleet = Fleet(Random(1), {name: Host(name) for name in NODES[:4]})
    fleet.hosts["n0"].is_broken = is_broken

    async def story() -> None:
        fleet.start("n0")
        await _until(lambda: fleet.hosts["n0"].state == "half", "it is changed", 3000)
        if is_broken:
            await _until(lambda: bool(fleet.turns().turns[0].failure), "it fails", 3000)
        fleet.kill("n0")
        for name in NODES[1:4]:
            fleet.start(name)
        await asyncio.sleep(2000)
        assert [turn.node for turn in fleet.turns().turns] == ["n0"]
        del fleet.hosts["n0"]
        await _until(lambda: fleet.is_complete(NODES[1:4]), "the others are changed", 3000)
        _end(fleet)

    run(story())


def test_an_obstacle_that_comes_while_a_node_waits_for_its_turn_stops_no_other_node() -> None:
    fleet = Fleet(Random(1), {name: Host(name) for name in NODES[:3]})
    first, late = fleet.hosts["n0"], fleet.hosts["n1"]
    first.is_broken = True

    async def story() -> None:
        fleet.start("n0")
        await _until(lambda: bool(fleet.turns().turns and fleet.turns().turns[0].failure), "the first node fails", 3000)
        fleet.start("n1")
        await _until(lambda: "failed" in fleet.reasons.get("n1", ""), "the second node waits for its turn", 3000)
        late.obstacle = "a pod with a VF"
        first.is_broken = False
        await _until(lambda: fleet.reasons["n1"] == late.obstacle, "the second node reports its obstacle", 3000)
        assert fleet.turns().of("n1") is None
        fleet.start("n2")
        await _until(lambda: fleet.is_complete(["n0", "n2"]), "the others are changed", 3000)
        late.obstacle = ""
        await _until(lambda: fleet.is_complete(NODES[:3]), "the second node is changed too", 3000)
        _end(fleet)

    run(story())


def test_a_node_that_differs_after_its_change_has_failed_and_is_retried_rarely() -> None:
    fleet = Fleet(Random(1), {"n0": Host("n0", is_unchanging=True)})

    async def story() -> None:
        fleet.start("n0")
        await _until(lambda: bool(fleet.turns().turns and fleet.turns().turns[0].failure), "it fails", 300)
        assert fleet.turns().turns[0].failure == "was changed, but still differs: half"
        before = fleet.version
        await asyncio.sleep(4000)
        assert fleet.version - before < 100
        fleet.hosts["n0"].is_unchanging = False
        await _until(lambda: fleet.is_complete(["n0"]), "it is retried", 4000)
        _end(fleet)

    run(story())


def test_a_node_that_waits_begins_with_the_settings_of_then() -> None:
    """Volumes of a ConfigMap change below a pod that runs."""
    fleet = Fleet(Random(1), {name: Host(name) for name in NODES[:2]})
    fleet.text = dump_turns(Turns(TARGET, (Turn("n0", TARGET, failure="no space left on device"),)))

    async def story() -> None:
        fleet.start("n1")
        await _until(lambda: "failed" in fleet.reasons.get("n1", ""), "it waits", 3000)
        fleet.target = "install mooring-0.2.0 of other settings"
        fleet.text = dump_turns(Turns(TARGET))
        await _until(lambda: fleet.turns().proven == fleet.target, "it has proven the new settings", 3000)
        _end(fleet)

    run(story())


def test_a_fleet_of_500_waiting_nodes_reads_the_lease_less_than_20_times_a_second() -> None:
    fleet = Fleet(Random(1), {f"n{number}": Host(f"n{number}") for number in range(500)})
    fleet.hosts["n0"].state = "new"
    fleet.text = dump_turns(Turns("", (Turn("n0", TARGET, failure="no space left on device"),)))

    async def story() -> None:
        for name in fleet.hosts:
            if name != "n0":
                fleet.start(name)
        await asyncio.sleep(120)
        before = fleet.reads
        await asyncio.sleep(60)
        assert fleet.reads - before < 60 * 20
        _end(fleet)

    run(story())


def _end(fleet: Fleet) -> None:
    assert not fleet.breaches
    for agent in fleet.agents.values():
        assert not agent.done(), agent
        agent.cancel()
