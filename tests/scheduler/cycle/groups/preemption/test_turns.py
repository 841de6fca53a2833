"""What happens while the pods are searched for that a group sends away."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity
from scheduler.cycle.groups import group_snapshot, rails
from scheduler.cycle.groups.preemption import preempt
from scheduler.cycle.instructions import Instruction
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, fill, orders, pair, victims

# How many steps are done of a search whose turns are as short as they can be.
STEPS = range(0, 16, 2)


@pytest.fixture
def life(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[Life]:
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    yield life
    life.machine.check()


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_snapshot, "A_TURN", 1)


def _steps(life: Life, count: int) -> list[Instruction]:
    return [one for _ in range(count) for one in life.machine.step(life.now) or []]


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("steps", STEPS)
def test_nobody_goes_on_a_node_that_is_cordoned_during_the_search(life: Life, steps: int) -> None:
    """It is not tried again as if it was only its pods that have changed."""
    fill(life, "n1", "n2", "n3")
    pair(life)
    found = _steps(life, steps)
    assert not orders(found)
    life.nodes("n1", spec={"unschedulable": True})
    assert victims(life.work()) == ["on-n2", "on-n3"]


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("steps", STEPS)
def test_a_node_that_goes_during_the_search_is_not_waited_for(
    life: Life, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it is looked at what its PFs would have left; its pod is known longer than it."""
    monkeypatch.setattr(rails, "_NODE_PORTION", 1)
    fill(life, "n1", "n2", "n3")
    pair(life, group='{"name":"pair","min":2,"rails":"same"}')
    assert not orders(_steps(life, steps))
    life.remove_node("n3")
    assert victims(life.work()) == ["on-n1", "on-n2"]


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("steps", STEPS)
def test_a_whole_group_that_grows_during_the_search_goes_as_a_whole(life: Life, steps: int) -> None:
    """Its new member runs on a node that nothing else of the search rests on."""
    life.pod_group("low", schedulingPolicy={"gang": {"minCount": 2}}, disruptionMode="PodGroup")
    member = {"schedulingGroup": {"podGroupName": "low"}}
    life.nodes("n1", "n2")
    life.see(*(life.member(f"low{k}", "", spec=member) for k in range(2)))
    life.bound(*binds(life.work()))
    fill(life, "n3", spec={"priority": 20})
    pair(life)
    assert not orders(_steps(life, steps))
    life.see(life.member("low2", "", request=None, spec={**member, "nodeName": "n3"}))
    assert victims(life.work()) == ["low0", "low1", "low2"]


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("steps", STEPS)
def test_a_victim_that_becomes_more_important_during_the_search_stays(life: Life, steps: int) -> None:
    """Its PodGroup gets a priority."""
    policy = {"gang": {"minCount": 1}}
    life.pod_group("low", schedulingPolicy=policy)
    life.nodes("n1")
    life.see(life.member("low0", "", spec={"schedulingGroup": {"podGroupName": "low"}}))
    life.bound(*binds(life.work()))
    fill(life, "n2", "n3", spec={"priority": 5})
    pair(life)
    assert not orders(_steps(life, steps))
    life.pod_group("low", schedulingPolicy=policy, priority=30)
    assert victims(life.work()) == ["on-n2", "on-n3"]


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("steps", STEPS)
def test_a_budget_that_comes_during_the_search_is_honoured(life: Life, steps: int) -> None:
    fill(life, "n1", metadata={"labels": {"app": "kept"}})
    fill(life, "n2", "n3", spec={"priority": 5})
    pair(life)
    assert not orders(_steps(life, steps))
    budget: dict[str, Any] = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
    }
    item = msgspec.convert(budget, PodDisruptionBudget)
    life.machine.handle(PodDisruptionBudget, Changed(Identity("kept", "default"), item), life.now)
    assert victims(life.work()) == ["on-n2", "on-n3"]


@pytest.mark.usefixtures("short_turns")
def test_others_are_decided_about_during_a_long_search(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
    """The search is set aside as other decisions about groups are, and goes on."""
    life = Life(Machine("mooring", portion=1), make_node, make_pf, make_pod)
    names = [f"n{number}" for number in range(30)]
    fill(life, *names)
    pair(life)
    assert not orders(_steps(life, 20))
    innocent = life.make_pod("innocent")
    life.see(innocent)
    found = _steps(life, 10)
    assert [one.pod_info.uid for one in binds(found)] == [innocent.metadata.uid]
    assert not orders(found)
    life.bound(*binds(found))
    assert len(victims(life.work())) == 2
    life.machine.check()


@pytest.mark.usefixtures("short_turns")
def test_a_search_that_was_set_aside_ends_with_a_member_that_goes(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    life = Life(Machine("mooring", portion=1), make_node, make_pf, make_pod)
    fill(life, *(f"n{number}" for number in range(30)))
    members = pair(life)
    _steps(life, 20)
    life.see(life.make_pod("innocent"))
    while not life.machine.group_scheduling.paused_decisions:
        assert not orders(_steps(life, 1))
    life.gone(members[0])
    assert victims(life.work()) == []
    assert len(life.machine.reservations) == 0
    life.machine.check()


def test_a_search_that_nodes_have_kept_from_its_end_comes_again(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing happens afterwards."""
    fill(life, "n1", "n2")
    monkeypatch.setattr(preempt, "_MAX_ROUNDS", 0)
    pair(life)
    assert victims(life.work()) == []
    monkeypatch.undo()
    assert victims(life.work(15.0)) == ["on-n1", "on-n2"]


def test_a_turn_ends_in_domains_that_no_member_may_be_in(life: Life) -> None:
    """What is tried there costs no dry run, and time all the same."""
    life.nodes(*(f"n{number}" for number in range(200)), vfs=1)
    for number in range(200):
        life.nodes(f"n{number}", vfs=1, labels={"host": f"n{number}"})
    life.nodes("large", vfs=4, labels={"host": "large"})
    life.see(life.make_pod("low", [{}] * 4))
    life.bound(*binds(life.work()))
    pair(life, group='{"name":"pair","min":2,"within":"host"}')
    steps, found = 0, list[Instruction]()
    while not orders(found):
        found, steps = _steps(life, 1), steps + 1
    assert steps > 2
