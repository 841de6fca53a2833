"""What a crash in the middle of a preemption leaves of a group that goes as a whole is evicted, and nobody else."""

from collections.abc import Callable

import msgspec
import pytest

from mooring import names
from mooring.kube.events import Changed, Identity, Removed, Unreadable
from scheduler.cycle.instructions import Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.kube.workload_objects import PodGroup
from scheduler.pending.groups.group_evictions import PATIENCE_S
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import Life, changed

OURS = "mooring: preempting to accommodate a higher priority pod"
# The tests' time begins here.
MARKED = "1970-01-01T00:00:00Z"
DELETED = "2026-01-01T00:10:30Z"
MIN = 2
TRAIN = Identity("train", "default")
REASON = "group train: it may only be disrupted as a whole, and its preemption was interrupted"


@pytest.fixture(autouse=True)
def _nodes(life: Life) -> None:
    life.nodes("n1", "n2", "n3")


def _pod_group(life: Life, mode: object = "PodGroup", least: int = MIN) -> None:
    document = {
        "metadata": {"name": "train", "namespace": "default", "uid": "u1"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}, "disruptionMode": mode},
    }
    item = msgspec.convert(document, PodGroup)
    life.machine.handle(PodGroup, Changed(TRAIN, item), life.now)


def _condition(message: str = OURS, reason: str = "PreemptionByScheduler") -> Json:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"conditions": [mark | {"lastTransitionTime": MARKED}]}


STATES: dict[str, Json] = {
    "bare": {},
    "marked": {"status": _condition()},
    "leaving": {"status": _condition(), "metadata": {"deletionTimestamp": DELETED}},
    "another's": {"status": _condition("other: preempting")},
    "evicted": {"status": _condition(reason="Evicted")},
}


def _show(life: Life, *states: str, name: str = "m") -> list[Pod]:
    """Show members that have a node, in these states."""
    spec = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [
        life.make_pod(f"{name}{number}", None, node="n1", spec=spec, **STATES[state])
        for number, state in enumerate(states)
    ]
    life.see(*pods)
    return pods


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
    (member,) = _show(life, "marked")
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
    life.see(life.make_pod("m0", None, node="n1", annotations=group, **STATES["marked"]))
    assert _in_time(life) == evicted


@pytest.mark.parametrize(
    ("states", "least", "mode"),
    [
        pytest.param("leaving marked marked", MIN, "PodGroup", id="enough are left, though all were to go"),
        pytest.param("marked marked marked", MIN, "PodGroup", id="the crash came before the first deletion"),
        pytest.param("marked bare", 3, "PodGroup", id="no member is deleted before all are marked"),
        pytest.param("leaving marked", MIN, None, id="members go one by one by default"),
        pytest.param("leaving marked", MIN, "Pod", id="members go one by one"),
        pytest.param("leaving marked", MIN, {"single": {}}, id="members go one by one (v1beta1)"),
        pytest.param("another's", MIN, "PodGroup", id="marked by another scheduler"),
        pytest.param("evicted", MIN, "PodGroup", id="marked by an eviction"),
    ],
)
def test_a_group_goes_on_whose_order_was_not_begun(life: Life, states: str, least: int, mode: object) -> None:
    _pod_group(life, mode, least)
    _show(life, *states.split())
    assert _in_time(life) == []


def _leave(life: Life, pods: list[Pod]) -> None:
    life.see(changed(pods[-1], metadata={"deletionTimestamp": DELETED}))


def _replace(life: Life, pods: list[Pod]) -> None:
    life.gone(*pods)
    _show(life, "bare", name="new")


@pytest.mark.parametrize(
    ("states", "least", "wait_s", "event"),
    [
        pytest.param("marked marked", MIN, PATIENCE_S + 10.0, _leave, id="a member leaves for another reason"),
        pytest.param("marked", MIN, PATIENCE_S / 2, _leave, id="the deletion was under way"),
        pytest.param(
            "marked",
            MIN,
            PATIENCE_S / 2,
            lambda life, pods: life.see(changed(pods[0], status={"conditions": []})),
            id="the API server refused the deletion, and the mark is taken back",
        ),
        pytest.param(
            "leaving marked",
            3,
            10.0,
            lambda life, _: _show(life, "bare", "bare", name="new"),
            id="its controller has made others, which have a node",
        ),
        pytest.param("leaving leaving leaving", MIN, 10.0, _replace, id="a new group of the same name has no mark"),
        pytest.param(
            "leaving marked",
            MIN,
            0.0,
            lambda life, _: life.machine.handle(PodGroup, Removed(TRAIN), life.now),
            id="without its PodGroup nobody knows how the group goes",
        ),
        # For victims it counts as one that goes as a whole, so that nobody of it goes alone.
        pytest.param(
            "leaving marked",
            MIN,
            0.0,
            lambda life, _: life.machine.handle(PodGroup, Unreadable(TRAIN, "it is no object"), life.now),
            id="nor where it cannot be read",
        ),
    ],
)
def test_a_group_is_left_alone_after_an_event(
    life: Life, states: str, least: int, wait_s: float, event: Callable[[Life, list[Pod]], object]
) -> None:
    _pod_group(life, least=least)
    pods = _show(life, *states.split())
    assert _in_time(life, wait_s) == []
    event(life, pods)
    assert _in_time(life) == []


def test_a_refused_eviction_is_tried_again(life: Life) -> None:
    """A disruption budget may forbid it for a while."""
    _pod_group(life)
    _show(life, "marked")
    found = [one for _ in range(25) for one in life.work(2.5) if isinstance(one, Evict)]
    assert len(found) == 1
    assert life.machine.finished(found[0], "refused", life.now) == []
    assert _in_time(life, PATIENCE_S - 5.0) == []
    assert _in_time(life, 20.0) == ["m0"]


def test_the_machine_wakes_up_for_it(life: Life) -> None:
    """No event has to come: `next_due` leads to the eviction in time."""
    _pod_group(life)
    _show(life, "marked")
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
    _pod_group(life, least=512)
    _show(life, *["marked"] * 300)
    most, found = 0, list[str]()
    for _ in range(40):
        some = _evicted(life.work(2.5))
        most, found = max(most, len(some)), found + some
    assert most == 64
    assert len(found) == len(set(found)) == 300
