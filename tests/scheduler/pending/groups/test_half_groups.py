"""With ``--end-half-groups`` a group that stays half placed is ended; without it, it waits for ever."""

from typing import Any

import pytest

from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import Evict, Report
from scheduler.kube.objects import Pod
from scheduler.kube.workload_objects import PodGroup
from tests.scheduler.group_life import Life, as_bound, binds, changed
from tests.scheduler.pending.groups.conftest import MakeLife

END_S = 60.0


@pytest.fixture(params=[END_S])
def life(request: pytest.FixtureRequest, make_life: MakeLife) -> Life:
    return make_life(end_half_s=request.param)


def _half(life: Life, **fields: Any) -> list[Pod]:
    """Place a group of three, take a node from it, and make the lost member again, for which there is no room."""
    life.nodes("n1", "n2", "n3")
    life.members(3, **fields)
    running = life.bound(*binds(life.work()))
    life.remove_node("n3")
    lost = next(pod for pod in running if pod.spec.node_name == "n3")
    life.gone(lost)
    life.see(life.member("again", **fields))
    assert _evictions(life.work(1.0)) == []
    return [pod for pod in running if pod is not lost]


def _evictions(found: list[Any]) -> list[Evict]:
    return [one for one in found if isinstance(one, Evict)]


def test_the_placed_members_of_a_group_that_stays_half_are_evicted(life: Life) -> None:
    """After the time, not before; each is told why under a name of its own."""
    running = _half(life)
    assert _evictions(life.work(END_S - 1.0)) == []
    evictions = _evictions(life.work(2.0))
    assert {one.pod.metadata.uid for one in evictions} == {pod.metadata.uid for pod in running}
    message = "evicted: group train: only 2 of at least 3 members have been placed for 60 s"
    (report,) = life.machine.finished(evictions[0], "evicted", life.now)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == ("HalfGroup", message)


def test_a_group_that_is_completed_in_time_goes_on(life: Life) -> None:
    """The time begins again when it is half placed again."""
    _half(life)
    life.work(END_S - 1.0)
    life.nodes("n4")
    (again,) = life.bound(*binds(life.work(1.0)))
    assert _evictions(life.work(2 * END_S)) == []
    life.remove_node("n4")
    life.gone(again)
    life.see(life.member("once-more"))
    assert _evictions(life.work(1.0)) == []
    assert _evictions(life.work(END_S - 1.0)) == []
    assert len(_evictions(life.work(2.0))) == 2


def test_an_eviction_that_is_refused_is_tried_again(life: Life) -> None:
    """A minute later, as long as the group is half placed."""
    _half(life)
    for order in (evictions := _evictions(life.work(END_S + 1.0))):
        assert life.machine.finished(order, "refused", life.now) == []
    assert _evictions(life.work(30.0)) == []
    assert len(_evictions(life.work(31.0))) == len(evictions) == 2


def test_members_that_end_are_not_evicted_again(life: Life) -> None:
    """A pod that is being deleted does not count as placed."""
    running = _half(life)
    life.work(END_S + 1.0)
    life.see(*(changed(pod, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) for pod in running))
    assert _evictions(life.work(2 * END_S)) == []


@pytest.mark.parametrize("life", [0.0], indirect=True)
def test_without_the_option_a_half_group_waits(life: Life) -> None:
    _half(life)
    assert _evictions(life.work(100 * END_S)) == []


def test_a_group_without_a_waiting_member_is_left_alone(life: Life) -> None:
    """One that ends, member by member, is no half group."""
    life.nodes("n1", "n2", "n3")
    life.members(3)
    decisions = binds(life.work())
    running = life.bound(*decisions)
    life.see(changed(as_bound(decisions[0]), status={"phase": "Failed"}))
    life.gone(running[1])
    life.work()
    assert _evictions(life.work(2 * END_S)) == []


def test_a_group_of_which_nobody_knows_how_many_it_needs_is_left_alone(life: Life) -> None:
    """Its PodGroup is gone; when it is there again, the time begins again."""
    gang = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    life.pod_group("train", **gang)
    _half(life, group="", spec={"schedulingGroup": {"podGroupName": "train"}})
    assert _evictions(life.work(END_S - 1.0)) == []
    life.machine.handle(PodGroup, Removed(Identity("train", "default")), life.now)
    assert _evictions(life.work(2 * END_S)) == []
    life.pod_group("train", **gang)
    assert _evictions(life.work(1.0)) == []
    assert _evictions(life.work(END_S - 1.0)) == []
    assert len(_evictions(life.work(2.0))) == 2
