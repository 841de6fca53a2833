"""Groups on small clusters, and pods and groups that fill a cluster to the last VF and Mb/s.

Of a group only the outcome is recorded: how many members have a node, in which domain, and how many pods had to go.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.parsing import dump
from tests.scheduler.decisions.documents import HOST, RACK, ZONE, Json, Node, pf, pod
from tests.scheduler.decisions.replay import Replay

_OFFER = 90_000
_RATES = (0, 10_000, 20_000, 30_000)


@dataclass(frozen=True, slots=True)
class Group:
    """A group's members by name, how many must start together, and of how many shapes they are."""

    name: str
    members: tuple[str, ...]
    min: int
    shapes: int
    asks: str

    def outcome(self, replay: Replay) -> str:
        nodes = [replay.nodes[replay.bound[name]] for name in self.members if name in replay.bound]
        racks = sorted({node.labels[RACK] for node in nodes})
        victims = {victim for name in self.members for victim in replay.victims_of[name]}
        asks = f"{self.shapes} shapes{self.asks}"
        wanted = f"{self.name} of {len(self.members)}, min {self.min}, {asks}"
        there = f" in {' '.join(racks)} on {len({node.name for node in nodes})} nodes" if nodes else ""
        return f"{wanted}: {len(nodes)} placed{there}, {len(victims)} victims"


def groups(random: Random) -> list[str]:
    """Two groups, one after the other, beside single pods that fill a part of the cluster; then a pod that preempts."""
    nodes = list(_racks(random))
    replay, numbers = Replay({node.name: node for node in nodes}), itertools.count()
    for number in range(random.choice((0, len(nodes) // 2, 2 * len(nodes), 3 * len(nodes)))):
        replay.create(_filler(random, f"f{number}", next(numbers)))
    replay.settle()
    lines, asked = [], list[Group]()
    for name in ("a", "b"):
        asked.append(_create(random, replay, name, numbers))
        replay.settle()
        if random.random() < 0.3 and replay.bound:
            replay.delete(random.choice(sorted(replay.bound)))
            replay.settle()
        lines.append(asked[-1].outcome(replay))
    replay.create(pod("urgent", next(numbers), [{}, {}], 3500, priority=1000))
    replay.settle()
    lines.append(f"urgent: {len(replay.victims_of['urgent'])} victims")
    outcomes = [group.outcome(replay) for group in asked]
    return lines + [f"then {line}" for line in outcomes if line not in lines]


def exact_fills(random: Random) -> list[str]:
    """Members of a group, or pods with a node each, that fill nodes to the last VF and Mb/s if arranged well."""
    return _group_that_fills(random) if random.random() < 0.5 else _pods_that_fill(random)


def _group_that_fills(random: Random) -> list[str]:
    nodes, requests = list[Node](), list[tuple[int, list[int]]]()
    for number in range(random.randint(2, 4)):
        node, rates = _node_and_rates(random, f"n{number}", 1, 4)
        nodes.append(node)
        parts = random.randint(1, min(3, len(rates)))
        ends = [0, *sorted(random.sample(range(1, len(rates)), parts - 1)), len(rates)]
        cpus = _cut(random, 8000, parts, 1000)
        requests += [(cpu, rates[low:high]) for cpu, (low, high) in zip(cpus, itertools.pairwise(ends), strict=True)]
    random.shuffle(requests)
    replay = Replay({node.name: node for node in nodes})
    annotations = {names.GROUP: dump({"name": "fill", "min": len(requests)})}
    for number, (cpu, rates) in enumerate(requests):
        interfaces: list[Json] = [{"min_tx_rate": rate} for rate in rates]
        replay.create(pod(f"p{number}", number, interfaces, cpu, annotations=annotations))
    replay.settle()
    return [f"a group of {len(requests)} on {len(nodes)} nodes: {len(replay.bound)} placed"]


def _pods_that_fill(random: Random) -> list[str]:
    made = [_node_and_rates(random, f"n{number}", 2, 5) for number in range(4)]
    replay = Replay({node.name: node for node, _ in made})
    for number, (node, rates) in enumerate(made):
        interfaces: list[Json] = [{"min_tx_rate": rate} for rate in rates]
        replay.create(pod(f"p{number}", number, interfaces, nodeSelector={HOST: node.name}))
    replay.settle()
    return [
        f"p{number} of {len(rates)} VFs on {len(node.pfs)} PFs: {int(f'p{number}' in replay.bound)} placed"
        for number, (node, rates) in enumerate(made)
    ]


def _node_and_rates(random: Random, name: str, fewest: int, most: int) -> tuple[Node, list[int]]:
    """Return a node whose PFs have so many VFs, and the rates that fill them."""
    counts = [random.randint(fewest, most) for _ in range(random.randint(1, 2 if fewest == 1 else 3))]
    unit = random.choice((1_000, 10_000))
    rates = [rate for count in counts for rate in _cut(random, _OFFER, count, unit)]
    random.shuffle(rates)
    return Node(
        name, [pf(index, count, network="rail0") for index, count in enumerate(counts)], labels={RACK: "r0"}
    ), rates


def _cut(random: Random, total: int, parts: int, unit: int) -> list[int]:
    """Return that many positive multiples of ``unit`` with this sum."""
    cuts = sorted(random.sample(range(1, total // unit), parts - 1))
    return [(high - low) * unit for low, high in itertools.pairwise([0, *cuts, total // unit])]


def _racks(random: Random) -> Iterator[Node]:
    rails, numbers = random.randint(1, 3), itertools.count()
    for rack in range(random.randint(2, 5)):
        for _ in range(random.randint(1, 4)):
            labels = {RACK: f"r{rack}", ZONE: f"z{rack // 2}"}
            yield Node(f"n{next(numbers)}", _pfs(random, rails), cpu=random.choice((4, 8, 8)), labels=labels)


def _pfs(random: Random, rails: int) -> Sequence[Pf]:
    count = max(rails - (random.random() < 0.15), 1)
    return [pf(index, random.choice((2, 4, 4)), offer_mbps=random.choice((60_000, 90_000))) for index in range(count)]


def _filler(random: Random, name: str, number: int) -> Json:
    request = [_interface(random) for _ in range(random.randint(0, 2))]
    spec = {"priority": random.choice((0, 0, 0, 60))}
    return pod(name, number, request or None, random.choice((500, 1000, 2000)), labels={"app": "f"}, **spec)


def _interface(random: Random) -> Json:
    rate = random.choice(_RATES)
    return {"min_tx_rate": rate} if rate else {}


def _create(random: Random, replay: Replay, name: str, numbers: Iterator[int]) -> Group:
    size = random.randint(2, 10)
    asks: Json = {"name": name, "min": max(size - random.choice((0, 0, 0, 1, 2)), 1)}
    if random.random() < 0.4:
        asks["within"] = random.choice((RACK, ZONE))
    if random.random() < 0.3:
        asks["prefer"] = [RACK] if asks.get("within") != RACK else [HOST]
    if random.random() < 0.35:
        asks["rails"] = random.choice(("same", "index"))
    shape_count = random.choice((1, 1, 2, 3))
    width = random.randint(1, 2)
    shapes = [
        (random.choice((500, 1000, 2000)), [_interface(random) for _ in range(width)]) for _ in range(shape_count)
    ]
    spec: Json = {"priority": random.choice((0, 10, 100, 100))}
    if random.random() < 0.15:
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": name}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    members = [f"{name}{member}" for member in range(size)]
    for member, one in enumerate(members):
        cpu, request = shapes[member % shape_count]
        annotations = {names.GROUP: dump(asks)}
        replay.create(pod(one, next(numbers), request, cpu, labels={"app": name}, annotations=annotations, **spec))
    words = [key if key == "prefer" else f"{key} {asks[key]}" for key in ("within", "prefer", "rails") if key in asks]
    words += ["apart"] if "affinity" in spec else []
    distinct = len({str(shape) for shape in shapes[:size]})
    return Group(name, tuple(members), asks["min"], distinct, "".join(f", {word}" for word in words))
