"""Members with rules among them: the first place that is found for one may leave none for the others."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from mooring import names
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds

_LABELS = {"job": "train"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MakeLife = Callable[[], Life]


class _Place(NamedTuple):
    """A node's labels, and how many members it has cpu for."""

    rack: str
    row: str
    holds: int


@pytest.fixture
def make_life(life: Life) -> MakeLife:
    return lambda: Life(Machine("mooring"), life.make_node, life.make_pf, life.make_pod)


def _rule(key: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": _LABELS}, "topologyKey": key}


def _placed(life: Life, places: Sequence[_Place], count: int, **spec: Any) -> int:
    """Show a group of equal members that are needed all; return how many of them are placed."""
    for number, place in enumerate(places):
        name = f"n{number}"
        labels = {"rack": place.rack, "row": place.row, "kubernetes.io/hostname": name}
        life.nodes(name, labels=labels, allocatable={"cpu": str(place.holds)})
    spec["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    group = msgspec.json.encode({"name": "train", "min": count}).decode()
    for _ in range(count):
        life.see(life.make_pod(annotations={names.GROUP: group}, spec=spec, metadata={"labels": _LABELS}))
    found = binds(life.work())
    life.machine.check()
    return len(found)


@pytest.mark.parametrize("large", ["a", "b"])
@pytest.mark.parametrize("count", [4, 64])
def test_members_that_keep_together_go_where_all_fit(large: str, count: int, make_life: MakeLife) -> None:
    """The node that has the most left, the best one for the first of them, is in a rack that is too small."""
    small = "b" if large == "a" else "a"
    places = (
        [_Place(large, large, 2)] * (count // 2)
        + [_Place(small, small, 2)] * (count // 2 - 2)
        + [_Place(small, small, 3)]
    )
    affinity = {"podAffinity": {_REQUIRED: [_rule("rack")]}}
    assert _placed(make_life(), places, count, affinity=affinity) == count


def test_members_that_keep_with_pods_of_several_racks_are_not_kept_in_one(make_life: MakeLife) -> None:
    """Such pods are in both racks already: each member may be in either."""
    life = make_life()
    life.nodes("n0", labels={"rack": "a"}, allocatable={"cpu": "2"})
    life.nodes("n1", labels={"rack": "b"}, allocatable={"cpu": "2"})
    life.see(*(life.make_pod(node=node, metadata={"labels": _LABELS}) for node in ("n0", "n1")))
    assert _placed(life, [], 4, affinity={"podAffinity": {_REQUIRED: [_rule("rack")]}}) == 4


def _can_be_placed(places: Sequence[_Place], count: int, keys: Sequence[str]) -> bool:
    """Return whether members can be placed one after another, each where no value of a label has two more than another.

    Source: the skew in pkg/scheduler/framework/plugins/podtopologyspread/filtering.go of Kubernetes.
    """
    seen = set[tuple[int, ...]]()

    def may_take(taken: tuple[int, ...], node: int, key: str) -> bool:
        sums = Counter[str]()
        for place, here in zip(places, taken, strict=True):
            sums[getattr(place, key)] += here
        return sums[getattr(places[node], key)] + 1 - min(sums.values()) <= 1

    def reaches(taken: tuple[int, ...]) -> bool:
        if sum(taken) == count:
            return True
        if taken in seen:
            return False
        seen.add(taken)
        return any(
            taken[node] < place.holds
            and all(may_take(taken, node, key) for key in keys)
            and reaches((*taken[:node], taken[node] + 1, *taken[node + 1 :]))
            for node, place in enumerate(places)
        )

    return reaches((0,) * len(places))


@pytest.mark.parametrize("keys", [("rack",), ("rack", "row")])
def test_members_that_spread(keys: Sequence[str], make_life: MakeLife) -> None:
    """They are placed only where some order of places allows it, and with one label wherever one does."""
    possible = 0
    for seed in range(60):
        random = Random(seed)
        places = [
            _Place(random.choice("ab"), random.choice("12"), random.randint(1, 2)) for _ in range(random.randint(2, 5))
        ]
        count = random.randint(2, 4)
        spread = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": _LABELS},
            }
            for key in keys
        ]
        expected = _can_be_placed(places, count, keys)
        possible += expected
        found = _placed(make_life(), places, count, topologySpreadConstraints=spread)
        assert found in ((count,) if len(keys) == 1 else (0, count)) if expected else not found, f"seed {seed}"
    assert 20 < possible < 60, "the cases are too easy or too hard"


def _some_order_places(places: Sequence[_Place], cpus: Sequence[int]) -> bool:
    """Return whether members with so many cpus can be placed in some order, no rack with two more than another one."""
    seen = set[tuple[tuple[int, ...], tuple[int, ...]]]()
    racks = sorted({place.rack for place in places})

    def reaches(left: tuple[int, ...], waiting: tuple[int, ...], counts: tuple[int, ...]) -> bool:
        if not waiting:
            return True
        if (left, waiting) in seen:
            return False
        seen.add((left, waiting))
        for node, cpu in ((node, cpu) for node in range(len(places)) for cpu in set(waiting)):
            rack = racks.index(places[node].rack)
            if left[node] < cpu or counts[rack] > min(counts):
                continue
            rest = list(waiting)
            rest.remove(cpu)
            after = (*counts[:rack], counts[rack] + 1, *counts[rack + 1 :])
            if reaches((*left[:node], left[node] - cpu, *left[node + 1 :]), tuple(rest), after):
                return True
        return False

    return reaches(tuple(place.holds for place in places), tuple(sorted(cpus)), (0,) * len(racks))


def _spread_unequal(life: Life, places: Sequence[_Place], cpus: Sequence[int]) -> int:
    for number, place in enumerate(places):
        life.nodes(f"n{number}", labels={"rack": place.rack}, allocatable={"cpu": str(place.holds)})
    group = msgspec.json.encode({"name": "train", "min": len(cpus)}).decode()
    constraint = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    for cpu in cpus:
        containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
        spread = [constraint | {"labelSelector": {"matchLabels": _LABELS}}]
        spec = {"containers": containers, "topologySpreadConstraints": spread}
        life.see(life.make_pod(annotations={names.GROUP: group}, spec=spec, metadata={"labels": _LABELS}))
    found = binds(life.work())
    life.machine.check()
    return len(found)


def test_unequal_members_that_spread(make_life: MakeLife) -> None:
    """They are placed only where some order allows it; most of these are."""
    possible = missed = 0
    for seed in range(200):
        random = Random(seed)
        places = [_Place(random.choice("ab"), "", random.randint(2, 8)) for _ in range(random.randint(2, 3))]
        cpus = [random.randint(1, 4) for _ in range(random.randint(3, 6))]
        expected = _some_order_places(places, cpus)
        possible += expected
        found = _spread_unequal(make_life(), places, cpus)
        missed += expected and not found
        assert found in (0, len(cpus)) if expected else not found, f"seed {seed}: {places}, {cpus}"
    assert 40 < possible < 160, "the cases are too easy or too hard"
    assert missed < possible / 4


@pytest.mark.parametrize("kinds", sorted(set(permutations(("rank", "rank", "store")))))
def test_members_that_need_another_one_beside_them(kinds: Sequence[str], make_life: MakeLife) -> None:
    """Whatever their order is, and though they are larger: they have nowhere to be before it has."""
    life = make_life()
    for number in range(4):
        life.nodes(f"n{number}", labels={"row": "ab"[number % 2]})
    group = msgspec.json.encode({"name": "train", "min": 3}).decode()
    term = {"labelSelector": {"matchLabels": {"job": "store"}}, "topologyKey": "row"}
    for kind in kinds:
        spec: dict[str, Any] = {"affinity": {"podAffinity": {_REQUIRED: [term]}}} if kind == "rank" else {}
        cpu = {"rank": "2", "store": "1"}[kind]
        spec["containers"] = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        life.see(life.make_pod(annotations={names.GROUP: group}, spec=spec, metadata={"labels": {"job": kind}}))
    assert len(binds(life.work())) == 3


@pytest.mark.parametrize("until", range(1, 12))
@pytest.mark.parametrize("cpus", [("1", "1", "1", "1"), ("1", "1", "2"), ("1", "1", "2", "2")])
def test_members_that_spread_stay_even_where_another_pod_takes_a_place(
    cpus: Sequence[str], until: int, make_life: MakeLife
) -> None:
    """While more are tried than are needed: two on one rack, and none on the other, are more than the skew allows."""
    life = make_life()
    life.machine.group_scheduling.portion = 1
    for number, (rack, cpu) in enumerate(zip("aab", cpus, strict=False)):
        life.nodes(f"n{number}", labels={"rack": rack}, allocatable={"cpu": cpu})
    group = msgspec.json.encode({"name": "train", "min": 1}).decode()
    selector = {"labelSelector": {"matchLabels": _LABELS}}
    spread = [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"} | selector]
    for cpu in cpus:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        spec = {"containers": containers, "topologySpreadConstraints": spread}
        life.see(life.make_pod(annotations={names.GROUP: group}, spec=spec, metadata={"labels": _LABELS}))
    found = [one for _ in range(until) for one in life.machine.step(life.now) or ()]
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    life.see(life.make_pod(node="n2", spec={"containers": containers, "nodeName": "n2"}))
    counts = Counter(one.assigned.node == "n2" for one in binds(found + life.work()))
    assert 0 < counts[False] <= counts[True] + 1
