"""Any pod, node or annotation, however malformed, may exclude that object; it never stops or slows the rest.

Malformed objects come as bytes of a watch, through HTTP client, watch and decoder into the machine, as in the program.
After each batch a good pod is scheduled; the slowest objects are measured again, so that a busy machine does not
count.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from mooring import names
from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.events import Removed
from mooring.kube.watch import Decoder, watch
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Notice
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import Outcome
from scheduler.server.watches import SOURCES
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life
from tests.scheduler.simulation.feed import Feed
from tests.scheduler.simulation.malformed import line, mutate, pierce, wild
from tests.scheduler.simulation.network import Network
from tests.scheduler.simulation.world import virtual

BATCHES, BATCH = 100, 100
# No object may stop the loop for longer than this, in milliseconds.
SLOWEST_MS = 50.0
ASSIGNMENT = (
    '{"v":1,"uid":"UID","node":"n1","vfs":'
    '[{"pf":"pf0","vf":0,"pci":"0000:04:00.2","link":"ethernet","network":"rail0"}]}'
)
SPEC = """{
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}, "namespaces": ["default"]}]}},
    "containers": [{"name": "c", "ports": [{"hostPort": 80}], "resources": {
        "requests": {"cpu": "100m"}, "limits": {"rdma-sriov/dev-infiniband-mount": "1"}}}],
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
}"""


@dataclass
class Samples:
    """Valid objects of each kind, as an API server sends them."""

    life: Life
    serial: int = 0

    def of(self, kind: type[Any]) -> Any:
        self.serial += 1
        if kind is Pod:
            return self.pod(bound=self.serial % 3 == 0)
        return self.node() if kind is Node else self.surrounding(kind)

    def pod(self, *, bound: bool) -> Any:
        uid = f"uid-x{self.serial % 60}"
        extra = {names.ASSIGNMENT: ASSIGNMENT.replace("UID", uid)} if bound else {names.PLACEMENT: '{"pfs":"spread"}'}
        pod = self.life.make_pod(
            request=[{"min_tx_rate": 5, "network": "rail0", "containers": ["c"]}],
            node="n1" if bound else None,
            metadata={"uid": uid, "labels": {"app": "x"}, "resourceVersion": "5"},
            annotations=extra,
        )
        document = _json(pod)
        document["spec"] |= msgspec.json.decode(SPEC)
        return document

    def node(self) -> Any:
        labels = {"a": "2", "zone": "z"}
        return _json(self.life.make_node(f"n{self.serial % 4}", (self.life.make_pf(),), labels=labels))

    def surrounding(self, kind: type[Any]) -> Any:
        metadata = {"name": "s", "namespace": "default", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
        selector = {"matchLabels": {"app": "x"}} if kind.__name__ in ("ReplicaSet", "StatefulSet") else {"app": "x"}
        return {"metadata": metadata, "spec": {"selector": selector}}


def _json(struct: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(struct))


@dataclass
class Fuzz:
    """The edge and the machine, fed with bytes; ``slow`` holds the slowest: milliseconds, kind, line."""

    feed: Feed
    machine: Machine
    now: float = 0.0
    marks: int = 0
    mark_seen: asyncio.Event = field(default_factory=asyncio.Event)
    bound: set[str] = field(default_factory=set)
    unreadable_objects: int = 0
    slow: list[tuple[float, type[Any], bytes]] = field(default_factory=list)

    async def follow(self, client: Client, kind: type[Any], path: str) -> None:
        async for event in watch(client, path, Decoder(kind)):
            match event:
                case Removed(identity) if identity.uid == f"mark-{self.marks}":
                    self.mark_seen.set()
                case _:
                    self._obey(self.machine.handle(kind, event, self.now))

    async def put(self, kind: type[Any], text: bytes) -> float:
        """Let a watch say a line, decide about all that waits, and return the milliseconds of CPU that this took."""
        began = time.process_time()
        self.marks += 1
        self.mark_seen.clear()
        self.feed.say(SOURCES[kind], text)
        while not self.mark_seen.is_set():
            # A line that breaks the stream drops the mark behind it too.
            self.feed.say(SOURCES[kind], _mark(self.marks))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.mark_seen.wait()
        self._decide()
        return (time.process_time() - began) * 1000

    async def try_line(self, kind: type[Any], text: bytes) -> None:
        spent_ms = await self.put(kind, text)
        self.slow = sorted([*self.slow, (spent_ms, kind, text)], key=lambda one: one[0], reverse=True)[:5]

    def _decide(self) -> None:
        self.now += 0.01
        while (instructions := self.machine.step(self.now)) is not None:
            self._obey(instructions)
        self._obey(self.machine.tick(self.now))

    def _obey(self, instructions: list[Instruction]) -> None:
        """Refuse every bind, so that its resources are free again."""
        for one in instructions:
            if isinstance(one, Bind):
                self.bound.add(one.pod_info.uid)
                self._obey(self.machine.finished(one, Outcome("gone"), self.now))
            elif isinstance(one, Notice):
                self.unreadable_objects += 1


def _mark(number: int) -> bytes:
    metadata = {"name": "mark", "uid": f"mark-{number}", "resourceVersion": f"{number}"}
    return msgspec.json.encode({"type": "DELETED", "object": {"metadata": metadata}})


def _malformed(samples: Samples, kind: type[Any], source: random.Random) -> bytes:
    """Return a line: half are valid objects with a change or two, half have wrong types all over or no JSON in them."""
    sample = samples.of(kind)
    match source.randrange(6):
        case 0 | 1 | 2:
            return line(mutate(mutate(sample, source), source), source)
        case 3 | 4:
            return line(wild(sample, source), source, source.choice(("ADDED", "MODIFIED", "DELETED", "", "BOOKMARK")))
        case _:
            return line(pierce(sample, source), source)


async def _put_batches(fuzz: Fuzz, life: Life) -> None:
    samples, source = Samples(life), random.Random(7)
    kinds: tuple[type[Any], ...] = (Pod, Pod, Pod, Node, Node, *SOURCES)
    async with Client(Access("http://10.0.0.1:6443")) as client, asyncio.TaskGroup() as group:
        readers = [group.create_task(fuzz.follow(client, kind, path)) for kind, path in SOURCES.items()]
        for _ in range(BATCHES):
            for _ in range(BATCH):
                kind = source.choice(kinds)
                await fuzz.try_line(kind, _malformed(samples, kind, source))
            await fuzz.put(Node, _good(life.make_node("zz-good", (life.make_pf(vfs=9),))))
            good = life.make_pod(request=[{}], spec={"priority": 9})
            await fuzz.put(Pod, _good(good))
            assert good.metadata.uid in fuzz.bound
            await fuzz.put(Pod, _good(good, "DELETED"))
            life.machine.check()
        for _, kind, text in list(fuzz.slow):
            again = [await fuzz.put(kind, text) for _ in range(3)]
            assert min(again) < SLOWEST_MS, (min(again), text[:500])
        for reader in readers:
            reader.cancel()


def test_malformed_objects_neither_stop_nor_slow_the_scheduler(life: Life) -> None:
    """Ten thousand of all kinds: after each hundred a good pod finds a good node, and none takes long."""
    with virtual(0) as loop, structlog.testing.capture_logs():
        feed = Feed(loop)
        loop.connect = Network(loop, random.Random(0), feed.connection).connect
        fuzz = Fuzz(feed, life.machine)
        loop.run_until_complete(_put_batches(fuzz, life))
    assert fuzz.unreadable_objects > BATCHES


def _good(item: Pod | Node, kind: str = "ADDED") -> bytes:
    document = _json(item)
    document["metadata"]["resourceVersion"] = "1"
    return msgspec.json.encode({"type": kind, "object": document})


def test_malformed_annotations_are_refused_by_name(life: Life) -> None:
    """Requests, assignments and inventories that are nearly valid: each is taken or refused, and the state holds."""
    source = random.Random(11)
    inventory = (life.make_node(pfs=(life.make_pf(),)).metadata.annotations or {})[names.INVENTORY]
    for number in range(3000):
        uid = f"bound-{number % 10}"
        forged = _text(ASSIGNMENT.replace("UID", uid), source)
        bound = life.make_pod(node="n1", metadata={"uid": uid}, annotations={names.ASSIGNMENT: forged})
        waiting = life.make_pod(annotations={names.REQUEST: _text('[{"min_tx_rate":5,"vlan":100},{}]', source)})
        node = life.make_node("n1", annotations={names.INVENTORY: _text(inventory, source)})
        life.see(node, bound, waiting, now=float(number))
        if number % 100 == 0:
            while life.machine.step(life.now) is not None:
                pass
            life.machine.check()
    assert life.machine.cache.node("n1") is not None


def _text(text: str, source: random.Random) -> str:
    """Return a text with a few characters changed, doubled or cut."""
    for _ in range(source.randint(0, 3)):
        index = source.randrange(len(text))
        piece = source.choice(("", text[index] * 2, '"', "9" * 30, "null", "[", "\u0661"))
        text = text[:index] + piece + text[index + 1 :] or "{"
    return text
