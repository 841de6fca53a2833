"""A group may have any number of pods and many shapes: no change, and no step, costs time for all of them."""

import json
from functools import partial
from typing import Any

import pytest

from mooring.annotations.group import MOST_MEMBERS
from mooring.annotations.pf_terms import Allow
from scheduler.cycle.instructions import Instruction
from scheduler.kube.group import MOST_SHAPES
from scheduler.kube.objects import Pod
from scheduler.state.groups.group_scheduling import PORTION
from tests.scheduler.group_life import Life, binds, changed, orders, told
from tests.support.calls import count_all_calls

ANY = '{"name":"large","min":1}'
NOWHERE = {"nodeSelector": {"no": "where"}}


def test_members_are_told_in_portions(life: Life) -> None:
    life.nodes("n1")
    life.members(3 * PORTION, ANY, request=[{}], spec=NOWHERE)
    most, names = 0, list[str]()
    for _ in range(20):
        instructions = [*(life.machine.step(life.now) or []), *life.machine.tick(life.now)]
        most = max(most, len(instructions))
        names += told(instructions)
    assert most <= 2 * PORTION
    assert sorted(names) == sorted(f"m{number}" for number in range(3 * PORTION))


def test_a_member_that_goes_before_it_is_told_is_not_told(life: Life) -> None:
    life.nodes("n1")
    members = life.members(PORTION + 2, ANY, request=[{}], spec=NOWHERE)
    first = list[str]()
    while not first:
        first += told(life.machine.step(life.now) or [])
    rest = [one for one in members if one.metadata.name not in first]
    life.gone(rest[0])
    assert list(told(life.machine.tick(life.now))) == [rest[1].metadata.name]


def test_a_decision_is_about_as_many_as_a_group_can_need(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.state.groups.group_scheduling.MOST_MEMBERS", 4)
    life.nodes("n1", vfs=10)
    life.members(11, ANY, request=[{}])
    assert len(binds(life.work())) == 10
    life.machine.check()
    assert MOST_MEMBERS == 4096


def _calls_of_steps(life: Life, count: int, name: str, request: object, label: str = "") -> list[int]:
    """Place a group; return the calls of each step that it took."""
    pods = [
        life.member(
            f"{name}-{number}",
            f'{{"name":"{name}","min":{count}}}',
            request=request,
            metadata={"labels": {label: f"{number}"} if label else {}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        )
        for number in range(count)
    ]
    life.see(*pods)
    calls, instructions = list[int](), list[Instruction]()

    def step() -> None:
        instructions.extend(life.machine.step(life.now) or ())

    while len(binds(instructions)) < count:
        calls.append(count_all_calls(step))
        assert len(calls) < count, "the group is not placed"
    life.machine.check()
    return calls


@pytest.mark.parametrize(("nodes", "request_"), [(10, [{}]), (400, None)], ids=["few nodes", "many nodes, no VFs"])
def test_the_commit_of_a_large_group_is_short(life: Life, nodes: int, request_: object) -> None:
    """It is one step, so 4,096 members must not be counted one by one."""
    life.nodes(*(f"n{number}" for number in range(nodes)), vfs=100)
    assert _calls_of_steps(life, 400, "large", request_)[-1] < 50 * 400


def test_members_with_labels_of_their_own_cost_as_much_as_others(life: Life) -> None:
    """The pods of an indexed Job or a StatefulSet have one label each that no other has."""
    life.nodes(*(f"n{number}" for number in range(10)), vfs=100)
    few, many = (sum(_calls_of_steps(life, count, f"g{count}", [{}], "index")) / count for count in (100, 400))
    assert many < 1.5 * few


def test_an_event_of_a_pod_costs_the_same_however_many_controllers_own_the_others(life: Life) -> None:
    def owned(count: int, number: int) -> Pod:
        owner = {"uid": f"job-{number}", "kind": "Job", "name": "j", "apiVersion": "batch/v1", "controller": True}
        group = f'{{"name":"g{count}","min":{count + 1}}}'
        return life.member(f"g{count}-{number}", group, metadata={"ownerReferences": [owner]})

    def calls(count: int) -> int:
        pods = [owned(count, number) for number in range(count)]
        life.see(*pods)
        return count_all_calls(partial(life.see, changed(pods[-1], metadata={"labels": {"changed": "yes"}})))

    assert calls(400) < calls(50) + 50


_COUNT = MOST_SHAPES + 6


def _hosts(life: Life, **pf: Any) -> None:
    for number in range(_COUNT):
        life.show_node(f"n{number}", life.make_pf(0, 1, **pf), labels={"host": f"n{number}"})


def _shaped_member(life: Life, number: int, settings: dict[str, str], spec: dict[str, Any]) -> None:
    text = json.dumps({"name": "train", "min": _COUNT})
    life.see(life.member(f"train-{number}", text, request=[settings], spec=spec))


def test_members_with_a_node_selector_each(life: Life) -> None:
    """As an exclusive JobSet makes them: each goes to its own node."""
    _hosts(life)
    for number in range(_COUNT):
        _shaped_member(life, number, {}, {"nodeSelector": {"host": f"n{_COUNT - 1 - number}"}})
    nodes = {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(life.work())}
    assert nodes == {f"train-{number}": f"n{_COUNT - 1 - number}" for number in range(_COUNT)}


@pytest.mark.parametrize(
    ("setting", "link", "prefix"),
    [("mac", "ethernet", "02:00:00:00:00:"), ("guid", "infiniband", "02:00:00:00:00:00:00:")],
)
def test_members_with_an_address_each(life: Life, setting: str, link: str, prefix: str) -> None:
    """All are bound with their own."""
    _hosts(life, link=link, can=frozenset({setting}), allow=Allow(mac=True, guid=True))
    for number in range(_COUNT):
        _shaped_member(life, number, {setting: f"{prefix}{number:02x}"}, {})
    decided = binds(life.work())
    assert len(decided) == _COUNT
    assert all(prefix in json.dumps(one.annotations) for one in decided)


def test_one_member_without_a_place_keeps_all_from_starting(life: Life) -> None:
    _hosts(life)
    life.place(life.make_pod("low", [{}], spec={"nodeSelector": {"host": "n0"}}))
    for number in range(_COUNT):
        _shaped_member(life, number, {}, {"nodeSelector": {"host": f"n{number}"}, "priority": 10})
    decided = life.work()
    assert (binds(decided), orders(decided)) == ([], [])
    assert "preemption is not supported for a group with more than 64 different requests." in told(decided)["train-0"]
