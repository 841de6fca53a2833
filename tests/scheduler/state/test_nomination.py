"""A preempting pod, through the machine: from the order to preempt to its bind, and what may come between."""

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import DeleteVictimsResult, Report
from tests.scheduler.group_life import orders
from tests.scheduler.state.life import Life, binds_of, nominated_in, victims_of


def test_a_less_important_pod_does_not_get_what_is_kept_for_a_nominated_one(life: Life) -> None:
    """Neither while the victims terminate nor when the VF is free; one that is more important gets it."""
    low, middle, found = life.preempt()
    assert victims_of(found) == [low.metadata.uid]
    late = life.pod(0)
    assert binds_of(life.decide(0.0)) == []
    life.gone(life.terminate(low))
    assert life.machine.step(life.now) is None, "all are in backoff"
    highest = life.pod(9)
    assert [pod.metadata.uid for pod in life.bind(life.decide(0.0))] == [highest.metadata.uid]
    assert binds_of(life.decide()) == []
    assert set(life.machine.queue.uids()) == {middle.metadata.uid, late.metadata.uid}


def test_the_rate_that_is_kept_for_a_nominated_pod_is_not_given(life: Life) -> None:
    """Of 90 Gb/s 60 are kept: a less important pod may have 30 of them, and not 31."""
    life.node(vfs=4)
    low = life.assigned(0, [{"min_tx_rate": 80_000}])
    high = life.pod(1, [{"min_tx_rate": 60_000}])
    assert victims_of(life.decide()) == [low.metadata.uid]
    life.gone(life.terminate(low))
    life.pod(0, [{"min_tx_rate": 31_000}])
    assert binds_of(life.machine.step(life.now) or []) == []
    fits = life.pod(0, [{"min_tx_rate": 30_000}])
    assert binds_of(life.machine.step(life.now) or []) == [(fits.metadata.uid, "n1")]
    assert binds_of(life.decide()) == [(high.metadata.uid, "n1")]


def test_a_more_important_pod_takes_over_a_nomination(life: Life) -> None:
    """The less important one gets a message that its nomination has ended, and is scheduled again."""
    low, middle, found = life.preempt()
    assert nominated_in(found) == [(middle.metadata.uid, "n1")]
    life.terminate(low)
    high = life.pod(2)
    found = life.decide(0.0)
    assert nominated_in(found) == [(high.metadata.uid, "n1")]
    assert victims_of(found) == [], "they go already"
    assert nominated_in(life.decide()) == [(middle.metadata.uid, "")]


def test_a_node_that_vanishes_ends_the_nomination(life: Life) -> None:
    life.node()
    life.node("n2")
    life.assigned(0)
    life.assigned(0)
    high = life.pod(1)
    (order,) = orders(life.decide())
    life.remove_node(order.node)
    found = life.decide()
    left = {"n1": "n2", "n2": "n1"}[order.node]
    assert nominated_in(found) == [(high.metadata.uid, left)]
    assert [one.node for one in orders(found)] == [left]


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_nominated_pod_may_go_to_another_node_that_has_become_free(life: Life, is_gone: bool) -> None:
    """The nomination ends with the bind, and a pod that was kept away gets the VF of the victim once that is gone."""
    low, high, _ = life.preempt()
    late = life.pod(0)
    life.terminate(low)
    if is_gone:
        life.gone(low)
    life.node("n2")
    first, *others = sorted(binds_of(life.decide()))
    assert (first, others) == (
        ((high.metadata.uid, "n1"), [(late.metadata.uid, "n2")]) if is_gone else ((high.metadata.uid, "n2"), [])
    )
    assert len(life.machine.reservations) == 0


def test_a_preemption_that_is_refused_is_reported_and_tried_again(life: Life) -> None:
    """A missing permission to delete pods must be visible; the pod waits out its backoff."""
    _, high, found = life.preempt()
    (order,) = orders(found)
    (report,) = life.machine.finished(order, DeleteVictimsResult((), "pods is forbidden"), life.now)
    assert isinstance(report, Report)
    assert (report.message, report.nominated) == ("the API server rejected the preemption: pods is forbidden", "")
    assert life.decide(0.0) == []
    assert [one.pod.metadata.uid for one in orders(life.decide())] == [high.metadata.uid]


def test_a_new_leader_takes_the_nomination_from_the_pods_status(life: Life) -> None:
    """It preempts no other pod while the victims of its predecessor terminate."""
    life.node()
    life.node("n2")
    low, other = life.assigned(0), life.assigned(0)
    node = low.spec.node_name or ""
    high = life.pod(1, status={"nominatedNodeName": node})
    life.terminate(low)
    assert orders(life.decide()) == []
    life.gone(low)
    assert binds_of(life.decide()) == [(high.metadata.uid, node)]
    assert other.spec.node_name


def test_what_the_last_leader_still_writes_counts(life: Life) -> None:
    life.node()
    high = life.pod(1, status={"nominatedNodeName": "n1"})
    assert life.machine.step(life.now) == []
    assert life.machine.reservations.node_of(high.metadata.uid) == "n1"
    life.show(high, status={"nominatedNodeName": None})
    assert life.machine.step(life.now) == []
    assert len(life.machine.reservations) == 0


def test_each_of_many_replicas_gets_a_victim_and_is_requeued_by_its_own(life: Life) -> None:
    """Replicas share an answer as long as they wait for the same; those nominated wait for their own victims."""
    for number in range(3):
        life.node(f"n{number}")
    for _ in range(3):
        life.assigned(0)
    high = [life.pod(1).metadata.uid for _ in range(3)]
    all_orders = orders(life.decide())
    assert sorted(order.node for order in all_orders) == ["n0", "n1", "n2"]
    seen = []
    for order in reversed(all_orders):
        life.machine.pods(Removed(Identity(uid=order.victims[0].uid)), life.now)
        found = life.decide()
        seen += binds_of(found)
        life.bind(found)
        assert seen[-1] == (order.pod.metadata.uid, order.node)
    assert sorted(uid for uid, _ in seen) == sorted(high)


def test_a_nominated_pod_that_is_deleted_keeps_nothing(life: Life) -> None:
    low, high, _ = life.preempt()
    late = life.pod(0)
    life.gone(life.terminate(low))
    life.machine.step(life.now)
    life.gone(high)
    assert binds_of(life.decide()) == [(late.metadata.uid, "n1")]


def test_a_nomination_ends_when_no_preemption_would_help_any_more(life: Life) -> None:
    """The pod that it must be near is gone: what its victims leave is kept for it no longer."""
    life.node(labels={"kubernetes.io/hostname": "n1"})
    friend = life.assigned(5, None, metadata={"labels": {"app": "x"}})
    low = life.assigned(0)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    high = life.pod(1, spec={"affinity": near})
    assert nominated_in(life.decide()) == [(high.metadata.uid, "n1")]
    life.terminate(low)
    life.gone(friend)
    life.node(vfs=2, labels={"kubernetes.io/hostname": "n1"})
    assert nominated_in(life.decide()) == [(high.metadata.uid, "")]


def test_a_pod_gets_no_vf_that_a_nominated_pod_waits_for(life: Life) -> None:
    """Two of one PF are kept for the important pod, one of them free already: the small pod's are of the other PF."""
    life.show_node("n1", life.make_pf(0, vfs=2), life.make_pf(1, vfs=4, network="rail1"))
    victim = life.assigned(0, [{"network": "rail0"}])
    high = life.pod(2, [{"network": "rail0"}, {"network": "rail0"}])
    assert [order.node for order in orders(life.decide())] == ["n1"]
    life.pod(1, [{}])
    (small,) = life.bind(life.decide())
    assert [vf.pf for vf in read_assignment(small.annotations[names.ASSIGNMENT]).vfs] == ["pf1"]
    life.gone(life.terminate(victim))
    assert binds_of(life.decide()) == [(high.metadata.uid, "n1")]
