"""Members with rules among them: the first place that is found for one may leave none for the others."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.cycle.groups.scene import Scene, cpus, places
from tests.scheduler.group_life import beside, binds

_LABELS = {"job": "train"}
# A node's labels by key, and its cpus.
Place = tuple[dict[str, str], int]


def _spread(*keys: str) -> dict[str, Any]:
    selector = {"labelSelector": {"matchLabels": _LABELS}, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key} | selector for key in keys]}


def _count_placed(life: Scene, members: str, spec: dict[str, Any], **group: int) -> int:
    life.spec, life.labels = spec, _LABELS
    life.job(*members.split(), **group)
    return len(binds(life.work()))


@pytest.mark.parametrize(("large", "small"), ["ab", "ba"])
@pytest.mark.parametrize("count", [4, 64])
def test_members_that_keep_together_go_where_all_fit(life: Scene, large: str, small: str, count: int) -> None:
    """The node that has the most left, the best one for the first of them, is in a rack that is too small."""
    life.build(f"{large}@2*{count // 2} {small}@2*{count // 2 - 2} {small}@3")
    assert _count_placed(life, f"{count}:0@1", beside("rack", job="train")) == count


def test_members_that_keep_with_pods_of_several_racks_are_not_kept_in_one(life: Scene) -> None:
    """Such pods are in both racks already: each member may be in either."""
    life.build("a@2 b@2")
    life.see(*(life.make_pod(node=node, metadata={"labels": _LABELS}) for node in ("a-0", "b-0")))
    assert _count_placed(life, "4:0@1", beside("rack", job="train")) == 4


@pytest.mark.parametrize("kinds", sorted(set(permutations(("rank", "rank", "store")))))
def test_members_that_need_another_one_beside_them(life: Scene, kinds: Sequence[str]) -> None:
    """Whatever their order is, and though they are larger: they have nowhere to be before it has."""
    life.build("a*2 b*2", ["row"])
    for kind in kinds:
        life.spec, life.labels = beside("row", job="store") if kind == "rank" else {}, {"job": kind}
        life.job("1:0@2" if kind == "rank" else "1:0@1", min=3)
    assert len(binds(life.work())) == 3


def _some_order_places(nodes: Sequence[Place], members: Sequence[int], keys: Sequence[str]) -> bool:
    """Return whether members with so many cpus can be placed in some order, no value of a label with two more.

    Source: the skew in pkg/scheduler/framework/plugins/podtopologyspread/filtering.go of Kubernetes.
    """

    def may_take(counts: Sequence[int], node: int, key: str) -> bool:
        sums = Counter[str]()
        for (labels, _), count in zip(nodes, counts, strict=True):
            sums[labels[key]] += count
        return sums[nodes[node][0][key]] + 1 - min(sums.values()) <= 1

    @cache
    def reaches(left: tuple[int, ...], counts: tuple[int, ...], waiting: tuple[int, ...]) -> bool:
        for node, cpu in product(range(len(nodes)), set(waiting)):
            if left[node] < cpu or not all(may_take(counts, node, key) for key in keys):
                continue
            index, after = waiting.index(cpu), node + 1
            if reaches(
                (*left[:node], left[node] - cpu, *left[after:]),
                (*counts[:node], counts[node] + 1, *counts[after:]),
                (*waiting[:index], *waiting[index + 1 :]),
            ):
                return True
        return not waiting

    return reaches(tuple(cpu for _, cpu in nodes), (0,) * len(nodes), tuple(sorted(members)))


@pytest.mark.parametrize(
    ("keys", "is_equal", "case_count", "most_missed"),
    [
        pytest.param(["rack"], True, 60, 0, id="equal ones: wherever some order allows it"),
        pytest.param(["rack", "row"], True, 60, 1, id="by two labels"),
        pytest.param(["rack"], False, 200, 1 / 4, id="unequal ones: mostly"),
    ],
)
def test_members_that_spread(
    life: Scene, keys: Sequence[str], case_count: int, most_missed: float, *, is_equal: bool
) -> None:
    """They are placed only where some order of places allows it."""
    possible = missed = 0
    for seed in range(case_count):
        random = Random(seed)
        node_count, some_cpus = (random.randint(2, 5), (1, 2)) if is_equal else (random.randint(2, 3), (2, 8))
        nodes = [
            ({"rack": random.choice("ab"), "row": random.choice("12")}, random.randint(*some_cpus))
            for _ in range(node_count)
        ]
        members = [1] * random.randint(2, 4) if is_equal else random.choices((1, 2, 3, 4), k=random.randint(3, 6))
        scene = life.successor(Machine("mooring"))
        for number, (labels, cpu) in enumerate(nodes):
            scene.build(f"n{number}/{labels['rack']}.{labels['row']}@{cpu}", ("rack", "row"))
        count = _count_placed(scene, " ".join(f"1:0@{cpu}" for cpu in members), _spread(*keys))
        expected = _some_order_places(nodes, members, keys)
        possible += expected
        missed += expected and not count
        assert count in ((0, len(members)) if expected else (0,)), f"seed {seed}: {nodes}, {members}"
    assert case_count / 4 < possible < case_count, "the cases are too easy or too hard"
    assert missed <= most_missed * possible


@pytest.mark.parametrize("until", range(1, 12))
@pytest.mark.parametrize("members", [(1, 1, 1, 1), (1, 1, 2), (1, 1, 2, 2)])
def test_members_that_spread_stay_even_where_another_pod_takes_a_place(
    life: Scene, members: Sequence[int], until: int
) -> None:
    """While more are tried than are needed: two on one rack, and none on the other, are more than the skew allows."""
    life.machine.group_scheduling.portion = 1
    life.build("a@{} a@{} b@{}".format(*members))
    life.spec, life.labels = _spread("rack"), _LABELS
    life.job(*(f"1:0@{cpu}" for cpu in members), min=1)
    found = life.steps(until)
    life.see(life.make_pod(node="b-0", spec=cpus(1) | {"nodeName": "b-0"}))
    counts = Counter(node == "b-0" for node in places(found + life.work()).values())
    assert 0 < counts[False] <= counts[True] + 1
