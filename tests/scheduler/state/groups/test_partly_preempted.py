"""A preemption of a whole group that was cut short is completed, by whoever leads then."""

from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed
from scheduler.cycle.instructions import DeleteVictimsResult
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine, Report
from tests.scheduler.state.groups.life import (
    Life,
    MakeNode,
    MakePf,
    MakePod,
    as_bound,
    binds,
    changed,
    identity,
    orders,
    told,
    victims,
)

WHOLE: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
OF_TRAIN = {"schedulingGroup": {"podGroupName": "train"}}
BOUND_AT, PREEMPTED_AT, LATER = (f"2026-01-01T00:0{minute}:00Z" for minute in (1, 2, 3))


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


def _train(life: Life, at: str = BOUND_AT, names: str = "m") -> list[Pod]:
    """Bind a group of three, as the API server shows it."""
    life.pod_group(**WHOLE)
    life.nodes("n1", "n2", "n3")
    life.see(*(life.member(f"{names}{number}", group="", spec=OF_TRAIN) for number in range(3)))
    pods = [changed(pod, status={"conditions": [_scheduled(at)]}) for pod in map(as_bound, binds(life.work()))]
    assert len(pods) == 3
    life.see(*pods)
    return pods


def _scheduled(at: str) -> dict[str, str]:
    return {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}


def _preempted(pod: Pod, at: str = PREEMPTED_AT, *, is_going: bool = True, fields: dict[str, str] | None = None) -> Pod:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "mooring: preempting to accommodate a higher priority pod",
        "lastTransitionTime": at,
    }
    conditions = [*msgspec.to_builtins(pod.status.conditions), target | (fields or {})]
    going = {"deletionTimestamp": at} if is_going else {}
    return changed(pod, status={"conditions": conditions}, metadata=going)


@pytest.mark.parametrize("is_going", [True, False])
def test_the_rest_goes_too(life: Life, is_going: bool) -> None:
    """A leader ended after one deletion, or between a condition and its deletion: the next one only has the pods."""
    first, *_ = _train(life)
    life.see(_preempted(first, is_going=is_going))
    assert orders(life.work(10.0)) == []
    assert life.machine.next_due() == 15.0
    (order,) = orders(life.work(6.0))
    assert [one.pod for one in order.victims] == [f"default/m{n}" for n in range(is_going, 3)]
    reports = life.machine.finished(order, DeleteVictimsResult(order.victims), life.now)
    why = "Preempted with pod default/m0: group train may only be disrupted as a whole"
    assert {one.message for one in reports if isinstance(one, Report)} == {why}


def test_what_the_api_server_refuses_is_tried_again_until_none_is_left(life: Life) -> None:
    """A webhook, or a role that lacks the verb, may refuse for a while."""
    first, second, third = _train(life)
    life.see(_preempted(first))
    life.gone(first)
    (order,) = orders(life.work(20.0))
    assert life.machine.finished(order, DeleteVictimsResult((), "forbidden"), life.now) == []
    assert orders(life.work(50.0)) == []
    life.see(_preempted(second))
    assert victims(life.work(20.0)) == ["m2"]
    life.see(_preempted(third))
    assert victims(life.work(70.0)) == []
    assert not life.machine.group_scheduling.partly_preempted._preempted


def test_whoever_waits_for_the_room_plays_no_part(life: Life) -> None:
    """The pod that preempted may be gone by then."""
    first, *_ = _train(life)
    rival = life.make_pod("rival", [{}, {}], spec={"priority": 10})
    life.see(rival)
    (order,) = orders(life.work())
    assert victims([order]) == ["m0", "m1", "m2"]
    life.gone(rival)
    life.see(_preempted(first))
    life.machine.finished(order, DeleteVictimsResult(order.victims[:1], "forbidden"), life.now)
    assert victims(life.work(20.0)) == ["m1", "m2"]


def test_nobody_of_a_group_that_has_begun_anew_goes(life: Life) -> None:
    """Its controller made the members again, and they were bound while the old ones ended."""
    old = _train(life)
    for pod in old:
        life.see(_preempted(pod))
    life.nodes("n4", "n5", "n6")
    life.see(*(life.member(f"new{number}", group="", spec=OF_TRAIN) for number in range(3)))
    again = [changed(pod, status={"conditions": [_scheduled(LATER)]}) for pod in map(as_bound, binds(life.work()))]
    assert len(again) == 3
    life.see(*again)
    assert orders(life.work(20.0)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"message": "kube-scheduler: preempting to accommodate a higher priority pod"},
        {"reason": "EvictionByEvictionAPI"},
        {"status": "False"},
        {"type": "Ready"},
    ],
)
def test_what_others_did_is_not_completed(life: Life, fields: dict[str, str]) -> None:
    """An eviction, or another scheduler's victim."""
    first, *_ = _train(life)
    life.see(_preempted(first, fields=fields))
    assert orders(life.work(20.0)) == []


@pytest.mark.parametrize("mode", [None, {"single": {}}, "SomethingNew"])
def test_only_a_group_that_is_known_to_go_as_a_whole_is_completed(life: Life, mode: object) -> None:
    """In words not known, members are spared, and none is deleted either."""
    first, *_ = _train(life)
    life.pod_group(**WHOLE | {"disruptionMode": mode})
    life.see(_preempted(first))
    assert orders(life.work(20.0)) == []


def test_members_whose_binding_the_api_server_has_not_dated_stay(life: Life) -> None:
    """Nobody could say that they were there before."""
    first, second, third = _train(life)
    for pod in (second, third):
        life.machine.pods(Changed(identity(pod), changed(pod, status={"conditions": None})), life.now)
    life.see(_preempted(first))
    assert orders(life.work(20.0)) == []


def test_all_waiting_members_are_told_of_a_refused_preemption_in_portions(life: Life) -> None:
    """A group of hundreds: one step writes some reports, the next ones the others, and a member that left is no bug."""
    life.nodes(*(f"n{number}" for number in range(5)), vfs=64)
    low = life.make_pod("low", [{}] * 64)
    life.see(low)
    life.bound(*binds(life.work()))
    members = [
        life.member(f"m{n:03}", '{"name":"big","min":300}', request=[{}], spec={"priority": 10}) for n in range(300)
    ]
    life.see(*members)
    (order,) = orders(life.work())
    life.now += 60.0
    reports = told(life.machine.finished(order, DeleteVictimsResult((), "forbidden"), life.now))
    assert 0 < len(reports) < 300
    while more := told(life.machine.tick(life.now)):
        assert len(more) < 300
        reports |= more
    assert set(reports.values()) == {"preemption refused: forbidden"}
    assert len(reports) == 300
