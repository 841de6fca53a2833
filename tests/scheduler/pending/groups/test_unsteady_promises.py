"""What keeps a promise, and what ends it: members and running pods that are deleted."""

from tests.scheduler.pending.groups.backfill_life import life, message_of, run, start_of, timed, wait

from scheduler.kube.group import GroupKey
from scheduler.pending.groups.promises import NO_START
from scheduler.state.groups.group_scheduling import demand_of
from tests.scheduler.group_life import PAIR, Life, binds, bound_names, changed

__all__ = ["life"]


def test_a_promise_stays_while_a_member_is_made_again(life: Life) -> None:
    """Nobody takes the room meanwhile, and no other group gets a promise."""
    life.nodes("n1", "n2", "n3")
    run(life, timed(life, "two", "2h"), timed(life, "three", "3h"))
    life.remove_node("n3")
    members = [life.member(f"m{number}", PAIR) for number in range(2)]
    life.see(*members, *(life.member(f"o{number}", '{"name":"other","min":2}') for number in range(2)))
    life.work(1.0)
    before = start_of(life)
    life.gone(members[1])
    life.see(timed(life, "long", "5h"))
    assert binds(life.work(5.0)) == []
    life.see(life.member("again", PAIR))
    life.work(2.0)
    assert start_of(life) == before
    assert "before:" not in message_of(life)
    assert life.machine.pending_groups.room_owner is not None
    assert life.machine.pending_groups.room_owner.name == "pair"


def test_a_promise_ends_if_the_lost_member_is_not_made_again(life: Life) -> None:
    life.nodes("n1", "n2")
    run(life, timed(life, "two", "2h"))
    members = life.members(2, PAIR)
    life.work(1.0)
    life.gone(members[1])
    life.see(timed(life, "long", "5h"))
    assert binds(life.work(25.0)) == []
    assert bound_names(life.work(6.0)) == ["long"]
    life.gone(members[0])
    assert life.machine.reservations.all() == []


def test_a_pod_that_is_being_deleted_ends_at_its_deletion_timestamp_or_never(life: Life) -> None:
    """Its grace period ends at 05:00; ten minutes later a finalizer still keeps it."""
    life.nodes("n1", "n2")
    (pod,) = run(life, timed(life, "two", ""))
    life.see(changed(pod, metadata={"deletionTimestamp": "1970-01-01T00:05:00Z", "finalizers": ["example.com/f"]}))
    message = wait(life)
    assert " It starts by 1970-01-01T00:05:30Z on nodes n1, n2, after default/two (is being deleted)." in message
    life.work(300.0)
    assert " It should have started by " in message_of(life)
    life.work(600.0)
    life.work(60.0)
    assert NO_START in message_of(life)


def test_equal_members_with_other_run_times_are_equal(life: Life) -> None:
    """The group ends with the last of them."""
    life.see(
        *(changed(life.member(f"m{number}", PAIR), spec={"activeDeadlineSeconds": 60 + number}) for number in range(2))
    )
    demand, _ = demand_of(GroupKey("annotation", "default", "pair"), life.machine.state)
    assert len(demand.kinds) == 1
    assert {member.runs_s for member in demand.members} == {61}
