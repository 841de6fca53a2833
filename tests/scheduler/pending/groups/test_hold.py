"""With ``--group-hold`` a group that has waited long enough has first call on what becomes free."""

from typing import Any

import pytest

from scheduler.kube.objects import Pod
from tests.scheduler.group_life import PAIR, Life, binds, bound_names, changed, pair, told, victims
from tests.scheduler.pending.groups.conftest import MakeLife
from tests.scheduler.pending.groups.hold_life import HOLD_S, full, hold, kept_on, life

__all__ = ["life"]
FOUR = '{"name":"four","min":4}'


def _single(life: Life, name: str, **fields: Any) -> Pod:
    return life.make_pod(name, [{}, {}], **fields)


def _stream(life: Life, running: list[Pod]) -> list[str]:
    """Let pods end one after another, each followed by another one of the same size; return what is bound."""
    bound: list[str] = []
    for number, pod in enumerate(running):
        life.see(_single(life, f"next-{number}"))
        life.work(10.0)
        life.gone(pod)
        found = life.work(10.0)
        bound += bound_names(found)
        life.bound(*binds(found))
    return bound


@pytest.mark.parametrize(("hold_s", "starts"), [(0.0, ["next-0", "next-1"]), (HOLD_S, ["m0", "m1"])])
def test_a_group_that_has_waited_grows_with_what_becomes_free(
    make_life: MakeLife, hold_s: float, starts: list[str]
) -> None:
    """The room of the member that fits is kept, and the group starts as a whole; without it singles keep it out."""
    life = make_life(hold_s=hold_s)
    running = full(life, "n1", "n2")
    hold(life)
    assert _stream(life, running) == starts


def test_a_group_that_holds_comes_first_though_it_was_tried_just_now(life: Life) -> None:
    """No backoff leaves what becomes free to a pod of the same priority."""
    running = full(life, "n1", "n2")
    hold(life)
    life.gone(running[0])
    assert bound_names(life.work()) == []
    life.see(_single(life, "single"))
    life.gone(running[1])
    assert bound_names(life.work()) == ["m0", "m1"]


def test_the_hold_begins_when_its_time_is_over_though_nothing_happens(life: Life) -> None:
    """Room that is free already is kept from then on, and until then it is not; so is what others have yet to leave."""
    full(life, "n1")
    life.nodes("n2")
    life.members(2, PAIR)
    life.work()
    assert life.machine.next_due() is not None
    (message,) = set(told(life.work(HOLD_S + 1.0)).values())
    assert message.endswith("2 not enough free RDMA VFs. Room is kept for the group as it becomes free.")
    assert kept_on(life) == ["n1", "n2"]
    life.see(_single(life, "single"))
    assert bound_names(life.work(1.0)) == []


def test_what_members_keep_does_not_count_against_each_other(life: Life) -> None:
    """Two of three are kept room on one node; the third one's node makes the group start."""
    (there,) = full(life, "n2")
    life.nodes("n1", vfs=4)
    hold(life, '{"name":"train","min":3}', 3)
    assert kept_on(life) == ["n1", "n1", "n2"]
    life.gone(there)
    assert bound_names(life.work(1.0)) == ["m0", "m1", "m2"]


def test_pods_of_higher_priority_do_not_heed_it(life: Life) -> None:
    full(life, "n1")
    life.nodes("n2")
    hold(life)
    life.see(_single(life, "urgent", spec={"priority": 7}))
    assert bound_names(life.work(1.0)) == ["urgent"]


def test_only_the_oldest_of_the_highest_priority_holds(life: Life) -> None:
    """An older group of a lower priority waits, and holds after it."""
    life.nodes("n1")
    life.place(_single(life, "on-n1", spec={"priority": 5}))
    life.nodes("n2")
    life.see(*(life.member(f"low{number}", '{"name":"low","min":2}') for number in range(2)))
    life.work(1.0)
    life.see(*(life.member(f"old{number}", '{"name":"old","min":2}', spec={"priority": 5}) for number in range(2)))
    life.work(1.0)
    high = [life.member(f"new{number}", '{"name":"new","min":2}', spec={"priority": 5}) for number in range(2)]
    life.see(*high)
    life.work(2 * HOLD_S)
    life.work(1.0)
    holder = life.machine.pending_groups.room_owner
    assert holder is not None
    assert holder.name == "old"
    assert kept_on(life) == ["n1", "n2"]


def test_what_is_kept_is_free_again_when_the_group_goes(life: Life) -> None:
    full(life, "n1")
    life.nodes("n2")
    members = hold(life)
    life.see(_single(life, "single"))
    assert bound_names(life.work(1.0)) == []
    life.gone(members[0])
    found = life.work(2.0)
    assert bound_names([*found, *life.work(2.0)]) == ["single"]
    assert life.machine.pending_groups.room_owner is None
    assert len(life.machine.reservations) == 0


def test_a_group_whose_victims_are_leaving_keeps_its_nominations_when_another_one_holds(life: Life) -> None:
    """A younger pod of the same priority does not get the nodes: the victim would have gone in vain."""
    life.nodes("n1")
    (equal,) = life.place(_single(life, "on-n1", spec={"priority": 10}))
    (lower,) = full(life, "n2")
    pair(life)
    life.work(HOLD_S + 1.0)
    life.work(1.0)
    assert life.machine.pending_groups.room_owner is not None
    spec = {"priority": 20, "preemptionPolicy": "Never", "nodeSelector": {"no": "node"}}
    life.see(*(life.member(f"large{number}", '{"name":"large","min":9}', spec=spec) for number in range(9)))
    life.work(HOLD_S - 5.0)
    life.gone(equal)
    assert victims(life.work(1.0)) == ["on-n2"]
    life.see(changed(lower, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    life.see(_single(life, "single", spec={"priority": 10}))
    assert binds([*life.work(10.0), *life.work(1.0)]) == []
    assert life.machine.pending_groups.room_owner.name == "large"
    assert kept_on(life) == ["n1", "n2"]


def test_a_group_that_holds_is_not_tried_again_without_an_event(life: Life) -> None:
    """What it keeps makes no event that would bring it back."""
    full(life, "n1")
    life.nodes("n2", "n3")
    hold(life, FOUR, 4)
    assert len(life.machine.reservations) == 2
    before = life.machine.group_scheduling.decisions["unschedulable"]
    for _ in range(20):
        life.work(1.0)
    assert life.machine.group_scheduling.decisions["unschedulable"] == before
    assert told(life.work(1.0)) == {}


@pytest.mark.parametrize(("of_group", "own", "is_kept"), [(10, 0, True), (0, 10, False)])
def test_room_is_kept_by_the_priority_of_the_pod_group(life: Life, of_group: int, own: int, is_kept: bool) -> None:
    """A pod between the PodGroup's priority and its members' own gets the room, or does not, by the PodGroup's."""
    first, _ = full(life, "n1", "n2")
    life.pod_group(schedulingPolicy={"gang": {"minCount": 2}}, priority=of_group)
    spec = {"priority": own, "schedulingGroup": {"podGroupName": "train"}, "preemptionPolicy": "Never"}
    life.members(2, "", spec=spec)
    life.work(1.0)
    life.work(HOLD_S)
    life.gone(first)
    assert binds(life.work(2.0)) == []
    life.see(_single(life, "between", spec={"priority": 5, "preemptionPolicy": "Never"}))
    assert bound_names(life.work(1.0)) == ([] if is_kept else ["between"])


def test_a_half_group_keeps_first_call_when_a_placed_member_succeeds(life: Life) -> None:
    """It has started, so that one of the two that wait takes the room of the one that is done."""
    members = [life.member(f"m{number}", '{"name":"train","min":4}') for number in range(4)]
    life.nodes("n1", "n2", "n3", "n4")
    placed = life.place(*members)
    life.gone(*placed[2:])
    life.place(*(_single(life, f"other-{number}") for number in range(2)))
    life.see(*(life.member(f"again-{number}", '{"name":"train","min":4}') for number in range(2)))
    life.work()
    life.work(2 * HOLD_S)
    holder = life.machine.pending_groups.room_owner
    assert holder is not None
    life.see(changed(placed[0], status={"phase": "Succeeded"}))
    assert [bind.assigned.node for bind in binds(life.work(1.0))] == [placed[0].spec.node_name]
    assert life.machine.pending_groups.room_owner == holder
    life.see(_single(life, "late"))
    assert bound_names(life.work(1.0)) == []
