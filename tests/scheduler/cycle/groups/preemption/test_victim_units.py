"""Who goes of groups by annotation: pods on their own and members beyond ``min`` first, otherwise one whole group."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Instruction
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, changed, orders, victims


def _group(name: str, least: int, **fields: Any) -> str:
    return json.dumps({"name": name, "min": least, **fields})


def _start(life: Life, name: str, count: int, least: int, *, started: int = 0, priority: int = 0, **asked: Any) -> None:
    """Run so many members of a group, each on a new node that it fills."""
    group, nodes = _group(name, least, **asked), [f"{name}-n{number}" for number in range(count)]
    for node in nodes:
        life.nodes(node, labels={"host": node})
    members = [life.member(f"{name}{number}", group, spec={"priority": priority}) for number in range(count)]
    life.see(*members)
    _run(life, count, started)


def _run(life: Life, count: int, started: int = 0) -> None:
    found = binds(life.work(15.0))
    assert len(found) == count
    status = {"startTime": f"2026-01-01T00:{started:02}:00Z", "phase": "Running"}
    life.see(*(changed(pod, status=status) for pod in life.bound(*found)))


def _single(life: Life, name: str, *, started: int = 0, priority: int = 0, request: Any = ({}, {})) -> None:
    """Run a pod on its own on a new node."""
    life.nodes(f"{name}-n")
    life.see(life.make_pod(name, list(request), spec={"priority": priority}))
    _run(life, 1, started)


def _urgent(life: Life, name: str = "urgent", priority: int = 100, **spec: Any) -> list[Instruction]:
    life.see(life.make_pod(name, [{}, {}], spec={"priority": priority, **spec}))
    return life.work(15.0)


@pytest.mark.parametrize(("group_started", "single_started"), [(1, 10), (10, 1)])
def test_a_pod_on_its_own_goes_before_a_rank_of_a_full_group(
    life: Life, group_started: int, single_started: int
) -> None:
    """Whichever started first, at the same priority."""
    _start(life, "g", 4, 4, started=group_started)
    _single(life, "single", started=single_started)
    assert victims(_urgent(life)) == ["single"]


def test_any_number_of_pods_on_their_own_goes_before_a_group(life: Life) -> None:
    """Three pods on one node, and a group of two."""
    life.nodes("n1", "n2", vfs=3)
    life.see(*(life.member(f"g{number}", _group("g", 2), request=[{}] * 3) for number in range(2)))
    _run(life, 2, 10)
    life.nodes("n3", vfs=3)
    life.see(*(life.make_pod(f"s{number}", [{}]) for number in range(3)))
    _run(life, 3, 1)
    life.see(life.make_pod("urgent", [{}] * 3, spec={"priority": 100}))
    assert victims(life.work(15.0)) == ["s0", "s1", "s2"]


def test_a_group_of_lower_priority_goes_before_a_pod_on_its_own(life: Life) -> None:
    _start(life, "g", 2, 2)
    _single(life, "single", priority=5)
    assert victims(_urgent(life)) == ["g0", "g1"]


def test_the_smallest_group_goes_if_there_are_only_groups(life: Life) -> None:
    """All of its members go, from all of their nodes."""
    _start(life, "large", 3, 3, started=10)
    _start(life, "small", 2, 2, started=1)
    assert victims(_urgent(life)) == ["small0", "small1"]


def test_a_group_is_as_important_as_its_most_important_member(life: Life) -> None:
    """One rank is less important than the pod that comes; the group stays."""
    life.nodes("n1", "n2")
    text = _group("g", 2)
    life.see(life.member("g0", text), life.member("g1", text, spec={"priority": 100}))
    _run(life, 2)
    assert victims(_urgent(life)) == []


def test_members_beyond_min_go_one_by_one(life: Life) -> None:
    """Two of them, as pods on their own do: those that started last first. After that the whole group goes."""
    _start(life, "g", 4, 4)
    life.nodes("n5", "n6")
    life.see(*(life.member(f"late{number}", _group("g", 4)) for number in range(2)))
    _run(life, 2, 10)
    first = _urgent(life, "u1")
    assert len(victims(first)) == 1
    # The order is not carried out yet, and counts.
    second = _urgent(life, "u2")
    assert len(victims(second)) == 1
    assert sorted(victims(first) + victims(second)) == ["late0", "late1"]
    assert victims(_urgent(life, "u3")) == ["g0", "g1", "g2", "g3"]


def test_any_member_may_be_the_one_that_a_group_can_spare(life: Life) -> None:
    """A pod that may run on one node only takes the member there."""
    _start(life, "g", 3, 2)
    assert len(victims(_urgent(life, nodeSelector={"host": "g-n1"}))) == 1


def test_a_node_with_more_members_than_can_be_spared_loses_all(life: Life) -> None:
    """One of three can be spared, and the pod that comes needs the room of two."""
    life.nodes("n1")
    life.nodes("n2", vfs=1)
    life.see(*(life.member(f"g{number}", _group("g", 2), request=[{}]) for number in range(3)))
    _run(life, 3)
    assert len(victims(_urgent(life))) == 3


def test_a_refused_order_gives_back_what_can_be_spared(life: Life) -> None:
    _start(life, "g", 3, 2)
    (order,) = orders(_urgent(life, "u1"))
    life.machine.finished(order, DeleteVictimsResult((), "no"), life.now)
    life.gone(order.pod)
    assert len(victims(_urgent(life, "u2"))) == 1


def test_what_is_left_of_a_group_goes_together(life: Life) -> None:
    """A member is lost: fewer than min are left, and a pod on its own still goes before them."""
    _start(life, "g", 3, 3)
    lost = next(one for one in life.machine.cache.assigned_pods() if one.pod == "default/g0")
    life.remove_node(lost.node)
    life.gone(life.make_pod("g0", metadata={"uid": lost.uid}))
    _single(life, "single")
    assert victims(_urgent(life, "u1")) == ["single"]
    assert victims(_urgent(life, "u2")) == ["g1", "g2"]


def test_members_go_one_by_one_where_the_annotation_says_so(life: Life) -> None:
    _start(life, "g", 3, 3, disruption="pod")
    assert len(victims(_urgent(life))) == 1


def test_members_of_which_one_does_not_say_so_go_together(life: Life) -> None:
    """Its owner has changed the others when they had nodes."""
    life.nodes("n1", "n2")
    pods = [life.member(f"g{number}", _group("g", 2)) for number in range(2)]
    life.see(*pods)
    found = binds(life.work())
    first, _ = life.bound(*found)
    life.see(
        changed(
            first,
            metadata={"annotations": {**first.annotations, "mooring.dev/group": _group("g", 2, disruption="pod")}},
        )
    )
    assert len(victims(_urgent(life))) == 2


def test_members_of_a_pod_group_go_one_by_one_beside_a_full_group(life: Life) -> None:
    """It keeps its own field and default."""
    _start(life, "g", 2, 2, started=10)
    life.pod_group("pg", schedulingPolicy={"gang": {"minCount": 2}})
    life.nodes("n1", "n2")
    spec = {"schedulingGroup": {"podGroupName": "pg"}}
    life.see(*(life.member(f"pg{number}", "", spec=spec) for number in range(2)))
    _run(life, 2, 1)
    assert [name[:2] for name in victims(_urgent(life))] == ["pg"]


def test_a_group_sends_pods_on_their_own_and_spare_members_away_first(life: Life) -> None:
    """It needs three nodes: one has a pod on its own, one a member that its group can spare, and then a group goes."""
    _start(life, "full", 2, 2, started=10)
    _single(life, "single")
    _start(life, "elastic", 3, 2)
    text = _group("big", 2)
    life.see(*(life.member(f"big{number}", text, spec={"priority": 10}) for number in range(2)))
    found = victims(life.work(15.0))
    assert [name for name in found if not name.startswith("elastic")] == ["single"]
    assert len(found) == 2


def test_a_group_takes_no_more_spare_members_than_there_are(life: Life) -> None:
    """Two are needed and one can be spared: the whole group goes, the first victim too."""
    _start(life, "elastic", 3, 2)
    text = _group("big", 2)
    life.see(*(life.member(f"big{number}", text, spec={"priority": 10}) for number in range(2)))
    assert victims(life.work(15.0)) == ["elastic0", "elastic1", "elastic2"]


class _Cluster:
    """A small cluster of nodes with two VFs, all of them taken; ``least`` and ``kind`` are by group."""

    def __init__(self, life: Life, random: Random) -> None:
        self.life, self.random = life, random
        self.least: dict[str, int] = {}
        self.kind: dict[str, str] = {}
        self.names = map(str, itertools.count())

    def fill(self) -> None:
        self.life.nodes(*(f"n{number}" for number in range(self.random.randint(4, 8))))
        for _ in range(12):
            for order in orders(self._come(self.random.choice((0, 0, 3)), self.random.choice((1, 1, 2, 3, 4)))):
                self._carry_out(order)
        self.life.bound(*binds(self.life.work(15.0)))

    def _come(self, priority: int, count: int) -> list[Instruction]:
        name, size = f"g{next(self.names)}-", self.random.choice((1, 2, 2))
        self.least[name] = least = max(count - self.random.choice((0, 0, 1)), 1)
        self.kind[name] = kind = self.random.choice(("", "", "", "group", "pod"))
        group = "" if count == 1 else _group(name[:-1], least, **({"disruption": kind} if kind else {}))
        spec = {"priority": priority}
        self.life.see(*(self.life.member(f"{name}{k}", group, request=[{}] * size, spec=spec) for k in range(count)))
        found = self.life.work(15.0)
        self.life.bound(*binds(found))
        return found

    def strike(self) -> Iterator[DeleteVictims]:
        """Let more important pods and groups come; some orders are carried out at once, some later."""
        open_orders = list[DeleteVictims]()
        for step in range(6):
            for order in orders(self._come(10 + step, self.random.choice((1, 1, 2, 3)))):
                yield order
                open_orders.append(order)
            if self.random.random() < 0.5:
                for order in open_orders:
                    self._carry_out(order)
                open_orders.clear()
                self.life.bound(*binds(self.life.work(15.0)))

    def _carry_out(self, order: DeleteVictims) -> None:
        self.life.machine.finished(order, DeleteVictimsResult(order.victims), self.life.now)
        for victim in order.victims:
            self.life.gone(self.life.make_pod(victim.pod.partition("/")[2], metadata={"uid": victim.uid}))

    def staying(self) -> Counter[str]:
        """Count the pods of each group that stay."""
        cache, removals = self.life.machine.cache, self.life.machine.state.removals
        names = (one.pod.partition("/")[2] for one in cache.assigned_pods() if one.uid not in removals)
        return Counter(name.rpartition("-")[0] + "-" for name in names)


@pytest.mark.parametrize("seed", range(40))
def test_no_sequence_of_preemptions_leaves_half_a_group(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod, seed: int
) -> None:
    """After each order a group has none left, or as many as it needs, unless it says that its pods go one by one."""
    cluster = _Cluster(Life(Machine("mooring", portion=1), make_node, make_pf, make_pod), Random(seed))
    cluster.fill()
    for order in cluster.strike():
        halves = {
            name: count
            for name, count in cluster.staying().items()
            if count < cluster.least[name] and cluster.kind[name] != "pod"
        }
        assert not halves, (halves, [victim.pod for victim in order.victims])


@pytest.mark.parametrize("seed", range(40))
def test_no_full_group_goes_while_something_cheaper_of_equal_priority_is_there(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod, seed: int
) -> None:
    """By trying for a pod all sets of pods that may go one by one, node by node."""
    life, random = Life(Machine("mooring", portion=1), make_node, make_pf, make_pod), Random(f"cheaper {seed}")
    cluster = _Cluster(life, random)
    cluster.fill()
    order = next(iter(orders(_urgent(life))), None)
    if order is None:
        return
    gone, staying = [pod.pod.partition("/")[2] for pod in order.victims], cluster.staying()
    whole = {name for one in gone if not staying[name := one.rpartition("-")[0] + "-"] and cluster.least[name] > 1}
    highest = max(pod.priority for pod in order.victims)
    if all(cluster.kind[name] == "pod" for name in whole):
        return
    before = staying + Counter(one.rpartition("-")[0] + "-" for one in gone)
    for node in life.machine.cache.node_names():
        here = [one for one in life.machine.cache.assigned_pods_on(node) if one.priority <= highest]
        assert not any(
            _frees(chosen, life.machine, node) and _leaves_enough(chosen, before, cluster)
            for count in range(1, len(here) + 1)
            for chosen in itertools.combinations(here, count)
        ), (node, gone)


def _frees(chosen: Sequence[AssignedPod], machine: Machine, node: str) -> bool:
    """Return whether two VFs are free without some pods."""
    others = [one for one in machine.cache.assigned_pods_on(node) if one not in chosen]
    return sum(len(one.assignment.vfs) for one in others if one.assignment is not None) == 0


def _leaves_enough(chosen: Sequence[AssignedPod], before: Counter[str], cluster: _Cluster) -> bool:
    gone = Counter(one.pod.partition("/")[2].rpartition("-")[0] + "-" for one in chosen)
    return all(
        cluster.kind[name] == "pod" or cluster.least[name] == 1 or before[name] - count >= cluster.least[name]
        for name, count in gone.items()
    )
