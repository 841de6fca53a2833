"""Room that is kept for a group: by a new leader until it has decided, and for a member that moves meanwhile."""

import time

import pytest

from mooring import names
from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from scheduler.kube.objects import Pod
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.group_life import (
    PAIR,
    TRAIN,
    Life,
    annotated,
    binds,
    bound_names,
    changed,
    fill,
    orders,
    pair,
    victims,
)

GOES = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
HOLD_S = 30.0


def _on(pod: Pod, node: str) -> Pod:
    return changed(pod, status={"nominatedNodeName": node})


def _kept_on(life: Life) -> dict[str, str]:
    nodes = {room.uid: room.node for one in life.machine.reservations.all() for room in one.rooms.values()}
    return {life.machine.pending_pods[uid].pod.metadata.name: node for uid, node in nodes.items()}


def _take_over(life: Life) -> None:
    """Let the machine do what comes before the next decision."""
    life.machine.tick(life.now)
    assert life.machine.step(life.now) == []


def _members(life: Life, *nodes: str, group: str = PAIR, priority: int = 10) -> list[Pod]:
    """Show a member for each node that is in its status, empty for none."""
    members = [life.member(f"m{number}", group, spec={"priority": priority}) for number in range(len(nodes))]
    shown = [_on(one, node) if node else one for one, node in zip(members, nodes, strict=True)]
    life.see(*shown)
    return shown


@pytest.mark.parametrize("is_group", [True, False])
def test_an_older_pod_does_not_take_the_room_for_which_pods_were_sent_away(life: Life, is_group: bool) -> None:
    """The victims are gone when the new leader reads the cluster; a single pod and a group keep their VFs alike."""
    older = life.make_pod("older", [{}, {}], spec={"priority": 10, "preemptionPolicy": "Never"})
    fill(life, "n1", "n2")
    life.see(older)
    life.work()
    pods = pair(life) if is_group else [life.make_pod(f"m{n}", [{}, {}], spec={"priority": 10}) for n in range(2)]
    life.see(*pods)
    assert victims(life.work()) == ["on-n1", "on-n2"]
    nodes = _kept_on(life)
    life = life.successor()
    life.nodes("n1", "n2")
    life.see(older, *(_on(pod, nodes[pod.metadata.name]) for pod in pods))
    assert bound_names(life.work(1.0)) == ["m0", "m1"]


def test_vfs_of_pods_that_are_leaving_are_kept_one_by_one(life: Life) -> None:
    """What the first victim leaves is kept until the last one is gone, and nobody else is sent away."""
    running = fill(life, "n1", "n2", "n3", "n4")
    life.see(life.make_pod("older", [{}, {}], spec={"priority": 10, "preemptionPolicy": "Never"}))
    life.work()
    marked = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}
    life.see(*(changed(one, metadata=GOES, status=marked) for one in running[:2]))
    _members(life, "n1", "n2")
    assert victims(life.work(1.0)) == []
    life.gone(running[0])
    found = life.work(15.0)
    assert (binds(found), victims(found)) == ([], [])
    assert _kept_on(life) == {"m0": "n1", "m1": "n2"}
    life.gone(running[1])
    assert bound_names(life.work(15.0)) == ["m0", "m1"]


def _held_room(life: Life) -> None:
    """Let n1 hold VFs of a victim that the new leader never saw, n2 be free, and others be full."""
    fill(life, "n3", "n4")
    life.nodes("n2")
    life.show_node("n1", life.make_pf(vfs=2, out=(Out(Indexes.of([0]), f"{HELD_BY}gone"),)))


@pytest.mark.parametrize("is_group", [True, False])
def test_vfs_that_a_node_still_holds_for_gone_victims_are_waited_for(life: Life, is_group: bool) -> None:
    """The new leader sends nobody else away, until the time is over."""
    _held_room(life)
    if is_group:
        _members(life, "n1", "n2")
    else:
        life.remove_node("n2")
        life.see(_on(life.make_pod("m0", [{}, {}], spec={"priority": 10}), "n1"))
    before = {"m0": "n1", "m1": "n2"} if is_group else {"m0": "n1"}
    for _ in range(3):
        found = life.work(15.0)
        assert (binds(found), victims(found)) == ([], [])
        assert _kept_on(life) == before
    life.nodes("n1")
    assert bound_names(life.work(15.0)) == sorted(before)


def test_vfs_that_do_not_come_back_are_not_waited_for_for_ever(life: Life) -> None:
    _held_room(life)
    _members(life, "n1", "n2")
    assert victims(life.work(15.0)) == []
    assert len(victims(life.work(VF_PATIENCE_S + 1.0) + life.work(15.0))) == 1
    assert "n1" not in _kept_on(life).values()


def test_the_room_of_some_members_is_kept_until_the_group_is_decided_about(life: Life) -> None:
    """The others' was not written, or there was none; the decision finds no room for all, and ends it."""
    fill(life, "n1", spec={"priority": 10})
    life.nodes("n2")
    life.see(life.make_pod("older", [{}, {}], spec={"priority": 10}))
    _members(life, "n2", "")
    _take_over(life)
    assert _kept_on(life) == {"m0": "n2"}
    assert bound_names(life.work()) == []
    assert _kept_on(life) == {}
    assert bound_names(life.work(15.0)) == ["older"]


def test_no_room_is_kept_for_a_group_whose_members_contradict_each_other(life: Life) -> None:
    life.nodes("n1", "n2")
    groups = (PAIR, '{"name":"pair","min":1}')
    life.see(*(_on(life.member("", group), f"n{number}") for number, group in enumerate(groups, 1)))
    assert life.machine.step(life.now) is None
    assert _kept_on(life) == {}


@pytest.mark.parametrize("is_seen", [False, True])
def test_room_is_kept_for_half_a_minute_for_a_group_of_which_a_member_is_missing(life: Life, is_seen: bool) -> None:
    """It was deleted before the new leader's first decision, seen by it or not, and may be made again."""
    life.nodes("n1", "n2")
    *_, last = _members(life, "n1", "n2", "", group=TRAIN)
    if not is_seen:
        life.gone(last)
    _take_over(life)
    if is_seen:
        life.gone(last)
    life.see(life.make_pod("other", [{}]))
    assert bound_names(life.work(29.0)) == []
    assert _kept_on(life) == {"m0": "n1", "m1": "n2"}
    assert bound_names(life.work(15.0)) == ["other"]
    assert len(life.machine.reservations) == 0


def test_what_is_kept_on_one_node_are_other_vfs_for_each_pod(life: Life) -> None:
    """Members of a group beside each other, and beside a single pod: an older pod gets none of their VFs."""
    life.nodes("n1", vfs=4)
    life.see(life.make_pod("older", [{}]), _on(life.make_pod("alone", [{}, {}]), "n1"))
    life.see(*(_on(life.member(f"m{number}", PAIR, request=[{}]), "n1") for number in range(2)))
    assert bound_names(life.work()) == ["alone", "m0", "m1"]


def test_no_room_is_left_for_what_is_kept_for_less_important_pods(life: Life) -> None:
    life.nodes("n1", "n2")
    life.see(life.make_pod("older", [{}, {}], spec={"priority": 10}))
    life.see(_on(life.make_pod("low", [{}, {}], spec={"priority": 5}), "n1"))
    _members(life, "n1", "n2")
    assert bound_names(life.work()) == ["m0", "m1"]


def test_vfs_are_kept_on_the_rails_of_a_group(life: Life) -> None:
    """Interface k on the k-th network, though both would fit on the first."""
    for node in ("n1", "n2"):
        life.show_node(node, life.make_pf(0, vfs=2, network="rail0"), life.make_pf(1, vfs=1, network="rail1"))
    life.see(life.make_pod("older", [{"network": "rail1"}], spec={"priority": 10}))
    _members(life, "n1", "n2", group='{"name":"pair","min":2,"rails":"index"}')
    assert bound_names(life.work()) == ["m0", "m1"]


@pytest.mark.parametrize("nodes", [("n3", "n2"), ("", "n2"), ("", ""), ("gone", "n2")])
def test_what_the_last_leader_still_writes_counts(life: Life, nodes: tuple[str, str]) -> None:
    life.nodes("n1", "n2", "n3")
    members = _members(life, "n1", "n2")
    _take_over(life)
    life.see(*(_on(pod, node) for pod, node in zip(members, nodes, strict=True)))
    _take_over(life)
    known = {f"m{number}": node for number, node in enumerate(nodes) if node.startswith("n")}
    assert _kept_on(life) == known
    # With its VFs, which were kept for it before too.
    rooms = [room for one in life.machine.reservations.all() for room in one.rooms.values()]
    assert all(room.assignment is not None for room in rooms)


@pytest.mark.parametrize(("of_group", "own", "of_other", "bound"), [(10, 1, 10, ["m0", "m1"]), (8, 99, 9, ["older"])])
def test_room_is_kept_by_the_priority_of_the_pod_group(
    life: Life, of_group: int, own: int, of_other: int, bound: list[str]
) -> None:
    """Whatever the members' own; pods may be listed before it."""
    life.nodes("n1", "n2")
    life.see(life.make_pod("older", [{}, {}], spec={"priority": of_other, "preemptionPolicy": "Never"}))
    spec = {"priority": own, "preemptionPolicy": "Never", "schedulingGroup": {"podGroupName": "pair"}}
    life.see(*(_on(life.member(f"m{number}", "", spec=spec), f"n{number + 1}") for number in range(2)))
    life.pod_group("pair", schedulingPolicy={"gang": {"minCount": 2}}, priority=of_group)
    assert bound_names(life.work()) == bound


def test_the_room_of_a_group_with_first_call_stays_its_own(life: Life) -> None:
    """A standby that has seen the group wait for long enough gives it first call at once."""
    life = life.successor(Machine("mooring", group_options=GroupOptions(hold_s=HOLD_S)))
    life.nodes("n1")
    life.see(life.make_pod("older", [{}, {}]))
    _members(life, "n1", "", priority=0)
    assert binds(life.work(2 * HOLD_S)) == []
    assert _kept_on(life) == {"m0": "n1"}
    life.machine.check()


def test_a_node_in_the_status_of_a_later_member_changes_nothing_of_what_is_kept(life: Life) -> None:
    """The group was decided about; who else may write the status of a pod does not end that."""
    fill(life, "n1", "n2")
    life.nodes("n3", vfs=0)
    pair(life)
    life.work()
    kept = _kept_on(life)
    assert len(kept) == 2
    life.see(_on(life.member("m2", PAIR, spec={"priority": 10}), "n3"))
    life.machine.step(life.now)
    assert _kept_on(life) == kept


def test_a_large_group_is_taken_over_in_portions_before_any_decision(life: Life) -> None:
    """Whoever goes meanwhile keeps nothing; an older pod gets the room of the one that has none."""
    count = 300
    life.nodes(*(f"n{number}" for number in range(count)))
    life.see(life.make_pod("older", [{}, {}], spec={"priority": 10}))
    members = _members(life, *(f"n{n}" for n in range(count)), group=f'{{"name":"train","min":{count - 1}}}')
    longest_s = 0.0
    for number in range(5):
        began_s = time.process_time()
        assert life.machine.step(life.now) == []
        longest_s = max(longest_s, time.process_time() - began_s)
        assert life.machine.is_trying == (number < 4)
        if not number:
            life.gone(members[0])
    assert longest_s < 0.05
    assert len(life.machine.reservations) == count - 1
    found = life.work()
    assert len(binds(found)) == count
    assert {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(found)}["older"] == "n0"


OTHER = '{"name":"other","min":2}'


@pytest.mark.parametrize("before", ['{"name":"first","min":1}', ""])
def test_room_kept_for_a_member_elsewhere_does_not_count_beside_the_member(life: Life, before: str) -> None:
    """Counted twice in a dry run it would leave VFs claimed for ever, as the machine's check shows."""
    life.nodes("n1", vfs=4)
    oldest = life.member("x", OTHER, spec={"priority": 10})
    life.place(life.make_pod("running", [{}, {}, {}, {}]))
    moved = life.member("m0", before, spec={"priority": 10})
    life.see(moved)
    if before:
        life.see(life.member("m1", before, spec={"priority": 10}))
    assert orders(life.work())
    life.see(oldest, annotated(moved, {names.GROUP: OTHER}))
    assert len(orders(life.work(1.0))) == 1
    life.machine.check()
    assert [room.node for one in life.machine.reservations.all() for room in one.rooms.values()] == ["n1", "n1"]
