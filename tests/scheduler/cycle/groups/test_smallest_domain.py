"""The smallest domain that holds the whole group is taken, by plain sums, in members as they are mixed."""

import json
from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest

from mooring.kube.events import Changed, Identity
from tests.scheduler.cycle.groups.test_oracle import Host, Member
from tests.scheduler.group_life import Life, binds

_RACK = "rack"


def _is_smallest(taken: str, holds: dict[str, int], count: int) -> bool:
    """Return whether the rack that is taken holds the whole group, and none that does holds less."""
    enough = {rack: most for rack, most in holds.items() if most >= count}
    return holds[taken] == min(enough.values()) if taken in enough else not enough and not taken


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
