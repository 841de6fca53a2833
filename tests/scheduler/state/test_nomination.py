"""A preempting pod, through the machine: from the order to preempt to its bind, and what may come between."""

from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import DeleteVictimsResult, Report
from tests.scheduler.state.preempting import Life, binds_of, nominated_in, orders_of, victims_of


def test_a_less_important_pod_does_not_get_what_is_kept_for_a_nominated_one(life: Life) -> None:
    """Neither while the victims terminate nor when the VF is free; one that is more important gets it."""
    life.node()
    low = life.assigned(0)
    middle = life.pod(1)
    assert victims_of(life.decide()) == [low.metadata.uid]
    late = life.pod(0)
    assert binds_of(life.decide(0.0)) == []
    life.gone(life.terminate(low))
    found = life.machine.step(life.now)
    assert found is None, "all are in backoff"
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
    life.node()
    low = life.assigned(0)
    middle = life.pod(1)
    assert nominated_in(life.decide()) == [(middle.metadata.uid, "n1")]
    life.terminate(low)
    high = life.pod(2)
    found = life.decide(0.0)
    assert nominated_in(found) == [(high.metadata.uid, "n1")]
    assert victims_of(found) == [], "they go already"
    assert nominated_in(life.decide()) == [(middle.metadata.uid, "")]


def test_a_node_that_vanishes_ends_the_nomination(life: Life) -> None:
    """The pod gets a message, and is scheduled on the remaining nodes."""
    life.node()
    life.node("n2")
    life.assigned(0)
    life.assigned(0)
    high = life.pod(1)
    (order,) = orders_of(life.decide())
    life.lose_node(order.node)
    found = life.decide()
    left = {"n1": "n2", "n2": "n1"}[order.node]
    assert nominated_in(found) == [(high.metadata.uid, left)]
    assert [one.node for one in orders_of(found)] == [left]


def test_a_nominated_pod_goes_to_another_node_that_has_become_free(life: Life) -> None:
    """Nothing is kept any more then, and a pod that was kept away gets the VF of the victim."""
    life.node()
    low = life.assigned(0)
    high = life.pod(1)
    life.decide()
    late = life.pod(0)
    life.gone(life.terminate(low))
    life.node("n2")
    assert sorted(binds_of(life.decide())) == sorted([(high.metadata.uid, "n1"), (late.metadata.uid, "n2")])


def test_a_nominated_pod_may_go_elsewhere_while_its_victims_terminate(life: Life) -> None:
    """The nomination ends with the bind."""
    life.node()
    low = life.assigned(0)
    high = life.pod(1)
    life.decide()
    life.terminate(low)
    life.node("n2")
    assert binds_of(life.decide()) == [(high.metadata.uid, "n2")]
    assert len(life.machine.reservations) == 0


def test_a_preemption_that_is_refused_is_reported_and_tried_again(life: Life) -> None:
    """A missing permission to delete pods must be visible; the pod waits out its backoff."""
    life.node()
    life.assigned(0)
    high = life.pod(1)
    (order,) = orders_of(life.decide())
    (report,) = life.machine.finished(order, DeleteVictimsResult((), "pods is forbidden"), life.now)
    assert isinstance(report, Report)
    assert (report.message, report.nominated) == ("the API server rejected the preemption: pods is forbidden", "")
    assert life.decide(0.0) == []
    assert [one.pod.metadata.uid for one in orders_of(life.decide())] == [high.metadata.uid]


def test_a_new_leader_takes_the_nomination_from_the_pods_status(life: Life) -> None:
    """It preempts no other pod while the victims of its predecessor terminate."""
    life.node()
    life.node("n2")
    low, other = life.assigned(0), life.assigned(0)
    node = low.spec.node_name or ""
    high = life.pod(1, status={"nominatedNodeName": node})
    life.terminate(low)
    assert orders_of(life.decide()) == []
    life.gone(low)
    assert binds_of(life.decide()) == [(high.metadata.uid, node)]
    assert other.spec.node_name


def test_what_the_last_leader_still_writes_counts(life: Life) -> None:
    """Its nomination has ended, which the new leader sees before it has decided about the pod."""
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
    orders = orders_of(life.decide())
    assert sorted(order.node for order in orders) == ["n0", "n1", "n2"]
    seen = []
    for order in reversed(orders):
        life.machine.pods(Removed(Identity(uid=order.victims[0].uid)), life.now)
        found = life.decide()
        seen += binds_of(found)
        life.bind(found)
        assert seen[-1] == (order.pod.metadata.uid, order.node)
    assert sorted(uid for uid, _ in seen) == sorted(high)


def test_a_nominated_pod_that_is_deleted_keeps_nothing(life: Life) -> None:
    """A pod that was kept away is tried again."""
    life.node()
    low = life.assigned(0)
    high = life.pod(1)
    life.decide()
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
