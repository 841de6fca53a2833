"""Beyond `min` as many equal members are placed as fit: against brute force on small clusters."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from random import Random

import pytest

from tests.scheduler.cycle.groups.scene import Scene, cpus
from tests.scheduler.group_life import binds

_NETWORKS = ("rail1", "rail2", "rail3")
# For each node the VFs on each of its networks; for each member how many interfaces it has.
Nodes = Sequence[Mapping[str, int]]
Members = Sequence[int]


def _most(nodes: Nodes, members: Members, rails: str) -> int:
    """Return how many members fit at the most, by trying every node for every member, on each choice of networks."""
    choices: Iterable[tuple[str, ...]] = product(_NETWORKS, repeat=max(members))
    if rails == "index":
        # The number of a network on its node is its name.
        nodes = [{str(k): node[network] for k, network in enumerate(sorted(node))} for node in nodes]
        choices = [("0", "1", "2")]
    return max(_on(nodes, [Counter(choice[:count]) for count in members]) for choice in choices)


def _on(nodes: Nodes, wants: Sequence[Counter[str]]) -> int:
    if not wants:
        return 0
    best, want = _on(nodes, wants[1:]), wants[0]
    for number, node in enumerate(nodes):
        if all(node.get(network, 0) >= uses for network, uses in want.items()):
            left = {network: vfs - want[network] for network, vfs in node.items()}
            best = max(best, 1 + _on([*nodes[:number], left, *nodes[number + 1 :]], wants[1:]))
    return best


def _some_networks(random: Random) -> dict[str, int]:
    return {network: random.randint(0, 3) for network in _NETWORKS if random.random() < 0.8}


def _show(life: Scene, number: int, node: Mapping[str, int]) -> None:
    life.wire(" ".join((f"n{number}", *(f"{network}:{vfs}" for network, vfs in node.items()))))


def _see(life: Scene, nodes: Nodes, members: Members, rails: str, least: int) -> None:
    for number, node in enumerate(nodes):
        _show(life, number, node)
    life.ask(*([{}] * count for count in members), rails=rails, min=least)


@pytest.mark.parametrize("rails", ["same", "index"])
@pytest.mark.parametrize("kind", ["equal", "unequal"])
@pytest.mark.parametrize("seed", range(60))
def test_as_many_members_as_fit_are_placed(life: Scene, rails: str, kind: str, seed: int) -> None:
    random = Random(seed)
    nodes = [_some_networks(random) for _ in range(random.randint(2, 3))]
    interfaces = random.randint(1, 2)
    members = [interfaces if kind == "equal" else random.randint(1, 3) for _ in range(random.randint(3, 5))]
    most = _most(nodes, members, rails)
    least = random.randint(1, max(most, 1))
    _see(life, nodes, members, rails, least)
    # No order of unequal members may place as many.
    expected = (most,) if kind == "equal" else (0, *range(least, most + 1))
    assert len(binds(life.work())) in expected, (nodes, members, least)


def test_networks_on_which_more_members_start_win_whatever_the_vfs_promise(life: Scene) -> None:
    life.wire("n0 rail0:16", allocatable={"cpu": "2"})
    life.wire("n1 rail1:8", allocatable={"cpu": "8"})
    life.spec = cpus(1)
    life.ask(*[[{}]] * 8, rails="same", min=1)
    assert len(binds(life.work())) == 8


def test_many_small_members_start_in_place_of_a_large_one(life: Scene) -> None:
    life.wire("n0 rail0:8")
    life.ask([{}] * 8, *[[{}]] * 8, min=1)
    assert len(binds(life.work())) == 8


@pytest.mark.parametrize("seed", range(40))
def test_nodes_may_change_while_more_members_are_tried(life: Scene, seed: int) -> None:
    """At least as many as are needed are placed, or none."""
    random = Random(seed)
    nodes = [_some_networks(random) for _ in range(random.randint(2, 4))]
    members, rails = [random.randint(1, 3) for _ in range(random.randint(3, 5))], random.choice(["same", "index"])
    least = random.randint(1, len(members) - 1)
    life.machine.group_scheduling.portion = random.choice([1, 1, 2, 3])
    _see(life, nodes, members, rails, least)
    found = life.steps(random.randint(1, 40))
    if not binds(found):
        number = random.randrange(len(nodes))
        if random.random() < 0.5:
            life.remove_node(f"n{number}")
            nodes[number] = {}
        else:
            nodes[number] = _some_networks(random)
            _show(life, number, nodes[number])
        for _ in range(3):
            found += life.work(30.0)
    most = _most(nodes, members, rails)
    assert len(binds(found)) in (0, *range(least, most + 1)), (nodes, members, least)


def test_steps_may_end_while_more_members_are_tried(life: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.cycle.groups.group_snapshot._STEPS", 1)
    random = Random(1)
    for number in range(32):
        offers = [random.randint(399_990, 400_000) for _ in range(12)]
        pfs = [life.make_pf(k, 12, mbps=400_000, offer_mbps=offer) for k, offer in enumerate(offers)]
        life.put_node(f"n{number}", *pfs)
    # As much as the 12 PFs have, in rates that no search places.
    drawn = [random.randint(60_000, 140_000) for _ in range(48)]
    life.ask([{}], [{}], [{"min_tx_rate": one * 12 * 399_985 // sum(drawn)} for one in drawn], min=2)
    assert len(binds(life.work())) == 2


def test_attempts_beyond_min_do_not_count_as_changes_of_nodes(life: Scene) -> None:
    """Each choice of networks ends with a turn: it places 15, and the 16th fits nowhere."""
    for number in range(15):
        life.wire(f"n{number} " + " ".join(f"rail{k}:16" for k in range(8)), allocatable={"cpu": "1"})
    life.spec = cpus(1)
    life.ask(*[[{}, {}]] * 20, rails="same", min=10)
    assert len(binds(life.work())) == 15
