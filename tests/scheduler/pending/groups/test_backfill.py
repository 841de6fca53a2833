"""With ``--backfill`` the first group gets a promised start, and others start meanwhile if they do not delay it."""

from collections.abc import Iterable
from typing import Any

import pytest

from mooring import names
from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Pod
from scheduler.state.groups.backfill import EarliestStart
from tests.scheduler.group_life import PAIR, Life, binds, bound_names, changed, told
from tests.scheduler.pending.groups.backfill_life import HOUR_S, life, message_of, run, start_of, timed, wait
from tests.scheduler.pending.groups.conftest import MakeLife
from tests.scheduler.pending.groups.hold_life import kept_on

__all__ = ["life"]


def test_the_first_group_is_promised_the_earliest_start_that_declared_ends_allow(life: Life) -> None:
    life.nodes("n1", "n2", "n3")
    run(life, timed(life, "one", "1h"), timed(life, "two", "2h"), timed(life, "three", "3h"))
    message = wait(life)
    assert " It starts by 1970-01-01T02:00:30Z on nodes " in message
    assert message.endswith(", after default/two (ends by 1970-01-01T02:00:00Z).")
    assert start_of(life) == pytest.approx(2 * HOUR_S, abs=1.0)
    assert len(kept_on(life)) == 2


def _wait_beside(life: Life) -> Pod:
    """Let a pod run for two hours on one of two nodes, and a group wait for both; return the pod."""
    life.nodes("n1", "n2")
    (two,) = run(life, timed(life, "two", "2h"))
    wait(life)
    return two


def test_pods_that_end_before_start_meanwhile_and_others_do_not(life: Life) -> None:
    """A node is free, and reserved from the second hour on."""
    _wait_beside(life)
    life.see(timed(life, "long", "3h"), timed(life, "endless", ""), timed(life, "short", "1h"))
    assert bound_names(life.work(1.0)) == ["short"]


def test_a_pod_that_does_not_touch_the_room_starts_however_long_it_runs(life: Life) -> None:
    """The third node cannot take a member: the group's own rack has two."""
    life.nodes("n1", "n2", labels={"rack": "r1"})
    run(life, timed(life, "two", "2h"))
    life.nodes("n3", labels={"rack": "r2"})
    message = wait(life, '{"name":"pair","min":2,"within":"rack"}')
    assert " on rack 'r1', after default/two" in message
    life.see(timed(life, "endless", ""))
    (bind,) = binds(life.work(1.0))
    assert bind.assigned.node == "n3"


def test_a_pod_may_stay_beside_the_group_on_a_node_that_others_leave_in_time(life: Life) -> None:
    """Of four VFs the group needs two; two are used until it starts; the pod gets none that are promised."""
    life.nodes("n1", vfs=4)
    life.nodes("n2")
    run(life, timed(life, "half", "2h", spec={"nodeSelector": {}}), timed(life, "there", "2h"))
    life.nodes("n1", vfs=5)
    wait(life)
    life.see(timed(life, "beside", "", [{}]))
    (bind,) = binds(life.work(1.0))
    assert bind.assigned.node == "n1"
    rooms = [room for one in life.machine.reservations.all() for room in one.rooms.values()]
    promised = {vf.pci for room in rooms if room.assignment is not None for vf in room.assignment.vfs}
    assert bind.assigned.assignment is not None
    assert promised.isdisjoint(vf.pci for vf in bind.assigned.assignment.vfs)


def test_the_group_starts_when_the_pods_have_ended(life: Life) -> None:
    two = _wait_beside(life)
    life.see(timed(life, "long", "3h"))
    life.work(2 * HOUR_S - 10.0)
    life.gone(two)
    assert bound_names(life.work(1.0)) == ["m0", "m1"]
    assert len(life.machine.reservations) == 0


def test_a_promise_moves_later_only_with_its_cause(life: Life) -> None:
    """A pod of a higher priority takes promised room; the promise names it."""
    _wait_beside(life)
    life.see(timed(life, "urgent", "5h", spec={"priority": 7}))
    assert bound_names(life.work(1.0)) == ["urgent"]
    life.work(2.0)
    life.work(2.0)
    assert start_of(life) > 4 * HOUR_S
    message = message_of(life)
    assert " It was promised by 1970-01-01T02:00:30Z before: default/urgent of a higher priority is on" in message


def test_a_pod_that_runs_too_long_is_named_and_the_room_stays_reserved(life: Life) -> None:
    two = _wait_beside(life)
    life.work(2 * HOUR_S + 5.0)
    life.work(2.0)
    message = message_of(life)
    assert " It should have started by 1970-01-01T02:00:30Z on nodes n1, n2: default/two runs longer" in message
    life.see(timed(life, "short", "1h"))
    assert bound_names(life.work(1.0)) == []
    life.gone(two)
    assert bound_names(life.work(1.0)) == ["m0", "m1"]


def test_a_lost_node_moves_the_promise(life: Life) -> None:
    life.nodes("n1", "n2")
    life.nodes("n3")
    run(life, timed(life, "two", "2h"), timed(life, "three", "3h"), timed(life, "four", "4h"))
    wait(life)
    lost = kept_on(life)[0]
    life.remove_node(lost)
    life.work(1.0)
    life.work(2.0)
    assert f"before: node {lost!r} is gone." in message_of(life)


def _replace_leader(life: Life, new: Life, node_names: Iterable[str], running: Iterable[Pod]) -> None:
    """Let another leader begin 100 s later, which sees these nodes, these running pods and the group that waits."""
    message = message_of(life)
    new.now = life.now + 100.0
    new.nodes(*node_names)
    started = {"startTime": "1970-01-01T00:00:00Z"}
    created = {"creationTimestamp": "1970-01-01T00:00:00Z"}
    new.see(*(changed(pod, metadata=created, status={"phase": "Running", **started}) for pod in running))
    for number, node in enumerate(kept_on(life)):
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        status = {"nominatedNodeName": node, "conditions": [condition]}
        new.see(changed(life.member(f"m{number}", PAIR), status=status))
    for later_s in (0.0, 1.0, 1.0):
        new.work(later_s)


def test_a_new_leader_keeps_the_promise(life: Life, make_life: MakeLife) -> None:
    """It reads when the group starts from a member's message, and where from the nominated nodes."""
    life.nodes("n1", "n2", "n3")
    running = run(life, timed(life, "one", "1h"), timed(life, "two", "2h"), timed(life, "three", "3h"))
    wait(life)
    new = make_life(backfill=True)
    _replace_leader(life, new, ("n1", "n2", "n3"), running)
    assert kept_on(new) == kept_on(life)
    (reservation,) = new.machine.reservations.all()
    assert reservation.since == pytest.approx(start_of(life), abs=1.0)


@pytest.mark.parametrize("is_lost", [False, True], ids=["longer run", "lost node"])
def test_a_new_leader_names_why_the_promise_moves(life: Life, make_life: MakeLife, is_lost: bool) -> None:
    life.nodes("n1", "n2", "n3")
    one, two, three = run(life, *(timed(life, f"p{hours}", f"{hours}h") for hours in (1, 2, 3)))
    wait(life)
    lost_node = str(two.spec.node_name) if is_lost else ""
    longer = changed(two, metadata={"annotations": {**two.annotations, names.RUNS: "4h"}})
    node_names = [name for name in ("n1", "n2", "n3") if name != lost_node]
    new = make_life(backfill=True)
    _replace_leader(life, new, node_names, (one, three) if is_lost else (one, longer, three))
    cause = f"node {lost_node!r} is gone" if is_lost else "default/p2 began late, or declares a longer run time now"
    assert f" It was promised by 1970-01-01T02:00:30Z before: {cause}." in message_of(new)


def test_pods_that_never_end_allow_no_promise(life: Life) -> None:
    life.nodes("n1")
    run(life, timed(life, "endless", ""))
    life.nodes("n2")
    assert wait(life).endswith(" No declared end of running pods makes room for the group.")
    life.see(timed(life, "other", ""))
    assert bound_names(life.work(1.0)) == ["other"]


def test_without_the_flag_nothing_is_promised(make_life: MakeLife) -> None:
    life = make_life()
    life.nodes("n1", "n2")
    run(life, timed(life, "two", "2h"))
    life.members(2, PAIR)
    message = set(told(life.work(1.0)).values())
    assert not any(" It starts by " in one for one in message)
    life.see(timed(life, "endless", ""))
    assert bound_names(life.work(1.0)) == ["endless"]


def _wait_for(life: Life, name: str, created_s: int, size: int = 2, **fields: Any) -> None:
    """Let a group arrive whose members were created at a second."""
    group = f'{{"name":"{name}","min":{size}}}'
    members = (life.member(f"{name}-{number}", group, **fields) for number in range(size))
    created = f"1970-01-01T00:00:{created_s:02}Z"
    life.see(*(changed(member, metadata={"creationTimestamp": created}) for member in members))
    for _ in range(3):
        life.work(1.0)


def _promised(life: Life) -> list[str]:
    return [one.group.name for one in life.machine.reservations.all() if one.group and one.cause == "backfill"]


@pytest.mark.parametrize(
    "fields",
    [{"size": 3}, {"spec": {"nodeSelector": {"no": "node"}}}, {"request": [{}] * 5}],
    ids=["too-many-members", "no-such-node", "too-large"],
)
def test_a_group_that_no_end_helps_leaves_the_promise_to_the_next(life: Life, fields: dict[str, Any]) -> None:
    """Otherwise one misspelt selector would end promises for all."""
    life.nodes("n1", "n2")
    (two,) = run(life, timed(life, "two", "2h"))
    _wait_for(life, "never", 1, **fields)
    _wait_for(life, "pair", 2)
    for _ in range(90):
        life.work(1.0)
    assert _promised(life) == ["pair"]
    life.gone(two)
    assert bound_names(life.work(1.0)) == ["pair-0", "pair-1"]


def test_a_group_that_was_passed_over_is_promised_a_start_when_an_end_is_declared(life: Life) -> None:
    life.nodes("n1", "n2")
    (endless,) = run(life, timed(life, "endless", ""))
    _wait_for(life, "pair", 1)
    assert _promised(life) == []
    life.see(changed(endless, metadata={"annotations": {**endless.annotations, names.RUNS: "2h"}}))
    for _ in range(620):
        life.work(1.0)
    assert _promised(life) == ["pair"]


def test_an_older_group_of_the_same_priority_does_not_end_a_promise(life: Life) -> None:
    """It was created before, and is complete only now."""
    life.nodes("n1", "n2")
    run(life, timed(life, "two", "2h"))
    _wait_for(life, "young", 30)
    _wait_for(life, "old", 1)
    assert _promised(life) == ["young"]
    _wait_for(life, "urgent", 40, spec={"priority": 7, "preemptionPolicy": "Never"})
    assert _promised(life) == ["urgent"]


def test_room_that_is_overdue_stays_reserved_for_a_group_of_short_runs(life: Life) -> None:
    life.nodes("n1", "n2")
    run(life, timed(life, "two", "2h"))
    wait(life, '{"name":"pair","min":2,"runs":"5s"}')
    life.work(2 * HOUR_S + 5.0)
    life.work(2.0)
    life.work(8.0)
    life.see(timed(life, "endless", ""))
    assert bound_names(life.work(1.0)) == []


def test_a_pod_that_began_late_moves_the_promise_when_it_begins(life: Life) -> None:
    """Its image took ten minutes; nothing else changes on its node."""
    life.nodes("n1", "n2")
    (late,) = life.place(timed(life, "late", "1h"))
    wait(life)
    life.work(600.0 - life.now)
    life.see(changed(late, status={"phase": "Running"}))
    for _ in range(3):
        life.work(1.0)
    assert start_of(life) == pytest.approx(600.0 + HOUR_S, abs=1.0)
    assert "before: default/late began late, or declares a longer run time now." in message_of(life)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_pod_that_is_late_by_its_whole_run_time_counts_as_endless(life: Life, *, is_running: bool) -> None:
    """The group gets room elsewhere, and the promise names the pod."""
    life.nodes("n1", "n2")
    (liar,) = life.place(timed(life, "liar", "1h"))
    if is_running:
        life.see(changed(liar, status={"phase": "Running"}))
    life.nodes("n3")
    run(life, timed(life, "other", "4h"))
    wait(life)
    liar_node = str(liar.spec.node_name)
    assert liar_node in kept_on(life)
    for _ in range(150):
        life.work(60.0)
    assert liar_node not in kept_on(life)
    assert start_of(life) == pytest.approx(4 * HOUR_S, abs=120.0)
    assert "default/liar" in message_of(life)


def test_the_promise_stays_in_the_message_while_a_node_restores_vfs(life: Life) -> None:
    """The message is its only record: a new leader, and the user, read it there."""
    _wait_beside(life)
    start = start_of(life)
    free_node = next(node for node in ("n1", "n2") if not life.machine.cache.assigned_pods_on(node))
    held = Out(Indexes.of([0]), f"{HELD_BY}gone")
    life.show_node(free_node, life.make_pf(vfs=2, out=(held,)))
    for _ in range(5):
        life.work(1.0)
    assert start_of(life) == start
    assert _promised(life) == ["pair"]


def test_many_pods_that_leave_cause_few_searches(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them requeues the group, and the promise still holds."""
    searches, search = list[float](), EarliestStart.start_at

    def note(*arguments: Any) -> Any:
        searches.append(life.now)
        return (yield from search(*arguments))

    monkeypatch.setattr(EarliestStart, "start_at", note)
    life.nodes(*(f"n{number}" for number in range(20)))
    pods = run(life, *(timed(life, f"p{number}", f"{number + 60}m", [{}]) for number in range(40)))
    group = f'{{"name":"large","min":{20}}}'
    wait(life, group, 20)
    start, count = start_of(life), len(searches)
    leaving = [pod for number, pod in enumerate(pods[:20]) if number % 2]
    for pod in leaving:
        life.gone(pod)
        life.work(0.1)
    assert len(searches) - count <= 3
    assert start_of(life) == start
    for _ in range(40):
        life.work(1.0)
    assert start_of(life) == start


def test_room_of_spares_is_free_when_their_group_ends(life: Life) -> None:
    life.nodes("n1", "n2", "n3")
    running = '{"name":"running","min":2,"spares":1,"runs":"2h"}'
    members = run(life, *(life.member(f"r{number}", running) for number in range(2)))
    wait(life, '{"name":"large","min":3}', 3)
    assert start_of(life) == pytest.approx(2 * HOUR_S, abs=1.0)
    life.gone(*members)
    assert len(binds(life.work(1.0))) == 3


@pytest.mark.timeout(30)
def test_a_promised_group_with_spares_is_decided_no_more_often_than_others(life: Life) -> None:
    """Its promise needs no victims: that alone does not say that the group fits without its spares."""
    life.nodes("n1", "n2", "n3")
    run(life, *(timed(life, name, "2h") for name in ("one", "two", "three")))
    assert " It starts by " in wait(life, '{"name":"pair","min":2,"spares":1}')
    before = life.machine.group_scheduling.decisions["unschedulable"]
    life.work(60.0)
    assert life.machine.group_scheduling.decisions["unschedulable"] - before < 10


def test_room_of_spares_is_not_free_while_a_member_runs_on(life: Life) -> None:
    life.nodes("n1", "n2", "n3")
    running = '{"name":"running","min":2,"spares":1}'
    first, second = (life.member(f"r{number}", running) for number in range(2))
    run(life, first, changed(second, metadata={"annotations": {**second.annotations, names.RUNS: "2h"}}))
    assert " No declared end of running pods" in wait(life)


def test_a_pod_that_begins_late_moves_a_promise_by_minutes(life: Life) -> None:
    """Otherwise each second has another promise, and each of them a message for every member."""
    life.nodes("n1", "n2")
    life.place(timed(life, "late", "2h"))
    wait(life)
    starts = set[float]()
    for _ in range(240):
        life.machine.queue.requeue(GroupKey("annotation", "default", "pair").entry)
        life.work(1.0)
        starts.add(start_of(life))
    assert 2 <= len(starts) <= 5


def test_nothing_is_due_until_the_next_search_may_start(life: Life) -> None:
    """A search of a large cluster takes long: until its pause ends, the loop sleeps."""
    life.nodes("n1", "n2")
    life.nodes(*(f"small{number}" for number in range(1000)), vfs=0)
    run(life, timed(life, "two", "2h"))
    wait(life)
    for _ in range(60):
        life.work(0.05)
        due = life.machine.next_due()
        assert due is None or due > life.now
