"""A preempting pod, through the machine: from the order to preempt to its bind, and what may come between."""

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from tests.scheduler.group_life import changed
from tests.scheduler.state.cluster import PREEMPTED, Cluster
from tests.scheduler.story import play

STORIES = {
    "what is kept for a nominated pod goes to a more important one, not to a less important one": f"""
        {PREEMPTED} | pod late 0 | now | leave low | gone low | now | pod top 9 | now > top@n1 | later > mid: | gone top
        | later > mid@n1 | gone mid | later > late@n1""",
    "the rate that is kept for a nominated pod is not given": """
        node n1 4 | pod low 0 80G | later > low@n1 | pod high 1 60G | later > -low high:n1 | leave low | gone low
        | pod fast 0 31G | pod slow 0 30G | now > slow@n1 | later > high@n1""",
    # Its victim goes already.
    "a more important pod takes over a nomination, and the other one is told": f"""
        {PREEMPTED} | leave low | pod high 2 | now > high:n1 | later > mid:""",
    "a node that vanishes leave the nomination": """
        node n1 | node n2 | pod a 0 | pod b 0 | later > a@n1 b@n2 | pod high 1 | later > -a high:n1 | lose n1
        | later > -b high:n2""",
    "a nominated pod goes to another node that is free, and the next pod gets the victim's VF": f"""
        {PREEMPTED} | pod late 0 | leave low | node n2 | later > mid@n2 | reservations > 0 | gone low
        | later > late@n1""",
    "a nominated pod takes its node if the victim is gone": f"""
        {PREEMPTED} | pod late 0 | leave low | gone low | node n2 | later > late@n2 mid@n1 | reservations > 0""",
    # A missing permission to delete pods must be visible; the pod waits out its backoff.
    "a preemption that is rejected is reported and tried again": f"""
        {PREEMPTED} | reject pods is forbidden
        > mid: the API server rejected the preemption: pods is forbidden | now
        | later > -low mid:n1""",
    "a new leader takes the nomination from the status, and preempts no other pod": """
        node n1 | node n2 | pod low 0 | pod other 0 | later > low@n1 other@n2 | pod high 1 nominated=n1 | leave low
        | later > high:n1 | gone low | later > high@n1""",
    # Replicas share an answer as long as they wait for the same; those nominated wait for their own victims.
    "each of many replicas gets a victim and is requeued by its own": """
        node n0 | node n1 | node n2 | pod a | pod b | pod c | later > a@n0 b@n1 c@n2 | pod x 1 | pod y 1 | pod z 1
        | later > -a -b -c x:n1 y:n0 z:n2 | gone c | later > z@n2 x:n1 y:n0 | gone b | later > x@n1 | gone a
        | later > y@n0""",
    "a nominated pod that is deleted keeps nothing": f"""
        {PREEMPTED} | pod late 0 | leave low | gone low | now | gone mid | later > late@n1""",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_preempting_pod(story: str, cluster: Cluster) -> None:
    play(cluster, story)


def test_what_the_last_leader_still_writes_counts(cluster: Cluster) -> None:
    play(cluster, "node n1 | pod high 1 nominated=n1")
    assert cluster.machine.step(0.0) == []
    assert cluster.machine.reservations.node_of(cluster.pods["high"].metadata.uid) == "n1"
    cluster.show("high", changed(cluster.pods["high"], status={"nominatedNodeName": None}))
    assert cluster.machine.step(0.0) == []
    play(cluster, "reservations > 0")


def test_a_nomination_ends_when_no_preemption_would_help_any_more(cluster: Cluster) -> None:
    """The pod that it must be near is gone: what its victims leave is kept for it no longer."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    make_pod = cluster.life.make_pod
    cluster.node("n1")
    cluster.show("friend", make_pod("friend", metadata={"labels": {"app": "x"}}, spec={"priority": 5}))
    play(cluster, "later > friend@n1 | pod low | later > low@n1")
    cluster.show("high", make_pod("high", [{}], spec={"priority": 1, "affinity": near}))
    play(cluster, "later > -low high:n1 | leave low | gone friend | node n1 2 | later > high:")


def test_a_pod_gets_no_vf_that_a_nominated_pod_waits_for(cluster: Cluster) -> None:
    """Two of one PF are kept for the important pod, one of them free already: the small pod's are of the other PF."""
    life = cluster.life
    life.show_node("n1", life.make_pf(0, vfs=2), life.make_pf(1, vfs=4, network="rail1"))
    play(
        cluster, 'pod low [{"network":"rail0"}] | later > low@n1 | pod high 2 [{"network":"rail0"},{"network":"rail0"}]'
    )
    play(cluster, "later > -low high:n1 | pod small 1 | later > small@n1")
    assert [vf.pf for vf in read_assignment(cluster.pods["small"].annotations[names.ASSIGNMENT]).vfs] == ["pf1"]
    play(cluster, "leave low | gone low | later > high@n1")
