"""A place for a whole group is found whenever one exists: against brute force on small clusters."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.cycle.groups.scene import Scene, can_pack, cpus, nodes_of_members
from tests.scheduler.group_life import binds

_OFFER = 90_000


class Member(NamedTuple):
    """What one member wants: cpus, a VF of each rate, and a node of this rack, if one is named."""

    cpu: int
    rates: tuple[int, ...]
    rack: str = ""


class Host(NamedTuple):
    """What one node has: cpus, and how many VFs each of its PFs has."""

    cpu: int
    vfs: tuple[int, ...]
    rack: str = "r0"


Case = tuple[list[Host], list[Member]]
Make = Callable[[Random], Case]


def can_hold(host: Host, members: Sequence[Member]) -> bool:
    """Return whether a node has room for these members, by trying every PF for every VF."""
    if sum(one.cpu for one in members) > host.cpu or {one.rack for one in members} - {"", host.rack}:
        return False
    rates = sorted((rate for one in members for rate in one.rates), reverse=True)
    return can_pack(rates, [(vfs, _OFFER) for vfs in host.vfs])


def exists(hosts: Sequence[Host], members: Sequence[Member], least: int) -> bool:
    """Return whether at least so many of the members can be placed, by trying every node for every member."""
    nowhere = len(hosts)
    for where in itertools.product(range(nowhere + 1), repeat=len(members)):
        if where.count(nowhere) > len(members) - least:
            continue
        on = [[one for one, at in zip(members, where, strict=True) if at == k] for k in range(nowhere)]
        if all(can_hold(host, those) for host, those in zip(hosts, on, strict=True)):
            return True
    return False


def _fill(life: Scene, hosts: Sequence[Host], members: Sequence[Member], least: int) -> None:
    """Show nodes and a group."""
    for number, host in enumerate(hosts):
        _show(life, number, host)
    for one in members:
        life.spec = cpus(one.cpu) | ({"nodeSelector": {"rack": one.rack}} if one.rack else {})
        life.ask([{"min_tx_rate": rate} if rate else {} for rate in one.rates], min=least)


def _show(life: Scene, number: int, host: Host) -> None:
    life.build(f"n{number}/{host.rack}:{'+'.join(map(str, host.vfs))}@{host.cpu}")


def _fit(hosts: Sequence[Host], members: Sequence[Member], bound: Mapping[int, str]) -> bool:
    """Return whether nodes have room for the members that are bound there."""
    return all(
        can_hold(host, [members[rank] for rank, node in bound.items() if node == f"n{number}-0"])
        for number, host in enumerate(hosts)
    )


def cut(random: Random, total: int, parts: int, unit: int) -> list[int]:
    """Return that many positive multiples of ``unit`` with this sum."""
    cuts = sorted(random.sample(range(1, total // unit), parts - 1))
    return [(high - low) * unit for low, high in itertools.pairwise([0, *cuts, total // unit])]


def _planted(random: Random) -> Case:
    """Return nodes, and members that fill them to the last VF, Mb/s and cpu."""
    hosts, members = [], []
    for _ in range(4):
        vfs = tuple(random.randint(1, 3) for _ in range(2))
        rates = [rate for count in vfs for rate in cut(random, _OFFER, count, 10_000)]
        random.shuffle(rates)
        count = random.randint(1, min(3, len(rates)))
        ends = [0, *sorted(random.sample(range(1, len(rates)), count - 1)), len(rates)]
        hosts.append(Host(8, vfs))
        for cpu, (low, high) in zip(cut(random, 8, count, 1), itertools.pairwise(ends), strict=True):
            members.append(Member(cpu, tuple(rates[low:high])))
    random.shuffle(members)
    return hosts, members


def _roomy(random: Random) -> Case:
    return [Host(8, (8, 8))] * 3, [Member(1, (10_000,) * random.randint(0, 2)) for _ in range(9)]


def _unequal(random: Random) -> Case:
    """Return nodes with less room than is wanted, or as much."""
    hosts = [Host(random.choice((4, 8)), (random.randint(1, 3),) * random.randint(1, 2)) for _ in range(2)]
    rates = (0, 20_000, 30_000, 40_000, 50_000, 60_000)
    members = [
        Member(random.randint(1, 3), tuple(random.choices(rates, k=random.randint(0, 3))))
        for _ in range(random.randint(2, 6))
    ]
    return hosts, members


def _alike(random: Random) -> Case:
    """Return nodes with as many VFs and Mb/s, on other PFs, and members of which some may go to some only."""
    hosts = [Host(6, random.choice(((1, 3), (2, 2), (3, 1), (4, 0))), f"r{k % 2}") for k in range(3)]
    rates, racks = (30_000, 40_000, 50_000, 60_000), ("", "", "r0", "r1")
    members = [
        Member(random.randint(1, 3), tuple(random.choices(rates, k=random.randint(1, 3))), random.choice(racks))
        for _ in range(random.randint(4, 7))
    ]
    return hosts, members


def _equal(random: Random) -> Case:
    """Return members with rates that a PF takes in any order."""
    hosts, _ = _unequal(random)
    rates = (random.choice((0, 30_000, 45_000)),) * random.randint(1, 2)
    return hosts, [Member(random.choice((1, 2, 3)), rates)] * random.randint(2, 6)


@pytest.mark.parametrize("make", [_unequal, _alike, _equal])
@pytest.mark.parametrize("seed", range(70))
def test_a_group_is_placed_only_where_it_has_room(life: Scene, make: Make, seed: int) -> None:
    """Or with members to spare; one of equal members is placed exactly if brute force places it."""
    random = Random(seed)
    hosts, members = make(random)
    least = random.randint(max(len(members) - 2, 1), len(members))
    _fill(life, hosts, members, least)
    bound = nodes_of_members(life.work())
    assert len(bound) in (0, *range(least, len(members) + 1))
    assert _fit(hosts, members, bound)
    assert make != _equal or bool(bound) == exists(hosts, members, least)


@pytest.mark.parametrize(("make", "may_wait"), [(_roomy, False), (_planted, True)])
@pytest.mark.parametrize("seed", range(35))
def test_nobody_or_all_are_placed_though_nodes_change_and_others_are_decided_about(
    life: Scene, make: Make, seed: int, *, may_wait: bool
) -> None:
    """Once nothing changes any more all are, unless they fill the nodes to the last, which few orders do."""
    random = Random(3000 + seed)
    hosts, members = make(random)
    life = life.successor(Machine("mooring", portion=random.choice((1, 1, 3, 8))))
    _fill(life, hosts, members, len(members))
    bound, event_count, quiet = dict[int, str](), 0, 0
    while quiet < 2:
        made = life.machine.step(life.now)
        life.machine.check()
        found = nodes_of_members(made or ())
        assert len(found) in (0, len(members))
        bound |= found
        life.bound(*binds(made or ()))
        if event_count < 40 and random.random() < 0.25:
            event_count += 1
            number = random.randrange(len(hosts))
            _show(life, number, hosts[number]._replace(rack=f"r{event_count}"))
            life.see(life.make_pod())
        quiet = quiet + 1 if made is None else 0
        life.now += 0.1 if made is not None else 20.0
    assert len(bound) in ((0, len(members)) if may_wait else (len(members),))
    assert _fit(hosts, members, bound)
