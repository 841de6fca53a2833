"""What a crash in the middle of a preemption leaves of a group that goes as a whole is evicted, and nobody else."""

from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.kube.events import Changed, Identity, Removed, Unreadable
from scheduler.cache.groups.group_sources import PodGroup
from scheduler.cycle.instructions import Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.pending.groups.group_evictions import PATIENCE_S
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, changed

OURS = "mooring: preempting to accommodate a higher priority pod"
# The tests' time begins here.
MARKED = "1970-01-01T00:00:00Z"
DELETED = "2026-01-01T00:10:30Z"
MIN = 2
REASON = "group train: it may only be disrupted as a whole, and its preemption was interrupted"


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    life = Life(machine, make_node, make_pf, make_pod)
    life.nodes("n1", "n2", "n3")
    return life


def _pod_group(life: Life, mode: object = "PodGroup", least: int = MIN) -> None:
    document = {
        "metadata": {"name": "train", "namespace": "default", "uid": "u1"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}, "disruptionMode": mode},
    }
    item = msgspec.convert(document, PodGroup)
    life.machine.handle(PodGroup, Changed(Identity("train", "default"), item), life.now)


def _member(
    life: Life,
    name: str,
    message: str = "",
    reason: str = "PreemptionByScheduler",
    **metadata: Any,
) -> Pod:
    """Make a member that has a node; with a message it is marked."""
    mark = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    mark["lastTransitionTime"] = MARKED
    status = {"conditions": [mark]} if message else {}
    group = {"schedulingGroup": {"podGroupName": "train"}}
    return life.make_pod(name, None, node="n1", spec=group, metadata=metadata, status=status)


def _marked(pod: Pod) -> Pod:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": OURS}
    return changed(pod, status={"conditions": [mark | {"lastTransitionTime": MARKED}]})


def _leaving(life: Life, name: str) -> Pod:
    return _member(life, name, OURS, deletionTimestamp=DELETED)


def _evicted(found: list[Instruction]) -> list[str]:
    return sorted(one.pod.metadata.name for one in found if isinstance(one, Evict))


def _in_time(life: Life, seconds: float = 4 * PATIENCE_S) -> list[str]:
    """Let time pass in small steps, and return who was evicted."""
    end, found = life.now + seconds, list[Instruction]()
    while life.now < end:
        found += life.work(2.5)
    return sorted(set(_evicted(found)))


@pytest.mark.parametrize("mode", ["PodGroup", {"all": {}}])
def test_the_rest_of_an_order_is_evicted(life: Life, mode: object) -> None:
    """The others are gone already, and fewer than the group needs are left; after the patience, and told why."""
    _pod_group(life, mode)
    life.see(member := _member(life, "m0", OURS))
    assert _in_time(life, PATIENCE_S - 5.0) == []
    (evict,) = (one for one in (*life.work(5.0), *life.work(5.0), *life.work(5.0)) if isinstance(one, Evict))
    (report,) = life.machine.finished(evict, "evicted", life.now)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == ("Preempted", f"evicted: {REASON}")
    life.see(changed(member, metadata={"deletionTimestamp": DELETED}))
    assert _in_time(life) == []


@pytest.mark.parametrize(("disruption", "evicted"), [("", ["m0"]), (',"disruption":"pod"', [])])
def test_the_rest_of_a_group_by_annotation_is_evicted(life: Life, disruption: str, evicted: list[str]) -> None:
    """Unless its members go one by one."""
    group = {names.GROUP: f'{{"name":"train","min":{MIN}{disruption}}}'}
    life.see(_marked(life.make_pod("m0", None, node="n1", annotations=group)))
    assert _in_time(life) == evicted


def test_a_group_of_which_enough_are_left_goes_on(life: Life) -> None:
    """Though all were to go."""
    _pod_group(life)
    life.see(_leaving(life, "m0"), *(_member(life, f"m{number}", OURS) for number in range(1, 1 + MIN)))
    assert _in_time(life) == []


def test_a_group_of_which_nobody_is_known_to_have_gone_goes_on(life: Life) -> None:
    """The crash came before the first deletion."""
    _pod_group(life)
    life.see(*(_member(life, f"m{number}", OURS) for number in range(3)))
    assert _in_time(life) == []


def test_a_member_that_leaves_later_takes_nobody_with_it(life: Life) -> None:
    """The crash came before the first deletion, and the member leaves for another reason."""
    _pod_group(life)
    life.see(_member(life, "m0", OURS), other := _member(life, "m1", OURS))
    assert _in_time(life, PATIENCE_S + 10.0) == []
    life.see(changed(other, metadata={"deletionTimestamp": DELETED}))
    assert _in_time(life) == []


def test_a_group_that_was_not_marked_to_the_end_goes_on(life: Life) -> None:
    """Nobody is deleted before all are marked."""
    _pod_group(life, least=3)
    life.see(_member(life, "m0", OURS), _member(life, "m1"))
    assert _in_time(life) == []


def test_a_group_that_lives_again_goes_on(life: Life) -> None:
    """Its controller has made others in place of those that are gone, and they have a node."""
    _pod_group(life, least=3)
    life.see(_leaving(life, "m0"), _member(life, "m1", OURS))
    life.work(10.0)
    life.see(_member(life, "new0"), _member(life, "new1"))
    assert _in_time(life) == []


def test_a_new_group_of_the_same_name_is_not_touched(life: Life) -> None:
    """The order was carried out; what comes after bears no mark."""
    _pod_group(life)
    old = [_leaving(life, f"m{number}") for number in range(3)]
    life.see(*old)
    life.work(10.0)
    life.gone(*old)
    life.see(_member(life, "new"))
    assert _in_time(life) == []


@pytest.mark.parametrize("mode", [None, "Pod", {"single": {}}])
def test_members_that_go_as_single_pods_stay(life: Life, mode: object) -> None:
    _pod_group(life, mode)
    life.see(_leaving(life, "m0"), _member(life, "m1", OURS))
    assert _in_time(life) == []


def test_without_its_pod_group_nobody_knows_how_the_group_goes(life: Life) -> None:
    _pod_group(life)
    life.see(_leaving(life, "m0"), _member(life, "m1", OURS))
    life.machine.handle(PodGroup, Removed(Identity("train", "default")), life.now)
    assert _in_time(life) == []


def test_nor_does_anybody_where_it_cannot_be_read(life: Life) -> None:
    """For victims such a group counts as one that goes as a whole, so that nobody of it goes alone."""
    unreadable = Unreadable(Identity("train", "default"), "it is no object")
    life.machine.handle(PodGroup, unreadable, life.now)
    life.see(_leaving(life, "m0"), _member(life, "m1", OURS))
    assert _in_time(life) == []


@pytest.mark.parametrize(("message", "reason"), [("other: preempting", "PreemptionByScheduler"), (OURS, "Evicted")])
def test_marks_of_others_do_not_count(life: Life, message: str, reason: str) -> None:
    _pod_group(life)
    life.see(_member(life, "m0", message, reason))
    assert _in_time(life) == []


def test_a_mark_that_is_taken_back_ends_the_matter(life: Life) -> None:
    """The API server refused the deletion."""
    _pod_group(life)
    life.see(member := _member(life, "m0", OURS))
    life.work(PATIENCE_S / 2)
    life.see(changed(member, status={"conditions": []}))
    assert _in_time(life) == []


def test_a_deletion_that_was_under_way_is_not_repeated(life: Life) -> None:
    """The order has marked all, and deletes one after another."""
    _pod_group(life)
    life.see(member := _member(life, "m0", OURS))
    life.work(PATIENCE_S / 2)
    life.see(changed(member, metadata={"deletionTimestamp": DELETED}))
    assert _in_time(life) == []


def test_a_refused_eviction_is_tried_again(life: Life) -> None:
    """A disruption budget may forbid it for a while."""
    _pod_group(life)
    life.see(_member(life, "m0", OURS))
    found = [one for _ in range(25) for one in life.work(2.5) if isinstance(one, Evict)]
    assert len(found) == 1
    assert life.machine.finished(found[0], "refused", life.now) == []
    assert _in_time(life, PATIENCE_S - 5.0) == []
    assert _in_time(life, 20.0) == ["m0"]


def test_the_machine_wakes_up_for_it(life: Life) -> None:
    """No event has to come: `next_due` leads to the eviction in time."""
    _pod_group(life)
    life.see(_member(life, "m0", OURS))
    found = list[Instruction]()
    for _ in range(50):
        due = life.machine.next_due()
        assert due is not None
        life.now = max(life.now, due)
        found += life.work()
        if _evicted(found):
            break
    assert PATIENCE_S <= life.now <= PATIENCE_S + 10.0


def test_hundreds_are_evicted_some_at_a_time(life: Life) -> None:
    """None twice within the patience."""
    _pod_group(life, least=512)
    life.see(*(_member(life, f"m{number}", OURS) for number in range(300)))
    most, found = 0, list[str]()
    for _ in range(40):
        some = _evicted(life.work(2.5))
        most, found = max(most, len(some)), found + some
    assert most == 64
    assert len(found) == len(set(found)) == 300
