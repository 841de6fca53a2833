"""Beyond `min` as many equal members are placed as fit: against brute force on small clusters."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import pytest

from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from scheduler.cycle.instructions import Instruction
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, binds

_NETWORKS = ("rail1", "rail2", "rail3")
# For each node the VFs on each of its networks; for each member how many interfaces it has.
Nodes = Sequence[dict[str, int]]
Members = Sequence[int]


def _most(nodes: Nodes, members: Members, rails: str) -> int:
    """Return how many members fit at the most, by trying every node for every member."""
    return max(_on(nodes, wants) for wants in _wants(members, rails))


def _wants(members: Members, rails: str) -> Iterator[list[tuple[str | int, ...]]]:
    """Yield what the members want for each choice there is: networks, or their numbers on the node."""
    if rails == "index":
        yield [tuple(range(count)) for count in members]
        return
    for chosen in itertools.product(_NETWORKS, repeat=max(members)):
        yield [chosen[:count] for count in members]


def _on(nodes: Nodes, wants: Sequence[tuple[str | int, ...]]) -> int:
    if not wants:
        return 0
    best = _on(nodes, wants[1:])
    for number, node in enumerate(nodes):
        names = sorted(node)
        there = Counter(one if isinstance(one, str) else names[one] if one < len(names) else "" for one in wants[0])
        if all(node.get(network, 0) >= uses for network, uses in there.items()):
            left = {network: vfs - there[network] for network, vfs in node.items()}
            best = max(best, 1 + _on([*nodes[:number], left, *nodes[number + 1 :]], wants[1:]))
    return best


def _some_networks(random: Random) -> dict[str, int]:
    return {network: random.randint(0, 3) for network in _NETWORKS if random.random() < 0.8}


def _bound(life: Life, nodes: Nodes, members: Members, rails: str, least: int) -> int:
    _show(life, dict(enumerate(nodes)))
    _see(life, members, rails, least)
    return len(binds(life.work()))


def _show(life: Life, nodes: Mapping[int, dict[str, int]]) -> None:
    for number, node in nodes.items():
        pfs: tuple[Pf, ...] = tuple(
            life.make_pf(index, vfs, network=network) for index, (network, vfs) in enumerate(node.items())
        )
        life.machine.nodes(Changed(Identity(f"n{number}"), life.make_node(f"n{number}", pfs)), life.now)


def _steps(life: Life, count: int) -> list[Instruction]:
    return [one for _ in range(count) for one in life.machine.step(life.now) or ()]


def _see(life: Life, members: Members, rails: str, least: int) -> None:
    group = json.dumps({"name": "train", "min": least, "rails": rails})
    life.see(*(life.member(f"m{number}", group, request=[{}] * count) for number, count in enumerate(members)))


@pytest.mark.parametrize("rails", ["same", "index"])
@pytest.mark.parametrize("kind", ["equal", "unequal"])
@pytest.mark.parametrize("seed", range(60))
def test_as_many_members_as_fit_are_placed(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod, rails: str, kind: str, seed: int
) -> None:
    random = Random(seed)
    nodes = [_some_networks(random) for _ in range(random.randint(2, 3))]
    interfaces = random.randint(1, 2)
    members = [interfaces if kind == "equal" else random.randint(1, 3) for _ in range(random.randint(3, 5))]
    most = _most(nodes, members, rails)
    if not most:
        return
    least = random.randint(1, most)
    bound = _bound(Life(Machine("mooring"), make_node, make_pf, make_pod), nodes, members, rails, least)
    # No order of unequal members may place as many.
    assert bound in ((most,) if kind == "equal" else (0, *range(least, most + 1))), (nodes, members, least)


@pytest.mark.parametrize("seed", range(40))
def test_nodes_may_change_while_more_members_are_tried(life: Life, seed: int) -> None:
    """At least as many as are needed are placed, or none."""
    random = Random(seed)
    nodes = dict(enumerate(_some_networks(random) for _ in range(random.randint(2, 4))))
    members, rails = [random.randint(1, 3) for _ in range(random.randint(3, 5))], random.choice(["same", "index"])
    least = random.randint(1, len(members) - 1)
    life.machine.group_scheduling.portion = random.choice([1, 1, 2, 3])
    _show(life, nodes)
    _see(life, members, rails, least)
    found = _steps(life, random.randint(1, 40))
    if not binds(found):
        changed = random.choice(list(nodes))
        if random.random() < 0.5:
            life.remove_node(f"n{changed}")
            del nodes[changed]
        else:
            nodes[changed] = _some_networks(random)
            _show(life, {changed: nodes[changed]})
        for _ in range(3):
            found += life.work(30.0)
    most = _most(list(nodes.values()), members, rails)
    assert len(binds(found)) in (0, *range(least, most + 1)), (nodes, members, least)


def test_steps_may_end_while_more_members_are_tried(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot._STEPS", 1)
    random, life = Random(1), Life(Machine("mooring"), make_node, make_pf, make_pod)
    for number in range(32):
        pfs = tuple(make_pf(k, 12, mbps=400_000, offer_mbps=random.randint(399_990, 400_000)) for k in range(12))
        life.machine.nodes(Changed(Identity(f"n{number}"), life.make_node(f"n{number}", pfs)), life.now)
    # As much as the 12 PFs have, in rates that no search places.
    drawn = [random.randint(60_000, 140_000) for _ in range(48)]
    rates = [one * 12 * 399_985 // sum(drawn) for one in drawn]
    group = json.dumps({"name": "train", "min": 2})
    easy = [life.member(name, group, request=[{}]) for name in ("m0", "m1")]
    life.see(*easy, life.member("m2", group, request=[{"min_tx_rate": rate} for rate in rates]))
    assert len(binds(life.work())) == 2


def test_attempts_beyond_min_do_not_count_as_changes_of_nodes(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    # Each choice of networks ends with a turn: it places 15, and the 16th fits nowhere.
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    for number in range(15):
        pfs = tuple(life.make_pf(k, 16, network=f"rail{k}") for k in range(8))
        node = life.make_node(f"n{number}", pfs, allocatable={"cpu": "1"})
        life.machine.nodes(Changed(Identity(f"n{number}"), node), life.now)
    group = json.dumps({"name": "train", "min": 10, "rails": "same"})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    life.see(*(life.member(f"m{number}", group, request=[{}, {}], spec=spec) for number in range(20)))
    assert len(binds(life.work())) == 15
