"""The preemption of a group that goes as a whole is completed if a crash or a refused deletion cuts it short."""

import itertools
from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.instructions import Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.pod_groups import PodGroup
from scheduler.pending.groups import partly_preempted
from scheduler.pending.groups.partly_preempted import PATIENCE_S
from scheduler.state.machine import Machine
from tests.scheduler.state.groups.life import Life, MakeNode, MakePf, MakePod, changed

# The order of the tests is given at ten minutes past, with 30 s for the pods to end.
BEFORE, ORDERED, DELETED = "2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:10:30Z"
OURS = "mooring: preempting to accommodate a higher priority pod"
REASON = "group train: it may only be disrupted as a whole, and pod default/m0 of it was preempted"


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    life = Life(machine, make_node, make_pf, make_pod)
    life.nodes("n1", "n2", "n3")
    return life


def _pod_group(life: Life, mode: object = "PodGroup", created: str | None = BEFORE) -> None:
    document = {
        "metadata": {"name": "train", "namespace": "default", "uid": "u1", "creationTimestamp": created},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": mode},
    }
    item = msgspec.convert(document, PodGroup)
    life.machine.see(PodGroup, Changed(Identity("train", "default"), item), life.now)


def _member(life: Life, name: str, since: str = BEFORE, created: str | None = None) -> Pod:
    """Make a member that has a node since a time."""
    return life.make_pod(
        name,
        None,
        node="n1",
        spec={"schedulingGroup": {"podGroupName": "train"}},
        metadata={"creationTimestamp": created or since},
        status={"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]},
    )


def _deleted(
    pod: Pod,
    reason: str = "PreemptionByScheduler",
    message: str = OURS,
    at: str = DELETED,
    grace: int | None = 30,
) -> Pod:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return changed(
        pod,
        metadata={"deletionTimestamp": at, "deletionGracePeriodSeconds": grace},
        status={"conditions": [*msgspec.to_builtins(pod.status.conditions), condition]},
    )


def _cut_short(life: Life, **evidence: Any) -> list[Pod]:
    """Show three members of which one is being deleted, as a new leader sees them; return them."""
    members = [_member(life, f"m{number}") for number in range(3)]
    members[0] = _deleted(members[0], **evidence)
    life.see(*members)
    assert _evictions(life.work()) == []
    return members


def _evictions(found: list[Instruction]) -> list[Evict]:
    return [one for one in found if isinstance(one, Evict)]


def _evicted(found: list[Instruction]) -> list[str]:
    return sorted(one.pod.metadata.name for one in _evictions(found))


def _all_evicted(life: Life, seconds: float = 2 * PATIENCE_S) -> list[str]:
    """Let time pass in small steps, and return who was evicted."""
    end, found = life.now + seconds, list[Instruction]()
    while life.now < end:
        found += life.work(5.0)
    return _evicted(found)


@pytest.mark.parametrize("mode", ["PodGroup", {"all": {}}])
def test_a_new_leader_completes_what_a_crash_has_cut_short(life: Life, mode: object) -> None:
    """After a while, for the deletions may be under way; each once, and told why."""
    _pod_group(life, mode)
    first, *_ = _cut_short(life)
    assert _evictions(life.work(PATIENCE_S - 1.0)) == []
    # The pod that shows it ends earlier than the patience.
    life.gone(first)
    found = _evictions(life.work(2.0) + life.work(5.0))
    assert _evicted(list(found)) == ["m1", "m2"]
    (report,) = life.machine.finished(found[0], "evicted", life.now)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == ("Preempted", f"evicted: {REASON}")
    assert _all_evicted(life, 600.0) == []


def test_the_machine_wakes_up_for_it(life: Life) -> None:
    _pod_group(life)
    life.see(_deleted(_member(life, "m0")), _member(life, "m1"))
    found = list[Instruction]()
    for _ in range(50):
        due = life.machine.next_due()
        assert due is not None
        life.now = max(life.now, due)
        found += life.work()
        if _evictions(found):
            break
    assert PATIENCE_S <= life.now <= PATIENCE_S + 10.0


def test_members_that_are_still_being_deleted_one_after_another_are_not_evicted(life: Life) -> None:
    """The order is under way: the patience begins again with each."""
    _pod_group(life)
    members = _cut_short(life)
    life.work(PATIENCE_S - 5.0)
    life.see(_deleted(members[1]))
    assert _all_evicted(life, PATIENCE_S - 1.0) == []
    life.see(_deleted(members[2]))
    assert _all_evicted(life, 600.0) == []


@pytest.mark.parametrize("since", [ORDERED, "2026-01-01T00:09:59Z", "2026-01-01T00:10:01Z", "2026-01-01T01:00:00Z"])
def test_a_group_made_again_under_the_same_name_is_not_touched(life: Life, since: str) -> None:
    """Only what is left of the old one goes, and when that is gone nobody."""
    _pod_group(life)
    first, *others = _cut_short(life)
    life.see(*(_member(life, f"new{number}", since) for number in range(3)))
    assert _all_evicted(life) == ["m1", "m2"]
    life.gone(first, *others)
    life.see(*(_member(life, f"late{number}") for number in range(3)))
    assert _all_evicted(life) == []


@pytest.mark.parametrize(
    ("created", "since"),
    [
        (ORDERED, ORDERED),
        # Another API server's clock is a little late.
        ("2026-01-01T00:09:59Z", "2026-01-01T00:09:59Z"),
        ("2026-01-01T00:10:12Z", "2026-01-01T00:10:15Z"),
        # It waited before the order, and has a node since.
        (BEFORE, "2026-01-01T00:11:00Z"),
        (ORDERED, BEFORE),
        (BEFORE, "soon"),
        (BEFORE, "2026-01-01T00:06:00"),
    ],
)
def test_a_new_leader_that_finds_only_the_group_made_again_touches_nobody(life: Life, created: str, since: str) -> None:
    """One pod of the old one takes long to end; not within the second of the order either."""
    _pod_group(life)
    life.see(_deleted(_member(life, "m0")), _member(life, "new", since, created))
    life.see(changed(_member(life, "unsaid"), status={"conditions": None}))
    assert _all_evicted(life, 600.0) == []


def test_members_that_come_later_are_not_added(life: Life) -> None:
    """Whatever their times say."""
    _pod_group(life)
    _cut_short(life)
    life.see(_member(life, "later"))
    assert _all_evicted(life) == ["m1", "m2"]


def test_what_completes_an_order_is_no_sign_of_another_one(life: Life) -> None:
    """Neither for this leader nor for the next one, who finds members of the group made again."""
    _pod_group(life)
    _, *others = _cut_short(life)
    assert _all_evicted(life) == ["m1", "m2"]
    life.see(_member(life, "new", "2026-01-01T00:12:00Z"))
    late = "2026-01-01T00:20:30Z"
    evicted = _deleted(others[0], "EvictionByEvictionAPI", "Eviction API: evicting", at=late)
    # Of one the condition was written at the order, and only its deletion was refused.
    life.see(evicted, _deleted(others[1], at=late))
    assert _all_evicted(life, 600.0) == []
    second = Life(Machine("mooring"), life.make_node, life.make_pf, life.make_pod)
    second.nodes("n1")
    _pod_group(second)
    second.see(_member(second, "new", "2026-01-01T00:12:00Z"), evicted)
    assert _all_evicted(second, 600.0) == []


def test_a_refused_eviction_is_tried_again_and_later_each_time(life: Life) -> None:
    _pod_group(life)
    first, *_ = _cut_short(life)
    life.gone(first)
    times, began = list[float](), life.now
    while life.now < began + 1000.0:
        for order in _evictions(life.work(5.0)):
            assert life.machine.finished(order, "refused", life.now) == []
            if order.pod.metadata.name == "m1":
                times.append(life.now)
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits[:3] == [60.0, 120.0, 240.0]
    (order, *_) = [one for _ in range(200) for one in _evictions(life.work(5.0))]
    life.machine.finished(order, "evicted", life.now)
    assert order.pod.metadata.name not in _all_evicted(life, 2000.0)


def test_the_pod_group_may_be_unknown_at_first(life: Life) -> None:
    """Its API was not served, or its list came late; also when the pod that shows the order is gone by then."""
    first, *_ = _cut_short(life)
    assert _all_evicted(life) == []
    life.gone(first)
    assert _all_evicted(life) == []
    _pod_group(life)
    assert _all_evicted(life) == ["m1", "m2"]


@pytest.mark.parametrize("created", [ORDERED, "2026-01-01T00:30:00Z", None, "never"])
def test_a_pod_group_that_came_after_the_order_says_nothing_about_it(life: Life, created: str | None) -> None:
    _cut_short(life)
    _pod_group(life, created=created)
    assert _all_evicted(life, 600.0) == []


def test_what_the_pod_group_said_first_holds(life: Life) -> None:
    """Also where it is deleted later."""
    _pod_group(life)
    _cut_short(life)
    life.machine.see(PodGroup, Removed(Identity("train", "default")), life.now)
    assert _all_evicted(life) == ["m1", "m2"]


@pytest.mark.parametrize("mode", ["Pod", None, {"single": {}}])
def test_a_group_whose_members_go_one_by_one_is_left_alone(life: Life, mode: object) -> None:
    """Also where the PodGroup says another thing later."""
    _pod_group(life, mode)
    _cut_short(life)
    assert _all_evicted(life) == []
    _pod_group(life)
    assert _all_evicted(life, 600.0) == []


@pytest.mark.parametrize(
    "evidence",
    [
        {"message": "default-scheduler: preempting to accommodate a higher priority pod"},
        {"message": "mooring-2: preempting to accommodate a higher priority pod"},
        {"reason": "DeletionByTaintManager"},
        {"at": "soon"},
        {"at": "2026-01-01T00:10:30"},
        {"at": "0001-01-01T00:00:00Z"},
        {"grace": None},
        {"grace": 1 << 62},
    ],
)
def test_a_member_that_others_delete_is_no_sign(life: Life, evidence: dict[str, Any]) -> None:
    """Or whose times cannot be read."""
    _pod_group(life)
    _cut_short(life, **evidence)
    assert _all_evicted(life, 600.0) == []


def test_a_member_that_is_only_marked_is_no_sign(life: Life) -> None:
    _pod_group(life)
    life.see(changed(_deleted(_member(life, "m0")), metadata={"deletionTimestamp": None}), _member(life, "m1"))
    assert _all_evicted(life, 600.0) == []


def test_another_group_is_left_alone(life: Life) -> None:
    """Also one of the same name in another namespace."""
    _pod_group(life)
    _cut_short(life)
    other = changed(_member(life, "other"), spec={"schedulingGroup": {"podGroupName": "eval"}})
    elsewhere = changed(_member(life, "m1"), metadata={"namespace": "tenant", "uid": "elsewhere"})
    life.see(other, elsewhere, changed(_member(life, "single"), spec={"schedulingGroup": None}))
    assert _all_evicted(life) == ["m1", "m2"]


def test_many_members_are_evicted_in_portions(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partly_preempted, "_AT_ONCE", 4)
    _pod_group(life)
    life.see(_deleted(_member(life, "m")), *(_member(life, f"m{number}") for number in range(10)))
    life.work()
    found = [_evicted(life.work(seconds)) for seconds in (PATIENCE_S + 1.0, 5.0, 5.0, 5.0, 5.0)]
    assert sorted(name for names in found for name in names) == sorted(f"m{number}" for number in range(10))
    assert max(map(len, found)) == 4


def test_nothing_is_kept_when_all_have_gone(life: Life) -> None:
    """Of an order that was carried out, and of signs that nobody looks at: a scheduler that does not lead."""
    _pod_group(life)
    members = _cut_short(life)
    life.see(*map(_deleted, members))
    life.gone(*members)
    life.work(60.0)
    kept = life.machine.group_scheduling.partly_preempted
    assert (kept.next_due(), len(kept)) == (None, 0)
    for number in range(partly_preempted.MOST_SIGNS + 50):
        pod = _deleted(_member(life, f"w{number}"))
        life.see(changed(pod, spec={"schedulingGroup": {"podGroupName": f"g{number}"}}))
    assert len(kept) == partly_preempted.MOST_SIGNS
