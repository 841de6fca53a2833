"""A group may have any number of pods and many shapes: no change, and no step, costs time for all of them."""

import json
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from types import FrameType
from typing import Any

import pytest

from mooring.annotations.group import MOST_MEMBERS
from mooring.annotations.pf_terms import Allow
from scheduler.cache.groups.group_cache import GroupCache, Member, Members, Rank
from scheduler.cycle.instructions import Instruction
from scheduler.kube.group import MOST_SHAPES, GroupKey, GroupMembership
from scheduler.kube.objects import Pod
from scheduler.state.groups.group_scheduling import PORTION
from tests.scheduler.group_life import Life, annotated, binds, orders, told

ANY = '{"name":"large","min":1}'


def test_members_are_told_in_portions(life: Life) -> None:
    life.nodes("n1")
    life.members(3 * PORTION, ANY, request=[{}], spec={"nodeSelector": {"no": "where"}})
    most, names = 0, list[str]()
    for _ in range(20):
        instructions = [*(life.machine.step(life.now) or []), *life.machine.tick(life.now)]
        most = max(most, len(instructions))
        names += told(instructions)
    assert most <= 2 * PORTION
    assert sorted(names) == sorted(f"m{number}" for number in range(3 * PORTION))


def test_a_member_that_goes_before_it_is_told_is_not_told(life: Life) -> None:
    life.nodes("n1")
    members = life.members(PORTION + 2, ANY, request=[{}], spec={"nodeSelector": {"no": "where"}})
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


def _calls(function: Callable[[], object]) -> int:
    """Count the calls of Python functions and built-in ones, which are the same on each machine."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def _calls_of_steps(life: Life, members: list[Pod]) -> list[int]:
    """Place members; return the calls of each step that it took."""
    life.see(*members)
    calls, instructions = list[int](), list[Instruction]()

    def step() -> None:
        instructions.extend(life.machine.step(life.now) or ())

    while len(binds(instructions)) < len(members):
        calls.append(_calls(step))
        assert len(calls) < len(members), "the group is not placed"
    life.machine.check()
    return calls


@pytest.mark.parametrize(("nodes", "request_"), [(10, [{}]), (400, None)], ids=["few nodes", "many nodes, no VFs"])
def test_the_commit_of_a_large_group_is_short(life: Life, nodes: int, request_: object) -> None:
    """It is one step, so 4,096 members must not be counted one by one."""
    life.nodes(*(f"n{number}" for number in range(nodes)), vfs=100)
    group, created = '{"name":"large","min":400}', {"creationTimestamp": "2026-01-01T00:00:00Z"}
    members = [life.member(f"m{number}", group, request=request_, metadata=created) for number in range(400)]
    calls = _calls_of_steps(life, members)
    assert calls[-1] < 50 * 400


def test_members_with_labels_of_their_own_cost_as_much_as_others(life: Life) -> None:
    """The pods of an indexed Job or a StatefulSet have one label each that no other has."""
    life.nodes(*(f"n{number}" for number in range(10)), vfs=100)
    calls_per_member = list[float]()
    for count in (100, 400):
        group = f'{{"name":"g{count}","min":{count}}}'
        pods = [
            life.member(f"g{count}-{number}", group, request=[{}], metadata={"labels": {"index": f"{number}"}})
            for number in range(count)
        ]
        calls_per_member.append(sum(_calls_of_steps(life, pods)) / count)
    assert calls_per_member[1] < 1.5 * calls_per_member[0]


def test_a_waiting_member_may_change_its_group(life: Life) -> None:
    life.nodes("n1", vfs=10)
    one, _ = life.members(2, '{"name":"a","min":2}', request=[{}], spec={"nodeSelector": {"no": "where"}})
    life.work()
    life.see(annotated(one, {"mooring.dev/group": '{"name":"b","min":1}'}))
    life.work()
    life.machine.check()


def _waiting(groups: GroupCache, uid: str, rank: Rank, name: str = "g") -> Members:
    """Let a member of a group wait; return the group's members."""
    key = GroupKey("annotation", "default", name)
    groups.put(uid, GroupMembership(key, name), Member("waiting", rank=rank))
    members = groups.get(key)
    assert members is not None
    return members


def test_the_lowest_rank_is_that_of_the_members_that_wait() -> None:
    groups = GroupCache()
    for number in range(9):
        _waiting(groups, f"u{number}", (number, f"{9 - number}"))
    members = _waiting(groups, "u9", (9, "0"))
    assert members.lowest_rank == (0, "0")
    groups.drop("u0")
    groups.drop("u9")
    assert members.lowest_rank == (1, "1")
    _waiting(groups, "u0", (0, "9"))
    other = _waiting(groups, "u1", (1, "8"), "other")
    assert members.lowest_rank == (0, "1")
    assert other.lowest_rank == (1, "8")


def test_members_that_come_and_go_leave_nothing() -> None:
    groups = GroupCache()
    members = _waiting(groups, "stays", (0, ""))
    for number in range(1000):
        _waiting(groups, f"u{number}", (1, f"{number}"))
        groups.drop(f"u{number}")
    assert members.lowest_rank == (0, "")
    assert [len(counts) for counts in (members._counts, members._ranks)] == [1, 1]


def test_an_event_of_a_pod_costs_the_same_however_many_controllers_own_the_others(life: Life) -> None:
    calls = list[int]()
    for count in (50, 400):
        pods = [_owned(life, f"g{count}", number, count + 1) for number in range(count)]
        life.see(*pods)
        changed = deepcopy(pods[-1])
        changed.metadata.labels = {"changed": "yes"}
        calls.append(_calls(partial(life.see, changed)))
    assert calls[1] < calls[0] + 50


def _owned(life: Life, group: str, number: int, min_members: int) -> Pod:
    """Make a member that a Job with one pod owns."""
    owner = {"uid": f"job-{number}", "kind": "Job", "name": "j", "apiVersion": "batch/v1", "controller": True}
    annotation = f'{{"name":"{group}","min":{min_members}}}'
    return life.member(f"{group}-{number}", annotation, metadata={"ownerReferences": [owner]})


_COUNT = MOST_SHAPES + 6


def _hosts(life: Life, count: int = _COUNT, **pf: Any) -> None:
    for number in range(count):
        life.show_node(f"n{number}", life.make_pf(0, 1, **pf), labels={"host": f"n{number}"})


def _shaped_member(life: Life, number: int, settings: Mapping[str, str], spec: Mapping[str, Any]) -> Pod:
    text = json.dumps({"name": "train", "min": _COUNT})
    return life.member(f"train-{number}", text, request=[dict(settings)], spec=dict(spec))


def test_members_with_a_node_selector_each(life: Life) -> None:
    """As an exclusive JobSet makes them: each goes to its own node."""
    _hosts(life)
    for number in range(_COUNT):
        life.see(_shaped_member(life, number, {}, {"nodeSelector": {"host": f"n{_COUNT - 1 - number}"}}))
    nodes = {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(life.work())}
    assert nodes == {f"train-{number}": f"n{_COUNT - 1 - number}" for number in range(_COUNT)}


@pytest.mark.parametrize("setting", ["mac", "guid"])
def test_members_with_an_address_each(life: Life, setting: str) -> None:
    """All are bound with their own; and one that none of the nodes may have keeps all from starting."""
    link = "infiniband" if setting == "guid" else "ethernet"
    _hosts(life, link=link, can=frozenset({setting}), allow=Allow(mac=True, guid=True))
    beginning = "02:00:00:00:00:" if setting == "mac" else "02:00:00:00:00:00:00:"
    for number in range(_COUNT):
        life.see(_shaped_member(life, number, {setting: f"{beginning}{number:02x}"}, {}))
    decided = binds(life.work())
    assert len(decided) == _COUNT
    assert all(f"{beginning}" in json.dumps(one.annotations) for one in decided)


def test_one_member_without_a_place_keeps_all_from_starting(life: Life) -> None:
    _hosts(life)
    life.place(life.make_pod("low", [{}], spec={"nodeSelector": {"host": "n0"}}))
    for number in range(_COUNT):
        life.see(_shaped_member(life, number, {}, {"nodeSelector": {"host": f"n{number}"}, "priority": 10}))
    decided = life.work()
    assert (binds(decided), orders(decided)) == ([], [])
    assert "preemption is not supported for a group with more than 64 different requests." in told(decided)["train-0"]
