"""The smallest domain that holds the whole group is taken, by what it truly holds: against brute force, on racks."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.request import read_request
from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.domain_bounds import CommonNetworks
from tests.scheduler.cycle.groups.test_oracle import Host, Member, can_hold
from tests.scheduler.group_life import Life, binds

_RACK, _LEAF = "rack", "leaf"
_NETWORKS = ("rail1", "rail2", "rail3")
_APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"job": "train"}}, "topologyKey": _LEAF}
        ]
    }
}


@dataclass(frozen=True, slots=True)
class Box:
    """One node: its rack and its leaf, if it has one, and the network of each PF with its number of VFs."""

    rack: str
    pfs: tuple[tuple[str, int], ...]
    leaf: str = ""


def _boxes(random: Random, leaves: Sequence[str] = ("",)) -> list[Box]:
    return [
        Box(
            f"r{rack}",
            tuple((network, random.randint(0, 3)) for network in _NETWORKS if random.random() < 0.8),
            random.choice(leaves),
        )
        for rack in range(random.randint(3, 4))
        for _ in range(random.randint(1, 3))
    ]


def _taken(life: Life, boxes: Sequence[Box], count: int, request: list[Any], spec: Any = None, **asks: str) -> str:
    """Return the rack in which the group is placed; empty if in none."""
    _show(life, boxes)
    bound = _place(life, "train", count, request, spec, **asks)
    return next((boxes[int(one.assigned.node[1:])].rack for one in bound), "")


def _show(life: Life, boxes: Sequence[Box]) -> None:
    for number, box in enumerate(boxes):
        pfs = tuple(life.make_pf(k, vfs, network=network) for k, (network, vfs) in enumerate(box.pfs))
        labels = {_RACK: box.rack} | ({_LEAF: box.leaf} if box.leaf else {})
        life.machine.nodes(Changed(Identity(f"n{number}"), life.make_node(f"n{number}", pfs, labels=labels)), life.now)


def _place(life: Life, name: str, count: int, request: list[Any], spec: Any = None, **asks: str) -> list[Bind]:
    """Let a group be decided about; return the Binds of all of its members, or of none."""
    group = json.dumps({"name": name, "min": count, "within": _RACK, **asks})
    metadata = {"labels": {"job": "train"}}
    members = (
        life.member(f"{name}-{k}", group, request=request, spec=spec or {}, metadata=metadata) for k in range(count)
    )
    life.see(*members)
    bound = binds(life.work())
    assert len(bound) in (0, count)
    return bound


def _is_smallest(taken: str, holds: dict[str, int], count: int) -> bool:
    """Return whether the rack that is taken holds the whole group, and none that does holds less."""
    enough = {rack: most for rack, most in holds.items() if most >= count}
    return holds[taken] == min(enough.values()) if taken in enough else not enough and not taken


def _by_rack(boxes: Sequence[Box]) -> dict[str, list[Box]]:
    return {rack: list(there) for rack, there in itertools.groupby(boxes, key=lambda box: box.rack)}


def _on_common_networks(boxes: Sequence[Box], interfaces: int) -> dict[str, int]:
    """Return how many members with so many interfaces each rack holds."""

    def most(there: Sequence[Box]) -> int:
        return max(
            sum(
                min(dict(box.pfs).get(network, 0) // uses for network, uses in Counter(chosen).items()) for box in there
            )
            for chosen in itertools.combinations_with_replacement(_NETWORKS, interfaces)
        )

    return {rack: most(there) for rack, there in _by_rack(boxes).items()}


@pytest.mark.parametrize("seed", range(100))
def test_of_racks_with_common_networks(life: Life, seed: int) -> None:
    random = Random(seed)
    boxes, interfaces, count = _boxes(random), random.randint(1, 3), random.randint(2, 4)
    holds = _on_common_networks(boxes, interfaces)
    assert _is_smallest(_taken(life, boxes, count, [{}] * interfaces, rails="same"), holds, count), (boxes, count)


def _bound(life: Life, networks: CommonNetworks) -> list[int]:
    """Return the bound of all rows together, and of each by itself."""
    nodes = life.machine.cache.nodes
    request, rows = read_request({names.REQUEST: "[{}, {}]"}), nodes.all_rows()
    bound = networks.of((request,), lambda _: None)
    room = np.full(len(rows), 9)
    return [*bound(rows, np.zeros(len(rows), np.int64), 1, room), *bound(rows, rows, nodes.size, room)]


@pytest.mark.parametrize("seed", range(60))
def test_of_racks_with_common_networks_after_other_groups(life: Life, seed: int) -> None:
    """What is kept between decisions is what the nodes have left by now."""
    random = Random(seed)
    boxes = _boxes(random)
    _show(life, boxes)
    kept = CommonNetworks(life.machine.cache.nodes)
    for number in range(4):
        assert _bound(life, kept) == _bound(life, CommonNetworks(life.machine.cache.nodes))
        holds, count = _on_common_networks(boxes, 2), random.randint(1, 2)
        taken = _place(life, f"train-{number}", count, [{}, {}], rails="same")
        racks = {boxes[int(one.assigned.node[1:])].rack for one in taken}
        assert _is_smallest("".join(racks), holds, count), (boxes, count)
        life.bound(*taken)
        for one in taken:
            at = int(one.assigned.node[1:])
            used = Counter(vf.network for vf in read_assignment(one.annotations[names.ASSIGNMENT]).vfs)
            left = tuple((network, vfs - used[network]) for network, vfs in boxes[at].pfs)
            boxes[at] = replace(boxes[at], pfs=left)


@pytest.mark.parametrize("seed", range(100))
def test_of_racks_whose_members_keep_apart_by_leaves(life: Life, seed: int) -> None:
    """A leaf takes one member; of a node without a leaf the rule says nothing."""
    random = Random(seed)
    boxes, count = _boxes(random, ("leaf1", "leaf2", "leaf3", "")), random.randint(2, 3)

    def most(there: Sequence[Box]) -> int:
        vfs = {box: sum(vfs for _, vfs in box.pfs) for box in there}
        return len({box.leaf for box in there if box.leaf and vfs[box]}) + sum(
            sum(vfs for _, vfs in box.pfs) for box in there if not box.leaf
        )

    holds = {rack: most(there) for rack, there in _by_rack(boxes).items()}
    assert _is_smallest(_taken(life, boxes, count, [{}], spec={"affinity": _APART}), holds, count), (boxes, count)


@pytest.mark.parametrize("seed", range(100))
def test_of_racks_with_unequal_rates_on_one_pf(life: Life, seed: int) -> None:
    """PFs of 90,000 Mb/s hold 60,000 or twice 40,000: their sums say too much."""
    random = Random(seed)
    boxes, count = _boxes(random), random.randint(1, 3)
    rates = random.choice([(60_000, 40_000), (50_000, 30_000, 30_000), (70_000, 30_000), (40_000, 40_000, 20_000)])
    member = Member(0, rates)

    def most(box: Box) -> int:
        host = Host(0, tuple(vfs for _, vfs in box.pfs))
        return max(number for number in range(5) if can_hold(host, [member] * number))

    holds = {rack: sum(map(most, there)) for rack, there in _by_rack(boxes).items()}
    request = [{"min_tx_rate": rate} for rate in rates]
    assert _is_smallest(_taken(life, boxes, count, request), holds, count), (boxes, count)


def _spread_over(leaves: Sequence[Sequence[Box]], elsewhere: bool, skew: int) -> int:
    """Return how many members with one VF these leaves hold, of which no two differ by more than the skew."""
    room = [sum(vfs for box in there for _, vfs in box.pfs) for there in leaves]
    # A leaf elsewhere stays without members.
    most = skew + (0 if elsewhere else min(room, default=0))
    return sum(min(one, most) for one in room)


def _spread(skew: int, **fields: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"job": "train"}}
    constraint = {
        "topologyKey": _LEAF,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    return {"topologySpreadConstraints": [constraint | fields]}


@pytest.mark.parametrize("seed", range(100))
def test_of_racks_whose_members_spread_over_leaves(life: Life, seed: int) -> None:
    """A leaf takes as many as the skew allows beyond the one with the fewest, which may be in another rack."""
    random = Random(seed)
    boxes, count, skew = _boxes(random, ("leaf1", "leaf2")), random.randint(2, 4), random.randint(1, 2)
    all_leaves = {box.leaf for box in boxes}
    holds = {
        rack: _spread_over(
            [[box for box in there if box.leaf == leaf] for leaf in sorted({box.leaf for box in there})],
            {box.leaf for box in there} != all_leaves,
            skew,
        )
        for rack, there in _by_rack(boxes).items()
    }
    taken = _taken(life, boxes, count, [{}], spec=_spread(skew))
    assert _is_smallest(taken, holds, count), (boxes, count, skew)


@pytest.mark.parametrize(("fields", "rack"), [({}, "b"), ({"minDomains": 4}, "a")])
def test_of_racks_with_fewer_leaves_than_members_spread_over(life: Life, fields: Any, rack: str) -> None:
    """Then no leaf may have more than the skew: rack a holds 5, and not 7."""
    boxes = [
        Box(rack, (("rail1", vfs),), f"leaf{number}")
        for rack, there in (("a", (9, 9, 1)), ("b", (2, 2, 2)))
        for number, vfs in enumerate(there)
    ]
    assert _taken(life, boxes, 5, [{}], spec=_spread(2, **fields)) == rack


def _rack_of_hosts(life: Life, rack: str, hosts: Sequence[Host]) -> None:
    for number, host in enumerate(hosts):
        name, pfs = f"{rack}-{number}", tuple(life.make_pf(k, vfs) for k, vfs in enumerate(host.vfs))
        node = life.make_node(name, pfs, labels={_RACK: rack}, allocatable={"cpu": f"{host.cpu}m", "pods": "110"})
        life.machine.nodes(Changed(Identity(name), node), life.now)


def _place_unequal(life: Life, members: Sequence[Member], least: int = 0) -> list[str]:
    """Let a group of these members be decided about, of which at least so many are needed; return the rack of each."""
    group = json.dumps({"name": "train", "min": least or len(members), "within": _RACK})
    for number, one in enumerate(members):
        container = {"name": "c", "resources": {"requests": {"cpu": f"{one.cpu}m"}}}
        request = [{"min_tx_rate": rate} if rate else {} for rate in one.rates] or None
        life.see(life.member(f"train-{number}", group, request=request, spec={"containers": [container]}))
    return [one.assigned.node.partition("-")[0] for one in binds(life.work())]


@pytest.mark.parametrize("turned", [False, True])
def test_of_racks_for_workers_and_their_launcher(life: Life, *, turned: bool) -> None:
    """The launcher fits nearly anywhere: how many of it a rack holds says nothing of the rack."""
    racks = {"a": [Host(8_000, (8,))] * 3 + [Host(64_000, ())] * 4, "b": [Host(8_000, (8,))] * 5}
    for rack in reversed(racks) if turned else racks:
        _rack_of_hosts(life, rack, racks[rack])
    workers = [Member(4_000, (0,) * 8)] * 3
    assert _place_unequal(life, [*workers, Member(100, ())]) == ["a"] * 4


@pytest.mark.parametrize("seed", range(60))
def test_of_racks_for_members_of_two_sizes(life: Life, seed: int) -> None:
    """It is counted how often a rack holds the group, in its members as they are mixed.

    A large member takes a node of 8 VFs; what the large ones leave of a rack takes small ones without a rest.
    """
    random = Random(seed)
    racks = {rack: [Host(64_000, (random.choice((2, 6, 8)),)) for _ in range(random.randint(2, 8))] for rack in "abcd"}
    for rack, hosts in racks.items():
        _rack_of_hosts(life, rack, hosts)
    large, small = random.choice((1, 1, 2)), random.randint(3, 8)
    members = [Member(1, (0,) * 8)] * large + [Member(1, (0,) * 2)] * small

    def often(hosts: Sequence[Host]) -> Fraction:
        vfs = [one.vfs[0] for one in hosts]
        return min(Fraction(vfs.count(8), large), Fraction(sum(vfs), 8 * large + 2 * small))

    holds = {rack: int(often(hosts) * len(members)) for rack, hosts in racks.items()}
    taken = _place_unequal(life, random.sample(members, len(members)))
    assert _is_smallest("".join(set(taken)), holds, len(members)), (racks, members)


@pytest.mark.parametrize("turned", [False, True])
def test_of_racks_by_what_all_members_take_in_sum(life: Life, *, turned: bool) -> None:
    """A rack of 32 VFs holds a member with 8 and six with 2 at most 1.6 times, though each kind oftener."""
    racks = {"a": [Host(8_000, (8,))] * 4, "b": [Host(8_000, (8,))] * 2 + [Host(8_000, (6,))] * 5}
    for rack in reversed(racks) if turned else racks:
        _rack_of_hosts(life, rack, racks[rack])
    assert _place_unequal(life, [Member(1, (0,) * 8), *[Member(1, (0,) * 2)] * 6]) == ["a"] * 7


@pytest.mark.parametrize("turned", [False, True])
def test_of_racks_that_hold_not_all_the_one_that_holds_the_most_is_taken(life: Life, *, turned: bool) -> None:
    """Rack a has no room for the large member and holds the four small ones; rack b holds any two."""
    racks = {"a": [Host(8_000, (6,))] * 2, "b": [Host(2, (8,))]}
    for rack in reversed(racks) if turned else racks:
        _rack_of_hosts(life, rack, racks[rack])
    assert _place_unequal(life, [Member(1, (0,) * 8), *[Member(1, (0,) * 2)] * 4], least=2) == ["a"] * 4


@pytest.mark.parametrize("turned", [False, True])
def test_of_racks_that_hold_not_all_one_with_room_for_many_launchers_holds_but_one(life: Life, *, turned: bool) -> None:
    """Rack a has cpus for ten members, and VFs for one worker; rack b holds four workers."""
    racks = {"a": [Host(1_000, (8,)), *[Host(1_000, ())] * 9], "b": [Host(1_000, (8,))] * 4}
    for rack in reversed(racks) if turned else racks:
        _rack_of_hosts(life, rack, racks[rack])
    assert _place_unequal(life, [Member(1_000, ()), *[Member(1_000, (0,) * 8)] * 4], least=2) == ["b"] * 4
