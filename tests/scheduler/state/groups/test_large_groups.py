"""A group may have any number of pods: none of their changes, and no step of a decision, costs time for all of them."""

from collections.abc import Callable

import pytest

from mooring.annotations.group import MOST_MEMBERS
from mooring.annotations.inventory import Pf
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Node, Pod
from scheduler.pending.groups.member_messages import AT_ONCE
from scheduler.pending.groups.ranks import GroupRanks
from tests.scheduler.group_life import Life, binds, told

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
ANY = '{"name":"large","min":1}'


def _members(life: Life, count: int, group: str = ANY, **fields: object) -> list[Pod]:
    return [life.member(f"m{number}", group, request=[{}], **fields) for number in range(count)]


def test_members_are_told_in_portions(life: Life) -> None:
    """All in the end, and each once."""
    life.nodes("n1")
    life.see(*_members(life, 3 * AT_ONCE, spec={"nodeSelector": {"no": "where"}}))
    most, names = 0, list[str]()
    for _ in range(20):
        instructions = [*(life.machine.step(life.now) or []), *life.machine.tick(life.now)]
        most = max(most, len(instructions))
        names += told(instructions)
    assert most <= 2 * AT_ONCE
    assert sorted(names) == sorted(f"m{number}" for number in range(3 * AT_ONCE))


def test_a_member_that_goes_before_it_is_told_is_not_told(life: Life) -> None:
    """Neither one that has been placed meanwhile."""
    life.nodes("n1")
    members = _members(life, AT_ONCE + 2, spec={"nodeSelector": {"no": "where"}})
    life.see(*members)
    first = list[str]()
    while not first:
        first += told(life.machine.step(life.now) or [])
    rest = [one for one in members if one.metadata.name not in first]
    life.gone(rest[0])
    assert list(told(life.machine.tick(life.now))) == [rest[1].metadata.name]


def test_a_decision_is_about_as_many_as_a_group_can_need(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it was not about are decided about next."""
    monkeypatch.setattr("scheduler.state.groups.group_scheduling.MOST_MEMBERS", 4)
    life.nodes("n1", vfs=10)
    life.see(*_members(life, 11))
    assert len(binds(life.work())) == 10
    life.machine.check()
    assert MOST_MEMBERS == 4096


def test_a_waiting_member_may_change_its_group(life: Life) -> None:
    """It counts in the new one only."""
    life.nodes("n1", vfs=10)
    one, other = _members(life, 2, '{"name":"a","min":2}', spec={"nodeSelector": {"no": "where"}})
    life.see(one, other)
    life.work()
    one.metadata.annotations = {**one.annotations, "mooring.dev/group": '{"name":"b","min":1}'}
    life.see(one)
    life.work()
    life.machine.check()


def _key(name: str = "g") -> GroupKey:
    return GroupKey("annotation", "default", name)


def test_the_lowest_rank_is_that_of_the_members_that_wait() -> None:
    """Whatever order they come and go in, and come again."""
    ranks, key = GroupRanks(), _key()
    for number in range(10):
        ranks.put(f"u{number}", key, (number, f"{9 - number}"))
    assert ranks.lowest(key) == (0, "0")
    ranks.drop("u0")
    ranks.drop("u9")
    assert ranks.lowest(key) == (1, "1")
    ranks.put("u0", key, (0, "9"))
    ranks.put("u1", _key("other"), (1, "8"))
    assert ranks.lowest(key) == (0, "1")
    assert ranks.lowest(_key("other")) == (1, "8")


def test_members_that_come_and_go_leave_nothing() -> None:
    """While one stays."""
    ranks, key = GroupRanks(), _key()
    ranks.put("stays", key, (0, ""))
    for number in range(1000):
        ranks.put(f"u{number}", key, (1, f"{number}"))
        ranks.drop(f"u{number}")
    assert ranks.lowest(key) == (0, "")
    assert [len(counts) for counts in ranks._counts[key]] == [1, 1]
    ranks.drop("stays")
    assert not ranks._counts
