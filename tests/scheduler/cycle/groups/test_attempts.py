"""What a group is tried on: nothing is left out by what happens meanwhile, by a bound, or by what was tried before."""

from itertools import cycle, islice
from random import Random
from typing import Any

import pytest

from scheduler.cycle.groups import group_cycle, rails
from scheduler.cycle.instructions import Instruction
from scheduler.state.groups import group_scheduling
from tests.scheduler.cycle.groups.scene import Scene, message_of, places
from tests.scheduler.group_life import apart, binds, told, victims


def _apart(life: Scene, count: int, request: object, **group: Any) -> None:
    """Let members come of which no two may share a node, each with an index of its own."""
    life.spec, life.labels, life.ranks = apart("kubernetes.io/hostname", app="g"), {"app": "g"}, Random(1)
    life.ask(*[request] * count, **group)


def _unequal(life: Scene, count: int, **group: Any) -> None:
    """Let members come of which a node could hold more, by any bound, than it does.

    On a PF there is room for two of the small ones, for one of the large ones, and for none of each.
    """
    life.spec = {"priority": 10}
    life.ask(*([{"min_tx_rate": rate}] for rate in islice(cycle((50_000, 50_000, 45_000)), count)), **group)


@pytest.mark.parametrize("steps", range(4))
def test_a_node_may_come_while_racks_are_tried(life: Scene, steps: int) -> None:
    """The zone that holds all of them is tried after the racks, by what its nodes had when the decision began."""
    life.build("r.a:4+4*11 r.b:4+4*11")
    _unequal(life, 30, prefer=["rack"], within="zone")
    found = life.steps(steps)
    life.build("r.c:4+4")
    assert len(binds(found + life.work())) == 30


@pytest.mark.parametrize("gone", ["b-0", "b-5"])
def test_a_rack_is_tried_though_one_of_its_nodes_goes(life: Scene, gone: str) -> None:
    """Also the first one, by which the rack was known."""
    life.build("a:4+4*10 c:4+4*10 b:4+4*17")
    _unequal(life, 30, within="rack")
    found = life.steps(1)
    life.remove_node(gone)
    assert len(binds(found + life.work())) == 30


@pytest.mark.parametrize("spec", [{"taints": [{"key": "k", "effect": "NoSchedule"}]}, {"unschedulable": True}])
@pytest.mark.parametrize("prefer", [[], ["rack"]])
@pytest.mark.parametrize("is_apart", [False, True])
def test_room_outside_the_preferred_domain_wakes_the_group(life: Scene, prefer: Any, spec: Any, is_apart: bool) -> None:
    """As many fit in the whole cluster as in the rack: why the next one does not is told of the cluster."""
    life.build("a:4+4*2" if is_apart else "a:4+4")
    life.wire("b-0 rail0:4 rail0:4", labels={"rack": "b"}, spec=spec)
    if is_apart:
        _apart(life, 3, [{}], prefer=prefer)
    else:
        _unequal(life, 3, prefer=prefer)
    found = life.work()
    assert "topology domain" not in next(iter(told(found).values()))
    assert binds(found + life.work(20.0)) == []
    life.build("b:4+4")
    assert len(binds(life.work(20.0))) == 3


def test_of_members_that_keep_apart_a_node_holds_one(life: Scene) -> None:
    """Otherwise each of the small racks would be tried, on many networks: more than a decision may try."""
    eight = " ".join(f"rail{k}:4" for k in range(8))
    for rack, size in [*((f"r{number}", 49) for number in range(15)), ("large", 50)]:
        for number in range(size):
            life.wire(f"{rack}-{number} {eight}", labels={"rack": rack})
    _apart(life, 50, [{}, {}], within="rack", rails="same")
    assert {node.partition("-")[0] for node in places(life.work()).values()} == {"large"}


@pytest.mark.parametrize("fits", [True, False])
def test_one_decision_tries_all_domains(life: Scene, monkeypatch: pytest.MonkeyPatch, fits: bool) -> None:
    """Each domain has its own limit of attempts. Nobody is preempted if the last domain has room."""
    monkeypatch.setattr(group_cycle, "_MAX_ATTEMPTS", 1)
    life.build(f"a:4+4 b:4+4 c:4+4 z:4+4*{2 if fits else 1}")
    life.place(life.make_pod("low", [{}], spec={"nodeSelector": {"name": "z-0"}}))
    _unequal(life, 3, within="rack")
    found = life.work()
    assert victims(found) == []
    assert [node[0] for node in places(found).values()] == ["z"] * (3 if fits else 0)
    assert fits or "best domain, and not all combinations were tried" in message_of(found)
    life.work(15.0)
    assert life.machine.queue.next_ready() is None


def test_a_decision_that_tries_many_domains_goes_on_after_younger_ones(
    life: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_scheduling, "_MANY_TURNS", 20)
    life.machine.group_scheduling.portion = 1
    for rack in range(60):
        # By their sums each rack holds three members, and rail0 holds two.
        life.wire(f"n{rack} rail0:2 rail1:2", labels={"rack": f"r{rack}"})
    life.ask(*[[{"network": "rail0"}]] * 3, within="rack")
    life.steps(2)
    young = [life.member(f"y{k}", '{"name":"young","min":9}', request=[{"network": "rail1"}]) for k in range(9)]
    life.see(*young)
    life.now += 20.0
    found = list[Instruction]()
    while not told(found):
        found += life.steps(1)
    assert len(binds(found)) == 9


def test_networks_that_others_have_left_for_it_are_tried_first(life: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks are tried in another order when the victims are gone, and not all are."""
    life.wire("n1 " + " ".join(f"rail{k}:2" for k in range(8)))
    for k in range(8):
        spec = {"priority": 0 if k in (5, 6) else 20}
        life.place(life.make_pod(f"low{k}", [{"network": f"rail{k}"}] * 2, spec=spec))
    life.spec = {"priority": 10}
    life.ask([{}, {}], [{}, {}], rails="same")
    assert victims(life.work()) == ["low5", "low6"]
    life.gone(life.running["low5"], life.running["low6"])
    monkeypatch.setattr(rails, "_MOST_CHOICES", 1)
    assert len(binds(life.work(20.0))) == 2


def test_a_node_that_changes_all_the_time_keeps_no_group_waiting(life: Scene) -> None:
    """Each turn a pod comes there and goes; all nodes are needed."""
    life.build("n*400 busy")
    life.job("401")
    found = list[Instruction]()
    for number in range(200):
        found += life.steps(1)
        if found:
            break
        passing = life.make_pod(f"x{number}", node="busy-0")
        life.see(passing)
        life.gone(passing)
    assert len(binds(found)) == 401
