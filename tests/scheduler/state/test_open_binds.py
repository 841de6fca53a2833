"""A namespace whose Binds fail or wait for a webhook: it gets few at once, and the others feel nothing."""

from collections.abc import Callable

import pytest

from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND, Outcome
from tests.scheduler.group_life import MakePod
from tests.scheduler.state.life import Life

FAILED = 'Internal error occurred: failed calling webhook "hook.example.com": connection refused'
DENIED = Outcome("denied", FAILED)
MakeBad = Callable[[int], list[Pod]]


@pytest.fixture
def bad(make_pod: MakePod) -> MakeBad:
    """Make pods of the namespace bad with one VF each."""
    return lambda count: [make_pod(request=[{}], metadata={"namespace": "bad"}) for _ in range(count)]


def _names(decisions: list[Bind]) -> list[str]:
    return [one.pod_info.pod.metadata.namespace for one in decisions]


def test_a_denied_bind_releases_its_room_and_its_owner_is_told_of_the_webhook(life: Life, bad: MakeBad) -> None:
    """Nothing was written: another pod gets the VF at once, and the first one comes again after its backoff."""
    life.see(life.n1(vfs=1), *bad(1))
    (decision,) = life.binds()
    (report,) = life.machine.finished(decision, DENIED, 0.1)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == ("Unschedulable", f"binding denied: {FAILED}")
    other = life.make_pod(request=[{}])
    life.see(other, now=0.2)
    (given,) = life.binds(0.2)
    assert given.pod_info.uid == other.metadata.uid
    life.machine.finished(given, BOUND, 0.3)
    life.remove(other, 0.4)
    assert life.binds(0.5) == []
    assert len(life.binds(1.1)) == 1


def test_a_namespace_that_waits_for_its_webhook_takes_little_room(life: Life, bad: MakeBad) -> None:
    """Its other pods wait in the queue and reserve nothing; they come as soon as a Bind succeeds."""
    life.see(life.n1(vfs=20), *bad(4))
    first = life.binds()
    life.see(*bad(6), life.make_pod(request=[{}]), now=2.0)
    assert _names(life.binds(2.0)) == ["default"]
    assert life.machine.next_due() == 10.0
    life.machine.finished(first[0], DENIED, 2.1)
    assert _names(life.binds(2.1)) == ["bad"]
    for decision in first[1:]:
        life.machine.finished(decision, BOUND, 2.2)
    # Five that had waited, and the one that was denied.
    assert _names(life.binds(2.3)) == ["bad"] * 6


def test_pods_that_nobody_gets_an_answer_for_hold_up_their_namespace_for_some_seconds(life: Life, bad: MakeBad) -> None:
    """As of pods that are too large for etcd, whose Binding is answered with 500 for ever."""
    life.see(life.n1(vfs=20), *bad(4))
    assert len(life.binds()) == 4
    life.see(*bad(1), now=2.0)
    assert life.binds(2.0) == []
    life.machine.tick(10.1)
    assert len(life.binds(10.1)) == 1


def test_where_binds_are_denied_at_once_few_are_tried_at_a_time(life: Life, bad: MakeBad) -> None:
    """However many pods wait; a pod that is deleted meanwhile is not tried."""
    life.see(life.n1(vfs=20), *bad(1))
    (decision,) = life.binds()
    life.machine.finished(decision, DENIED, 0.1)
    pods = bad(9)
    life.see(*pods, now=0.2)
    tried = life.binds(0.2)
    assert len(tried) == 4
    assert life.machine.pending_pods.depths()["backoff"] == 6
    life.remove(pods[4], 0.3)
    life.remove(pods[5], 0.3)
    for decision in tried:
        life.machine.finished(decision, DENIED, 0.4)
    assert {one.pod_info.uid for one in life.binds(0.5)} == {one.metadata.uid for one in pods[6:]}


def test_a_group_of_a_namespace_in_trouble_waits_too(life: Life, bad: MakeBad) -> None:
    life.see(life.n1(vfs=20), *bad(4))
    first = life.binds()
    group = {"mooring.dev/group": '{"name":"g","min":2}'}
    members = [life.make_pod(request=[{}], metadata={"namespace": "bad"}, annotations=group) for _ in range(2)]
    life.see(*members, now=2.0)
    life.machine.tick(4.0)
    assert life.binds(4.0) == []
    life.machine.finished(first[0], BOUND, 4.1)
    assert len(life.binds(4.1)) == 2
