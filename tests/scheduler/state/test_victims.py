"""Whose pods are deleted for a more important one, and until when it waits for their VFs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import HELD_BY, Out
from mooring.indexes import Indexes
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictimsResult, Report
from scheduler.cycle.preemption.preemption import VF_PATIENCE_S
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.group_life import claiming, orders
from tests.scheduler.state.cluster import PREEMPTED, Cluster
from tests.scheduler.state.life import Life, binds_of, nominated_in, victims_of
from tests.scheduler.story import play

FOR_GOOD = "bound to vfio-pci"


def _vf(pod: Pod) -> int:
    return read_assignment(pod.annotations[names.ASSIGNMENT]).vfs[0].vf


def test_a_more_important_pod_gets_the_vf_of_another(life: Life) -> None:
    """The victim is deleted, the pod is nominated, told so, and bound with the same VF when the victim is gone."""
    low, high, found = life.preempt()
    assert victims_of(found) == [low.metadata.uid]
    assert nominated_in(found) == [(high.metadata.uid, "n1")]
    (order,) = orders(found)
    (report,) = life.machine.finished(order, DeleteVictimsResult(order.victims), life.now)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == ("Preempted", f"Preempted by pod {high.metadata.uid} on node n1")
    life.gone(life.terminate(low))
    (bound,) = life.bind(life.decide())
    assert (bound.metadata.uid, _vf(bound)) == (high.metadata.uid, 0)


def test_many_victims_are_reported_in_portions(life: Life) -> None:
    """Each once; those of a group may be thousands."""
    _, high, found = life.preempt()
    (order,) = orders(found)
    victims = tuple(AssignedPod(f"u{number}", f"default/v{number}", "n1") for number in range(1000))
    portions = [life.machine.finished(order, DeleteVictimsResult(victims), life.now)]
    while life.machine.next_due() == 0.0:
        portions.append(life.machine.tick(life.now))
    reports = [one for portion in portions for one in portion if isinstance(one, Report)]
    assert [report.pod.metadata.uid for report in reports] == [victim.uid for victim in victims]
    assert all(report.related == high for report in reports)
    assert max(map(len, portions)) <= 256


STORIES = {
    "of two pods the one goes whose rate is needed": """
        node n1 4 | pod slow 0 20G | later > slow@n1 | pod fast 0 60G | later > fast@n1 | pod high 1 50G
        | later > -fast high:n1""",
    "equal priority and the policy Never preempt no pod": """
        node n1 | pod low 1 | later > low@n1 | pod equal 1 | pod polite 5 Never | later""",
    # Whatever else happens meanwhile, also before the watch shows that they terminate.
    "a pod with terminating victims preempts no others": """
        node n1 | node n2 | pod low 0 | pod other 0 | later > low@n1 other@n2 | pod high 1 | later > -low high:n1
        | node n3 0 | later > high:n1 | leave low | node n4 0 | later > high:n1""",
    "a pod that cannot be read any more keeps no room": f"""
        {PREEMPTED} | leave low | gone low | pod mid [{"unknown":1}] | later > mid: | pod other 1 | later > other@n1""",
    "a pod whose decision fails keeps no room": f"""
        {PREEMPTED} | leave low | gone low | fail > mid: | pod other 1 | later > other@n1""",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_victims(story: str, cluster: Cluster) -> None:
    play(cluster, story)


def _stuck(life: Life, why: str = "") -> tuple[Pod, Pod, Callable[[], None]]:
    """Let a pod preempt one of two on n1, whose VF the node does not give back: by default it holds it for that pod.

    Return the pod, the one that is left on the node, and a function that lets the node give the VF back.
    """
    life.node(vfs=2)
    assigned = [life.assigned(0) for _ in range(2)]
    high = life.pod(1)
    (victim,) = victims_of(life.decide())
    (went,) = (one for one in assigned if one.metadata.uid == victim)
    life.node(vfs=2, out=(Out(Indexes.of([_vf(went)]), why or f"{HELD_BY}{victim}", 5000),))
    life.gone(life.terminate(went))
    return high, next(one for one in assigned if one is not went), lambda: life.node(vfs=2)


def test_a_pod_waits_until_the_node_has_the_vf_back(life: Life) -> None:
    """The pod is gone, its VF is not free yet: no bind, no further victims, until the inventory releases it."""
    high, _, give_back = _stuck(life)
    (report,) = life.decide()
    assert isinstance(report, Report)
    waits = "not eligible due to an unreleased VF of a deleted pod on the nominated node."
    assert (report.message.partition(" preemption: ")[2], report.nominated) == (waits, "n1")
    give_back()
    assert binds_of(life.decide()) == [(high.metadata.uid, "n1")]


def test_the_wait_for_a_vf_that_the_node_does_not_get_back_ends(life: Life) -> None:
    """The message says which VF is held for which pod; no other pod is preempted there, and it takes another node."""
    high, _, _ = _stuck(life)
    life.decide()
    assert life.machine.tick(life.now + VF_PATIENCE_S - 1.0) == []
    life.now += VF_PATIENCE_S
    (report,) = life.machine.tick(life.now)
    assert isinstance(report, Report)
    assert report.nominated == ""
    given_up = "nomination withdrawn: node 'n1' did not release within 60 s: VF 1 of PF 'pf0' (held by pod uid-1)"
    assert report.message == given_up
    assert life.machine.next_due() == life.machine.queue.next_ready()
    (told,) = life.decide()
    assert isinstance(told, Report)
    assert "1 node(s) did not release the VFs of deleted pods." in told.message
    life.node("n2")
    assert binds_of(life.decide()) == [(high.metadata.uid, "n2")]


def test_a_node_that_lacks_vfs_is_good_for_others_and_for_all_once_it_gets_them_back_late(life: Life) -> None:
    """A VF does not matter for cpu. The pod that gave the node up gets the VF; the next one may preempt there."""
    high, stays, give_back = _stuck(life)
    life.decide()
    life.machine.tick(life.now + VF_PATIENCE_S)
    life.decide(VF_PATIENCE_S)
    whole = [{"name": "c", "resources": {"requests": {"memory": "1Gi", "cpu": "8"}}}]
    low = life.assigned(0, None, spec={"containers": whole})
    other = life.pod(1, None, spec={"containers": whole})
    assert low.metadata.uid in victims_of(life.decide())
    assert stays.metadata.uid not in victims_of(life.decide())
    life.gone(low, other)
    give_back()
    life.bind(found := life.decide())
    assert binds_of(found) == [(high.metadata.uid, "n1")]
    life.pod(1)
    assert victims_of(life.decide()) == [stays.metadata.uid]


def test_a_vf_that_is_out_for_good_is_not_waited_for(life: Life) -> None:
    _, stays, _ = _stuck(life, FOR_GOOD)
    assert victims_of(life.decide()) == [stays.metadata.uid]


TWO = "node n1 | pod a 0 | later > a@n1 | node n2 | pod b 0 | later > b@n2"

DURING_THE_SEARCH = {
    "a victim that leaves makes room": f"{TWO} | pod high 1 | begin | gone b | now > high@n2",
    "a pod that is deleted preempts nothing": f"{TWO} | pod high 1 | begin | gone high | later",
    "a pod with a smaller request is placed by that": f"{TWO} | pod high 1 | begin | strip high | later > high@n1",
}


@pytest.fixture
def slow(life: Life) -> Iterator[Cluster]:
    """Give a scheduler that examines one node in a step when it searches for victims."""
    slow = life.successor(Machine("mooring", portion=1))
    yield Cluster(slow)
    slow.machine.check()


@pytest.mark.parametrize("story", DURING_THE_SEARCH.values(), ids=DURING_THE_SEARCH)
def test_events_during_the_search_for_victims(story: str, slow: Cluster) -> None:
    play(slow, story)
    assert not slow.machine.is_trying


@pytest.mark.parametrize("earlier", range(4))
def test_an_event_during_the_search_for_victims_requeues_the_pod(slow: Cluster, earlier: int) -> None:
    """A reservation on a node that was examined already has ended: the pod is not left waiting."""
    play(slow, "node n1 | pod low 0 | later > low@n1 | node n2 | pod top 9 | later > top@n2")
    play(slow, "pod rival 5 | later > -low rival:n1")
    # The pod's uid decides from which node on is searched.
    play(slow, "pod earlier -1 | gone earlier | " * earlier + "pod late 5 | begin | gone rival")
    decided = f"{slow.now()} {slow.later()}".split()
    assert [one for one in decided if one.startswith("-")] == ["-low"]


@pytest.mark.parametrize("why", ["out for good", "claimed by another"])
def test_a_pod_whose_vf_would_not_be_free_is_not_a_victim(life: Life, why: str) -> None:
    """The other pod that claims it has too high a priority; so a more important one, or a third, has to go."""
    life.node(vfs=2)
    low, middle = life.assigned(0), life.assigned(1)
    if why == "out for good":
        life.node(vfs=2, out=(Out(Indexes.of([_vf(low)]), FOR_GOOD),))
    else:
        life.see(claiming(life.make_pod(node="n1", spec={"priority": 9}), _vf(low)))
    life.pod(2)
    assert victims_of(life.decide()) == [middle.metadata.uid]


TAKEN = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}
PORTS = "node(s) didn't have free ports for the requested pod ports"


@pytest.mark.parametrize(
    ("others", "cpu", "reason"), [((0,), "6", PORTS), ((), "6000", "No preemption victims found for incoming pod")]
)
def test_a_node_refuses_without_its_victims_for_the_first_reason_in_kube_schedulers_order(
    life: Life, others: tuple[int, ...], cpu: str, reason: str
) -> None:
    """Host ports come before cpu there, and only a node without room for the pod alone is past help."""
    life.node()
    requests: list[dict[str, Any]] = [{"resources": {"requests": {"cpu": one}}} for one in ("4", cpu)]
    life.assigned(10, None, spec={"containers": [TAKEN | requests[0]]})
    for priority in others:
        life.assigned(priority, None)
    life.pod(10, None, spec={"containers": [TAKEN | requests[1]]})
    (report,) = (one for one in life.decide() if isinstance(one, Report))
    assert report.message.endswith(f" preemption: 0/1 nodes are available: 1 {reason}.")
