"""Whose pods are deleted for a more important one, and what may come between until it is bound with their VFs."""

from collections.abc import Iterator

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictimsResult, Report
from scheduler.state.machine import Machine
from tests.scheduler.group_life import beside, changed
from tests.scheduler.state.cluster import PREEMPTED, Cluster
from tests.scheduler.story import play, stories


def stuck(why: str) -> str:
    """Let a pod preempt one of two on n1, whose VF the node does not give back."""
    return f"""node n1 2 | pod a | wait > a@n1 | pod b | wait > b@n1 | pod high 1 | wait > -b high:n1
        | node n1 2 out=1:{why} | terminate b | delete b"""


STUCK = stuck("held_by_pod_uid-1")
WITHDRAWN = (
    "high Unschedulable: nomination withdrawn: node 'n1' did not release within 60 s: VF 1 of PF 'pf0' "
    "(held by pod uid-1)"
)

STORIES = {
    "the victim is told, and the more important pod is bound when it is gone": f"""
        {PREEMPTED} | delete_victims > low Preempted: Preempted by pod uid-1 on node n1 | terminate low | delete low
        | wait > mid@n1""",
    "of two pods the one goes whose rate is needed": """
        node n1 4 | pod slow 0 20G | wait > slow@n1 | pod fast 0 60G | wait > fast@n1 | pod high 1 50G
        | wait > -fast high:n1""",
    "equal priority and the policy Never preempt no pod": """
        node n1 | pod low 1 | wait > low@n1 | pod equal 1 | pod polite 5 Never | wait""",
    # Whatever else happens meanwhile, also before the watch shows that they terminate.
    "a pod with terminating victims preempts no others": """
        node n1 | node n2 | pod low 0 | pod other 0 | wait > low@n1 other@n2 | pod high 1 | wait > -low high:n1
        | node n3 0 | wait > high:n1 | terminate low | node n4 0 | wait > high:n1""",
    "a pod that cannot be read any more keeps no room": f"""
        {PREEMPTED} | terminate low | delete low | pod mid [{"unknown":1}] | wait > mid: | pod other 1 | wait >
        other@n1""",
    "a nominated pod that asks for something else keeps its room until it is tried": f"""
        {PREEMPTED} | pod mid 5G | reservations > 1""",
    "a pod whose decision fails keeps no room": f"""
        {PREEMPTED} | terminate low | delete low | fail > mid: | pod other 1 | wait > other@n1""",
    "what is kept for a nominated pod goes to a more important one, not to a less important one": f"""
        {PREEMPTED} | pod late 0 | wait 0 | terminate low | delete low | wait 0 | pod top 9 | wait 0 > top@n1 | wait >
        mid: | delete top | wait > mid@n1 | delete mid | wait > late@n1""",
    "the rate that is kept for a nominated pod is not given": """
        node n1 4 | pod low 0 80G | wait > low@n1 | pod high 1 60G | wait > -low high:n1 | terminate low | delete low
        | pod fast 0 31G | pod slow 0 30G | wait 0 > slow@n1 | wait > high@n1""",
    # Its victim goes already.
    "a more important pod takes over a nomination, and the other one is told": f"""
        {PREEMPTED} | terminate low | pod high 2 | wait 0 > high:n1 | wait > mid:""",
    "a nomination ends with its node": """
        node n1 | node n2 | pod a 0 | pod b 0 | wait > a@n1 b@n2 | pod high 1 | wait > -a high:n1 | lose n1
        | wait > -b high:n2""",
    "a nominated pod goes to another node that is free, and the next pod gets the victim's VF": f"""
        {PREEMPTED} | pod late 0 | terminate low | node n2 | wait > mid@n2 | reservations > 0 | delete low
        | wait > late@n1""",
    "a nominated pod takes its node if the victim is gone": f"""
        {PREEMPTED} | pod late 0 | terminate low | delete low | node n2 | wait > late@n2 mid@n1 | reservations > 0""",
    # A missing permission to delete pods must be visible; the pod waits out its backoff.
    "a preemption that is rejected is reported and tried again": f"""
        {PREEMPTED} | reject pods is forbidden
        > mid: the API server rejected the preemption: pods is forbidden | wait 0
        | wait > -low mid:n1""",
    "a new leader takes the nomination from the status, and preempts no other pod": """
        node n1 | node n2 | pod low 0 | pod other 0 | wait > low@n1 other@n2 | pod high 1 nominated=n1 | terminate low
        | wait > high:n1 | delete low | wait > high@n1""",
    # Replicas share an answer as long as they wait for the same; those nominated wait for their own victims.
    "each of many replicas gets a victim and is requeued by its own": """
        node n0 | node n1 | node n2 | pod a | pod b | pod c | wait > a@n0 b@n1 c@n2 | pod x 1 | pod y 1 | pod z 1
        | wait > -a -b -c x:n1 y:n0 z:n2 | delete c | wait > z@n2 x:n1 y:n0 | delete b | wait > x@n1 | delete a
        | wait > y@n0""",
    "a nominated pod that is deleted keeps nothing": f"""
        {PREEMPTED} | pod late 0 | terminate low | delete low | wait 0 | delete mid | wait > late@n1""",
    # The pod is gone, its VF is not free yet: no bind, no further victims, until the inventory releases it.
    "a pod waits until the node has the VF back": f"""
        {STUCK} | why > n1: not eligible due to an unreleased VF of a deleted pod on the nominated node. | node n1 2
        | wait > high@n1""",
    # The pod is in its backoff when the time is over.
    "a VF that the node gets back in time is the pod's, whenever it is tried": f"""
        {STUCK} | wait > high:n1 | later 58 | node n2 0 | wait 0 > high:n1 | node n1 2 | later 2 | tick | later 2
        | wait 0 > high@n1""",
    # It keeps the exact VF, of which its last attempt could not say that it is free.
    "a VF that the node gets back is not given to a younger pod meanwhile": f"""
        {STUCK} | wait > high:n1 | later 58 | node n2 0 | wait 0 > high:n1 | node n1 2 | pod other 1
        | wait 0 > -a other:n1 | wait > high@n1 other:n1""",
    # Another attempt does not prolong it. No other pod is preempted there, and it takes another node.
    "the wait for a VF that the node does not get back ends": f"""
        {STUCK} | wait > high:n1 | later 10 | node n0 0 | wait 0 > high:n1 | later 49 | tick | later 1 | tick >
        {WITHDRAWN} | reservations > 0 | lose n0 | due > 74 | why > : 0/1 nodes are available: 1 node(s) did not release
        the VFs of deleted pods. | node n2 | wait > high@n2""",
    # A VF does not matter for cpu. The pod that gave the node up gets the VF; the next one may preempt there.
    "a node that lacks VFs is good for others, and for all once it gets them back late": f"""
        {STUCK} | wait > high:n1 | later 60 | tick > {WITHDRAWN} | later 45 | wait | pod low none cpu=8 | wait > low@n1
        | pod other 1 none cpu=8 | wait > -low other:n1 | wait | delete low | delete other | node n1 2 | wait > high@n1
        | pod last 1 | wait > -a last:n1""",
    "a VF that is out for good is not waited for": f"{stuck('bound_to_vfio-pci')} | wait > -a",
    # So a more important one, or a third, has to go.
    "a pod whose VF is out for good is not a victim": """
        node n1 2 | pod low | wait > low@n1 | pod mid 1 | wait > mid@n1 | node n1 2 out=0:bound_to_vfio-pci
        | pod high 2 | wait > -mid high:n1""",
    "a pod whose VF another pod of a higher priority claims is not a victim": """
        node n1 2 | pod low | wait > low@n1 | pod mid 1 | wait > mid@n1 | claim top 0 Pending 9 | pod high 2
        | wait > -mid high:n1""",
    # Host ports come before cpu there, and only a node without room for the pod alone is past help.
    "a node refuses without its victims for the first reason in kube-scheduler's order": """
        node n1 | pod a 10 none cpu=4 port=80 | wait > a@n1 | pod low 0 none | wait > low@n1
        | pod b 10 none cpu=6 port=80
        | why > : 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.""",
    "a node without victims says so": """
        node n1 | pod a 10 none cpu=4 port=80 | wait > a@n1 | pod b 10 none cpu=6000 port=80
        | why > : 0/1 nodes are available: 1 No preemption victims found for incoming pod.""",
}


@stories(STORIES)
def test_preemptions(story: str, cluster: Cluster) -> None:
    play(cluster, story)


def test_many_victims_are_reported_in_portions(cluster: Cluster) -> None:
    """Each once; those of a group may be thousands."""
    play(cluster, PREEMPTED)
    machine, (order,) = cluster.machine, cluster.orders
    victims = tuple(AssignedPod(f"u{number}", f"default/v{number}", "n1") for number in range(1000))
    portions = [machine.finished(order, DeleteVictimsResult(victims), cluster.now)]
    while machine.next_due() == 0.0:
        portions.append(machine.tick(cluster.now))
    reports = [one for portion in portions for one in portion if isinstance(one, Report)]
    assert [report.pod.metadata.uid for report in reports] == [victim.uid for victim in victims]
    assert all(report.related == cluster.pods["mid"] for report in reports)
    assert max(map(len, portions)) <= 256


TWO = "node n1 | pod a 0 | wait > a@n1 | node n2 | pod b 0 | wait > b@n2"

DURING_THE_SEARCH = {
    "a victim that leaves makes room": f"{TWO} | pod high 1 | begin | delete b | wait 0 > high@n2",
    "a pod that is deleted preempts nothing": f"{TWO} | pod high 1 | begin | delete high | wait",
    "a pod with a smaller request is placed by that": f"{TWO} | pod high 1 | begin | strip high | wait > high@n1",
}


@pytest.fixture
def slow(cluster: Cluster) -> Iterator[Cluster]:
    """Give a scheduler that examines one node in a step when it searches for victims."""
    slow = cluster.successor(Machine("mooring", portion=1))
    yield slow
    slow.machine.check()


@stories(DURING_THE_SEARCH)
def test_events_during_the_search_for_victims(story: str, slow: Cluster) -> None:
    play(slow, story)
    assert not slow.machine.is_trying


@pytest.mark.parametrize("earlier", range(4))
def test_an_event_during_the_search_for_victims_requeues_the_pod(slow: Cluster, earlier: int) -> None:
    """A reservation on a node that was examined already has ended: the pod is not left waiting."""
    play(slow, "node n1 | pod low 0 | wait > low@n1 | node n2 | pod top 9 | wait > top@n2")
    play(slow, "pod rival 5 | wait > -low rival:n1")
    # The pod's uid decides from which node on is searched.
    play(slow, "pod earlier -1 | delete earlier | " * earlier + "pod late 5 | begin | delete rival")
    decided = f"{slow.wait('0')} {slow.wait()}".split()
    assert [one for one in decided if one.startswith("-")] == ["-low"]


def test_a_late_refusal_about_a_node_that_the_pod_has_left_changes_nothing(cluster: Cluster) -> None:
    play(cluster, "node n1 | node n2 | pod a 0 | pod b 0 | wait > a@n1 b@n2 | pod high 1 | wait > -a high:n1")
    (order,) = cluster.orders
    play(cluster, "lose n1 | wait > -b high:n2")
    assert cluster.machine.finished(order, DeleteVictimsResult((), "no"), cluster.now) == []
    play(cluster, "reservations > 1")


def test_what_the_last_leader_still_writes_counts(cluster: Cluster) -> None:
    play(cluster, "node n1 | pod high 1 nominated=n1")
    assert cluster.machine.step(0.0) == []
    assert cluster.machine.reservations.node_of(cluster.pods["high"].metadata.uid) == "n1"
    cluster.show(changed(cluster.pods["high"], status={"nominatedNodeName": None}))
    assert cluster.machine.step(0.0) == []
    play(cluster, "reservations > 0")


def test_a_nomination_ends_when_no_preemption_would_help_any_more(cluster: Cluster) -> None:
    """The pod that it must be near is gone: what its victims leave is kept for it no longer."""
    make_pod = cluster.make_pod
    cluster.node("n1")
    cluster.show(make_pod("friend", metadata={"labels": {"app": "x"}}, spec={"priority": 5}))
    play(cluster, "wait > friend@n1 | pod low | wait > low@n1")
    cluster.show(make_pod("high", [{}], spec={"priority": 1} | beside("kubernetes.io/hostname", app="x")))
    play(cluster, "wait > -low high:n1 | terminate low | delete friend | node n1 2 | wait > high:")


def test_a_nominated_pod_takes_vfs_that_a_node_gets_before_the_victim_is_gone(cluster: Cluster) -> None:
    """There were enough before, but not on one network: only the exact search refuses the node."""
    pfs = cluster.make_pf(1, vfs=4, network="rail1")
    cluster.show_node("n1", cluster.make_pf(0, vfs=1, network="rail0"), pfs)
    play(cluster, 'pod low [{"network":"rail0"}] | wait > low@n1 | pod high 2 [{"network":"rail0"}]')
    play(cluster, "wait > -low high:n1")
    cluster.show_node("n1", cluster.make_pf(0, vfs=2, network="rail0"), pfs)
    play(cluster, "wait > high@n1")


def test_a_pod_gets_no_vf_that_a_nominated_pod_waits_for(cluster: Cluster) -> None:
    """Two of one PF are kept for the important pod, one of them free already: the small pod's are of the other PF."""
    cluster.show_node("n1", cluster.make_pf(0, vfs=2), cluster.make_pf(1, vfs=4, network="rail1"))
    play(
        cluster, 'pod low [{"network":"rail0"}] | wait > low@n1 | pod high 2 [{"network":"rail0"},{"network":"rail0"}]'
    )
    play(cluster, "wait > -low high:n1 | pod small 1 | wait > small@n1")
    assert [vf.pf for vf in read_assignment(cluster.pods["small"].annotations[names.ASSIGNMENT]).vfs] == ["pf1"]
    play(cluster, "terminate low | delete low | wait > high@n1")


@pytest.mark.parametrize("annotation", ["", '{"name":"g","min":1}'])
def test_each_of_two_owners_that_wait_for_vfs_of_one_node_leaves_it(cluster: Cluster, annotation: str) -> None:
    """The first withdrawal marks the node as one that does not release its VFs."""
    out = tuple(Out(Indexes.of([index]), f"held by pod gone-{index}") for index in range(2))
    cluster.show_node("n1", cluster.make_pf(vfs=2, out=out), labels={"kubernetes.io/hostname": "n1"})
    play(cluster, "come c@n2 vfs=1 | node n2")
    cluster.come("x:n1", vfs="1", priority="1", nodeSelector="kubernetes.io/hostname:n1")
    cluster.come("y:n1", vfs="1", priority="1", **({"annotation": annotation} if annotation else {}))
    play(cluster, "wait 0 > x:n1 y:n1 | later 60")
    assert cluster.tick().count("nomination withdrawn") == 2
    play(cluster, "wait > -c y:n2 | reservations > 1")
