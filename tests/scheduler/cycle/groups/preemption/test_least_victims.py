"""Who leaves for a group: whole groups, domains, members beyond the least, and large groups.

Hardly anybody leaves who could stay.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, victims

WHOLE: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": "PodGroup"}


@dataclass
class Cluster:
    """Nodes with some VFs, pods below a group's priority or above it, and a group; all by number of VFs.

    ``unit_of`` are the pods that go as a whole with others, and with whom.
    """

    life: Life
    random: Random
    racks: dict[str, str] = field(default_factory=dict)
    room: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lower: set[str] = field(default_factory=set)
    unit_of: dict[str, str] = field(default_factory=dict)
    on: dict[str, str] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    needed: int = 0

    def fill(self, *, racks: int, has_wholes: bool) -> None:
        random = self.random
        for k in range(random.randint(3, 5)):
            name = f"n{k}"
            self.racks[name] = f"r{k % racks}"
            self.room[name] = random.randint(1, 6)
            self.life.nodes(name, vfs=self.room[name], labels={"rack": self.racks[name]})
        for unit in ("low0", "low1") if has_wholes else ():
            self.life.pod_group(unit, **WHOLE, priority=random.choice((0, 3)))
        for k in range(random.randint(3, 9)):
            self._put(f"p{k}", random.choice(("", "low0", "low1")) if has_wholes else "")

    def _put(self, name: str, unit: str) -> None:
        size, priority = self.random.randint(1, 3), 0 if unit else self.random.choice((0, 0, 3, 20))
        spec: dict[str, Any] = {"priority": priority} | ({"schedulingGroup": {"podGroupName": unit}} if unit else {})
        pod = self.life.make_pod(name, [{}] * size, spec=spec)
        self.life.see(pod)
        found = binds(self.life.work(15.0))
        if not found:
            self.life.gone(pod)
            return
        self.life.bound(*found)
        self.sizes[name], self.on[name] = size, found[0].assigned.node
        if priority < 10:
            self.lower.add(name)
        if unit:
            self.unit_of[name] = unit

    def preempt(self, *, is_equal: bool, spare: int, group: str) -> set[str]:
        """Let a group come; return who goes for it."""
        count = self.random.randint(2, 4)
        size = self.random.randint(1, 3)
        self.members = [size if is_equal else self.random.randint(1, 3) for _ in range(count)]
        self.needed = max(count - spare, 1)
        text = f'{{"name":"g","min":{self.needed}{group}}}'
        for k, one in enumerate(self.members):
            self.life.see(self.life.member(f"m{k}", text, request=[{}] * one, spec={"priority": 10}))
        found = self.life.work(15.0)
        return set() if binds(found) else set(victims(found))

    def fits(self, gone: Collection[str], *, is_within: bool) -> bool:
        """Return whether all that is needed of the group fits without some pods, by trying everything."""
        left = dict(self.room)
        for name, node in self.on.items():
            left[node] -= 0 if name in gone else self.sizes[name]
        racks = set(self.racks.values()) if is_within else {""}
        among = ([vfs for node, vfs in left.items() if not rack or self.racks[node] == rack] for rack in racks)
        # If some of them fit, so do the smallest.
        sizes = sorted(sorted(self.members)[: self.needed], reverse=True)
        return any(_pack(sizes, bins) for bins in among)

    def superfluous(self, gone: set[str], *, is_within: bool) -> list[str]:
        """Return who could stay, alone or with all others of a group that goes as a whole."""
        units = {self.unit_of.get(name, name) for name in gone}
        of_unit = {unit: {name for name in gone if self.unit_of.get(name, name) == unit} for unit in units}
        return sorted(unit for unit in units if self.fits(gone - of_unit[unit], is_within=is_within))


def _pack(sizes: list[int], bins: list[int]) -> bool:
    if not sizes:
        return True
    first, *rest = sizes
    return any(_pack(rest, [*bins[:k], left - first, *bins[k + 1 :]]) for k, left in enumerate(bins) if left >= first)


@pytest.mark.parametrize("has_wholes", [False, True])
@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("is_within", [False, True])
@pytest.mark.parametrize("is_equal", [False, True])
def test_hardly_anybody_goes_who_could_stay(
    make_node: MakeNode,
    make_pf: MakePf,
    make_pod: MakePod,
    *,
    is_equal: bool,
    is_within: bool,
    spare: int,
    has_wholes: bool,
) -> None:
    """Of equal members nobody; of 200 groups of members that differ one has a victim too many."""
    could_stay = dict[int, list[str]]()
    for seed in range(25):
        life = Life(Machine("mooring", portion=1), make_node, make_pf, make_pod)
        cluster = Cluster(life, Random(f"{is_equal} {is_within} {spare} {has_wholes} {seed}"))
        cluster.fill(racks=2 if is_within else 1, has_wholes=has_wholes)
        gone = cluster.preempt(is_equal=is_equal, spare=spare, group=',"within":"rack"' if is_within else "")
        life.machine.check()
        assert gone <= cluster.lower
        assert not gone or cluster.fits(gone, is_within=is_within)
        if gone and (found := cluster.superfluous(gone, is_within=is_within)):
            could_stay[seed] = found
    assert len(could_stay) <= (0 if is_equal else 1), could_stay


@pytest.mark.parametrize("kinds", [1, 2])
def test_nobody_goes_for_a_large_group_who_could_stay(life: Life, kinds: int) -> None:
    """All but two members have a node each where one pod leaves; then they go where eight have room."""
    names = [f"n{number}" for number in range(126)]
    life.nodes(*names)
    life.see(*(life.make_pod(f"on-{name}", [{}, {}]) for name in names))
    life.bound(*binds(life.work()))
    life.nodes("large", vfs=16)
    life.see(life.make_pod("on-large", [{}] * 16, spec={"priority": 3}))
    life.bound(*binds(life.work(15.0)))
    roles = ["leader" if number < kinds - 1 else "worker" for number in range(128)]
    life.see(
        *(
            life.member(f"m{k}", '{"name":"g","min":128}', spec={"priority": 10}, metadata={"labels": {"role": role}})
            for k, role in enumerate(roles)
        )
    )
    assert len(victims(life.work(15.0))) == 128 - 8 + 1


def test_a_group_stays_that_no_node_needs_once_another_one_leaves(life: Life) -> None:
    """One node is planned with a group gone; another one then sends a second group away, which makes room on both."""
    cluster = Cluster(life, Random("x3299"))
    cluster.fill(racks=1, has_wholes=True)
    gone = cluster.preempt(is_equal=True, spare=1, group="")
    assert {cluster.unit_of.get(one, "single") for one in gone} == {"low0", "single"}
    assert cluster.superfluous(gone, is_within=False) == []
