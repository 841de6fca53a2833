"""A preempting pod, through the machine: from the order to preempt to its bind, and what may come between."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.assignment import read_assignment
from mooring.indexes import Indexes
from mooring.inventory import HELD_BY, Out, Pf
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Instruction, Report
from scheduler.cycle.preemption import VF_PATIENCE_S
from scheduler.kube.binding_outcome import BOUND
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class Life:
    """A cluster of nodes with one PF, and the actions of its users, kubelets and API server."""

    def __init__(self, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
        self.machine = machine
        self._make_node, self._make_pf, self._make_pod = make_node, make_pf, make_pod
        self.now = 0.0

    def node(
        self, name: str = "n1", vfs: int = 1, labels: dict[str, str] | None = None, **pf: Any
    ) -> list[Instruction]:
        node = self._make_node(name, (self._make_pf(vfs=vfs, **pf),), labels=labels or {})
        return self.machine.nodes(Changed(Identity(name), node), self.now)

    def lose_node(self, name: str) -> None:
        self.machine.nodes(Removed(Identity(name)), self.now)

    def pod(self, priority: int, request: object = ({},), **fields: Any) -> Pod:
        """Create a pod that waits."""
        spec = {"priority": priority} | fields.pop("spec", {})
        return self.show(self._make_pod(request=request, spec=spec, **fields))

    def show(self, pod: Pod, **metadata: Any) -> Pod:
        document = msgspec.to_builtins(pod)
        document["status"] |= metadata.pop("status", {})
        document["metadata"] |= metadata
        pod = msgspec.convert(document, Pod)
        self.machine.pods(Changed(_identity(pod), pod), self.now)
        return pod

    def gone(self, pod: Pod) -> None:
        self.machine.pods(Removed(_identity(pod)), self.now)

    def decide(self, wait_s: float = 15.0) -> list[Instruction]:
        """Let backoffs end, and decide about all that is ready."""
        self.now += wait_s
        found: list[Instruction] = []
        while (instructions := self.machine.step(self.now)) is not None:
            found += instructions
            self.machine.check()
        return found

    def assigned(self, priority: int, request: object = ({},), **fields: Any) -> Pod:
        """Create a pod that is bound at once."""
        self.pod(priority, request, **fields)
        return self.bind(self.decide())[0]

    def bind(self, instructions: Iterable[Instruction]) -> list[Pod]:
        """Carry out the binds; return the pods as the watch shows them."""
        return [self._bound(one) for one in instructions if isinstance(one, Bind)]

    def _bound(self, decision: Bind) -> Pod:
        self.machine.finished(decision, BOUND, self.now)
        document = msgspec.to_builtins(decision.pod_info.pod)
        document["spec"]["nodeName"] = decision.assigned.node
        document["metadata"]["annotations"] = {**decision.pod_info.pod.annotations, **decision.annotations}
        return self.show(msgspec.convert(document, Pod))

    def terminate(self, pod: Pod) -> Pod:
        """Show a victim as it is once the API server has accepted its deletion."""
        return self.show(pod, status={"conditions": [PREEMPTED]}, **DELETED)


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


def _identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


def _orders(instructions: Iterable[Instruction]) -> list[DeleteVictims]:
    return [one for one in instructions if isinstance(one, DeleteVictims)]


def _victims(instructions: Iterable[Instruction]) -> list[str]:
    return [assigned.uid for order in _orders(instructions) for assigned in order.victims]


def _binds(instructions: Iterable[Instruction]) -> list[tuple[str, str]]:
    return [(one.pod_info.uid, one.assigned.node) for one in instructions if isinstance(one, Bind)]


def _nominated(instructions: Iterable[Instruction]) -> list[tuple[str, str | None]]:
    """Return what is written of pods' nominations."""
    return [(one.pod.metadata.uid, one.nominated) for one in instructions if isinstance(one, Report)]


def test_a_more_important_pod_gets_the_vf_of_another(life: Life) -> None:
    """The victim is deleted, the pod is nominated, told so, and bound with the same VF when the victim is gone."""
    life.node()
    low = life.assigned(0)
    high = life.pod(1)
    found = life.decide()
    assert _victims(found) == [low.metadata.uid]
    assert _nominated(found) == [(high.metadata.uid, "n1")]
    (order,) = _orders(found)
    (report,) = life.machine.finished(order, DeleteVictimsResult(order.victims), life.now)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == (
        "Preempted",
        f"Preempted by pod {high.metadata.uid} on node n1",
    )
    life.gone(life.terminate(low))
    (bound,) = life.bind(life.decide())
    assert bound.metadata.uid == high.metadata.uid
    assert read_assignment(bound.annotations[names.ASSIGNMENT]).vfs[0].vf == 0


def test_the_reserved_rate_counts_as_what_a_victim_frees(life: Life) -> None:
    """VFs enough, Mb/s not: of two pods only the one goes whose rate is needed."""
    life.node(vfs=4)
    slow = life.assigned(0, [{"min_tx_rate": 20_000}])
    fast = life.assigned(0, [{"min_tx_rate": 60_000}])
    life.pod(1, [{"min_tx_rate": 50_000}])
    assert _victims(life.decide()) == [fast.metadata.uid]
    assert slow.metadata.uid


def test_equal_priority_and_the_policy_never_preempt_no_pod(life: Life) -> None:
    """A pod whose priority is not higher has no victims; one with the policy Never preempts nothing."""
    life.node()
    life.assigned(1)
    life.pod(1)
    life.pod(5, spec={"preemptionPolicy": "Never"})
    assert _orders(life.decide()) == []


def test_a_pod_with_terminating_victims_preempts_no_others(life: Life) -> None:
    """Whatever else happens meanwhile, also before the watch shows that they terminate."""
    life.node()
    life.node("n2")
    low = life.assigned(0)
    life.assigned(0)
    life.pod(1)
    assert len(_victims(life.decide())) == 1
    life.node("n3", vfs=2, up=False)
    assert _orders(life.decide()) == []
    life.terminate(low)
    life.node("n4", vfs=2, network="elsewhere", up=False, offer_mbps=0)
    assert _orders(life.decide()) == []


def test_a_pod_waits_until_the_node_has_the_vf_back(life: Life) -> None:
    """The pod is gone, its VF is not free yet: no bind, no further victims, until the inventory releases it."""
    life.node(vfs=2)
    low, other = life.assigned(0), life.assigned(0)
    high = life.pod(1)
    (victim,) = _victims(life.decide())
    went = low if low.metadata.uid == victim else other
    vf = read_assignment(went.annotations[names.ASSIGNMENT]).vfs[0].vf
    life.node(vfs=2, out=(Out(Indexes.of([vf]), f"{HELD_BY}{victim}", 5000),))
    life.gone(life.terminate(went))
    (report,) = life.decide()
    assert isinstance(report, Report)
    waits = "not eligible due to a VF that the nominated node still holds for a pod that is gone."
    assert (report.message.partition(" preemption: ")[2], report.nominated) == (waits, "n1")
    life.node(vfs=2)
    assert _binds(life.decide()) == [(high.metadata.uid, "n1")]


def _stuck(life: Life, vfs: int = 2, **labels: str) -> tuple[Pod, Pod, Callable[..., list[Instruction]]]:
    """Let a pod wait on n1 for a VF that the node holds for a pod that is gone.

    Return the pod, the one that is left on the node, and a function that shows the node, with or without that VF.
    """
    life.node(vfs=vfs)
    assigned = [life.assigned(0) for _ in range(vfs)]
    high = life.pod(1)
    (victim,) = _victims(life.decide())
    (went,) = (one for one in assigned if one.metadata.uid == victim)
    vf = read_assignment(went.annotations[names.ASSIGNMENT]).vfs[0].vf
    out = Out(Indexes.of([vf]), f"{HELD_BY}{victim}", 5000)

    def show(*, is_held: bool) -> list[Instruction]:
        return life.node(vfs=vfs, out=(out,) if is_held else ())

    show(is_held=True)
    life.gone(life.terminate(went))
    life.decide()
    return high, next(one for one in assigned if one is not went), show


def test_the_wait_for_a_vf_that_the_node_does_not_get_back_ends(life: Life) -> None:
    """The message says which VF is held for which pod; no other pod is preempted there, and it takes another node."""
    high, _, _ = _stuck(life)
    assert life.machine.tick(life.now + VF_PATIENCE_S - 1.0) == []
    life.now += VF_PATIENCE_S
    (report,) = life.machine.tick(life.now)
    assert isinstance(report, Report)
    assert report.nominated == ""
    given_up = "nomination given up: node 'n1' has not got back within 60 s: VF 1 of PF 'pf0' (held by pod uid-1)"
    assert report.message == given_up
    assert life.machine.next_due() == life.machine.queue.next_ready()
    (told,) = life.decide()
    assert isinstance(told, Report)
    assert "1 node(s) did not get back the VFs of pods that are gone." in told.message
    life.node("n2")
    assert _binds(life.decide()) == [(high.metadata.uid, "n2")]


def test_a_node_that_gets_its_vfs_back_late_is_as_good_as_any(life: Life) -> None:
    """The pod that gave it up gets the VF; the next one may preempt there."""
    high, stays, show = _stuck(life)
    life.machine.tick(life.now + VF_PATIENCE_S)
    life.decide(VF_PATIENCE_S)
    show(is_held=False)
    life.bind(found := life.decide())
    assert _binds(found) == [(high.metadata.uid, "n1")]
    life.pod(1)
    assert _victims(life.decide()) == [stays.metadata.uid]


def test_pods_without_vfs_preempt_on_a_node_that_lacks_vfs(life: Life) -> None:
    """A VF that is not released does not matter for cpu."""
    _, stays, _ = _stuck(life)
    life.machine.tick(life.now + VF_PATIENCE_S)
    life.decide(VF_PATIENCE_S)
    whole = [{"name": "c", "resources": {"requests": {"memory": "1Gi", "cpu": "8"}}}]
    low = life.assigned(0, None, spec={"containers": whole})
    life.pod(1, None, spec={"containers": whole})
    assert low.metadata.uid in _victims(life.decide())
    assert stays.metadata.uid not in _victims(life.decide())


@pytest.fixture
def slow(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[Life]:
    """Give a life whose scheduler examines one node in a step when it searches for victims."""
    machine = Machine("mooring", portion=1)
    yield Life(machine, make_node, make_pf, make_pod)
    machine.check()


def test_events_during_the_search_for_victims_count(slow: Life) -> None:
    """If a node has become free in between it is taken, and no pod is preempted."""
    assigned = [slow.assigned(0) for name in ("n1", "n2", "n3") for _ in [slow.node(name)]]
    high = slow.pod(1)
    slow.now += 15.0
    assert slow.machine.step(slow.now) == []
    assert slow.machine.is_trying
    assert slow.machine.next_due() == 0.0
    slow.gone(assigned[1])
    found = slow.machine.step(slow.now)
    assert _binds(found or []) == [(high.metadata.uid, "n2")]
    assert not slow.machine.is_trying


@pytest.mark.parametrize("change", ["gone", "request changed"])
def test_a_pod_that_changes_during_the_search_for_victims_is_scheduled_again(slow: Life, change: str) -> None:
    """Deleted, it preempts nothing; with a smaller request, it is placed by that."""
    for name in ("n1", "n2"):
        slow.node(name)
        slow.assigned(0)
    high = slow.pod(1)
    slow.now += 15.0
    assert slow.machine.step(slow.now) == []
    if change == "gone":
        slow.gone(high)
        assert slow.decide() == []
    else:
        slow.show(high, annotations={})
        assert _binds(slow.decide()) == [(high.metadata.uid, "n1")]


@pytest.mark.parametrize("earlier", range(4))
def test_an_event_during_the_search_for_victims_requeues_the_pod(slow: Life, earlier: int) -> None:
    """A reservation on a node that was examined already has ended: the pod is not left waiting."""
    slow.node("n1")
    low = slow.assigned(0)
    slow.node("n2")
    slow.assigned(9)
    rival = slow.pod(5)
    assert _victims(slow.decide()) == [low.metadata.uid]
    for _ in range(earlier):
        # The pod's uid decides from which node on is searched.
        slow.gone(slow.pod(-1))
    slow.pod(5)
    slow.now += 15.0
    assert slow.machine.step(slow.now) == []
    slow.gone(rival)
    assert _victims([*slow.decide(0.0), *slow.decide()]) == [low.metadata.uid]


def test_a_vf_that_is_out_for_good_is_not_waited_for(life: Life) -> None:
    """Deleting the first victim did not help: another one goes."""
    life.node(vfs=2)
    low, other = life.assigned(0), life.assigned(0)
    life.pod(1)
    (victim,) = _victims(life.decide())
    went, stays = (low, other) if low.metadata.uid == victim else (other, low)
    vf = read_assignment(went.annotations[names.ASSIGNMENT]).vfs[0].vf
    life.node(vfs=2, out=(Out(Indexes.of([vf]), "bound to vfio-pci"),))
    life.gone(life.terminate(went))
    assert _victims(life.decide()) == [stays.metadata.uid]


def test_a_pod_whose_vf_would_stay_out_is_not_a_victim(life: Life) -> None:
    """Its deletion frees nothing, so that a more important one has to go."""
    life.node(vfs=2)
    low, middle = life.assigned(0), life.assigned(1)
    vf = read_assignment(low.annotations[names.ASSIGNMENT]).vfs[0].vf
    life.node(vfs=2, out=(Out(Indexes.of([vf]), "bound to vfio-pci"),))
    life.pod(2)
    assert _victims(life.decide()) == [middle.metadata.uid]


def test_of_two_pods_that_claim_one_vf_one_alone_is_not_a_victim(life: Life) -> None:
    """The VF is free when both are gone; here the second has too high a priority, and a third pod goes."""
    life.node(vfs=2)
    low, third = life.assigned(0), life.assigned(1)
    twin = life.show(low, name="twin", uid="twin")
    document = msgspec.to_builtins(twin)
    document["spec"]["priority"] = 9
    document["metadata"]["annotations"][names.ASSIGNMENT] = twin.annotations[names.ASSIGNMENT].replace(
        low.metadata.uid, "twin"
    )
    life.show(msgspec.convert(document, Pod))
    life.pod(2)
    assert _victims(life.decide()) == [third.metadata.uid]


def test_a_less_important_pod_does_not_get_what_is_kept_for_a_nominated_one(life: Life) -> None:
    """Neither while the victims terminate nor when the VF is free; one that is more important gets it."""
    life.node()
    low = life.assigned(0)
    middle = life.pod(1)
    assert _victims(life.decide()) == [low.metadata.uid]
    late = life.pod(0)
    assert _binds(life.decide(0.0)) == []
    life.gone(life.terminate(low))
    found = life.machine.step(life.now)
    assert found is None, "all are in backoff"
    highest = life.pod(9)
    assert [pod.metadata.uid for pod in life.bind(life.decide(0.0))] == [highest.metadata.uid]
    assert _binds(life.decide()) == []
    assert set(life.machine.queue.uids()) == {middle.metadata.uid, late.metadata.uid}


def test_the_rate_that_is_kept_for_a_nominated_pod_is_not_given(life: Life) -> None:
    """Of 90 Gb/s 60 are kept: a less important pod may have 30 of them, and not 31."""
    life.node(vfs=4)
    low = life.assigned(0, [{"min_tx_rate": 80_000}])
    high = life.pod(1, [{"min_tx_rate": 60_000}])
    assert _victims(life.decide()) == [low.metadata.uid]
    life.gone(life.terminate(low))
    life.pod(0, [{"min_tx_rate": 31_000}])
    assert _binds(life.machine.step(life.now) or []) == []
    fits = life.pod(0, [{"min_tx_rate": 30_000}])
    assert _binds(life.machine.step(life.now) or []) == [(fits.metadata.uid, "n1")]
    assert _binds(life.decide()) == [(high.metadata.uid, "n1")]


def test_a_more_important_pod_takes_over_a_nomination(life: Life) -> None:
    """The less important one gets a message that its nomination has ended, and is scheduled again."""
    life.node()
    low = life.assigned(0)
    middle = life.pod(1)
    assert _nominated(life.decide()) == [(middle.metadata.uid, "n1")]
    life.terminate(low)
    high = life.pod(2)
    found = life.decide(0.0)
    assert _nominated(found) == [(high.metadata.uid, "n1")]
    assert _victims(found) == [], "they go already"
    assert _nominated(life.decide()) == [(middle.metadata.uid, "")]


def test_a_node_that_vanishes_ends_the_nomination(life: Life) -> None:
    """The pod gets a message, and is scheduled on the remaining nodes."""
    life.node()
    life.node("n2")
    life.assigned(0)
    life.assigned(0)
    high = life.pod(1)
    (order,) = _orders(life.decide())
    life.lose_node(order.node)
    found = life.decide()
    left = {"n1": "n2", "n2": "n1"}[order.node]
    assert _nominated(found) == [(high.metadata.uid, left)]
    assert [one.node for one in _orders(found)] == [left]


def test_a_nominated_pod_goes_to_another_node_that_has_become_free(life: Life) -> None:
    """Nothing is kept any more then, and a pod that was kept away gets the VF of the victim."""
    life.node()
    low = life.assigned(0)
    high = life.pod(1)
    life.decide()
    late = life.pod(0)
    life.gone(life.terminate(low))
    life.node("n2")
    assert sorted(_binds(life.decide())) == sorted([(high.metadata.uid, "n1"), (late.metadata.uid, "n2")])


def test_a_nominated_pod_may_go_elsewhere_while_its_victims_terminate(life: Life) -> None:
    """The nomination ends with the bind."""
    life.node()
    low = life.assigned(0)
    high = life.pod(1)
    life.decide()
    life.terminate(low)
    life.node("n2")
    assert _binds(life.decide()) == [(high.metadata.uid, "n2")]
    assert len(life.machine.nominator) == 0


def test_a_preemption_that_is_refused_is_reported_and_tried_again(life: Life) -> None:
    """A missing permission to delete pods must be visible; the pod waits out its backoff."""
    life.node()
    life.assigned(0)
    high = life.pod(1)
    (order,) = _orders(life.decide())
    (report,) = life.machine.finished(order, DeleteVictimsResult((), "pods is forbidden"), life.now)
    assert isinstance(report, Report)
    assert (report.message, report.nominated) == ("preemption refused: pods is forbidden", "")
    assert life.decide(0.0) == []
    assert [one.pod.metadata.uid for one in _orders(life.decide())] == [high.metadata.uid]


def test_a_new_leader_takes_the_nomination_from_the_pods_status(life: Life) -> None:
    """It preempts no other pod while the victims of its predecessor terminate."""
    life.node()
    life.node("n2")
    low, other = life.assigned(0), life.assigned(0)
    node = low.spec.node_name or ""
    high = life.pod(1, status={"nominatedNodeName": node})
    life.terminate(low)
    assert _orders(life.decide()) == []
    life.gone(low)
    assert _binds(life.decide()) == [(high.metadata.uid, node)]
    assert other.spec.node_name


def test_each_of_many_replicas_gets_a_victim_and_is_requeued_by_its_own(life: Life) -> None:
    """Replicas share an answer as long as they wait for the same; those nominated wait for their own victims."""
    for number in range(3):
        life.node(f"n{number}")
    for _ in range(3):
        life.assigned(0)
    high = [life.pod(1).metadata.uid for _ in range(3)]
    orders = _orders(life.decide())
    assert sorted(order.node for order in orders) == ["n0", "n1", "n2"]
    seen = []
    for order in reversed(orders):
        life.machine.pods(Removed(Identity(uid=order.victims[0].uid)), life.now)
        found = life.decide()
        seen += _binds(found)
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
    assert _binds(life.decide()) == [(late.metadata.uid, "n1")]


def test_a_nomination_ends_when_no_preemption_would_help_any_more(life: Life) -> None:
    """The pod that it must be near is gone: what its victims leave is kept for it no longer."""
    life.node(labels={"kubernetes.io/hostname": "n1"})
    friend = life.assigned(5, None, metadata={"labels": {"app": "x"}})
    low = life.assigned(0)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    high = life.pod(1, spec={"affinity": near})
    assert _nominated(life.decide()) == [(high.metadata.uid, "n1")]
    life.terminate(low)
    life.gone(friend)
    life.node(vfs=2, labels={"kubernetes.io/hostname": "n1"})
    assert _nominated(life.decide()) == [(high.metadata.uid, "")]
