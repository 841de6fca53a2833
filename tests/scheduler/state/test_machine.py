"""A pod's life through the machine: events in, instructions out."""

from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.kube.events import Event, Identity, Removed, Synced, Unreadable
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle
from scheduler.cycle.decisions import Decision
from scheduler.cycle.instructions import Notice, Report
from scheduler.cycle.preemption.select_victims import VictimSearch
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND, Outcome
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selecting_objects import StatefulSet
from scheduler.state.machine import Machine
from tests.scheduler.state.steps import (
    MakeNode,
    MakePf,
    MakePod,
    annotated,
    as_bound,
    binds,
    changed_node,
    changed_pod,
    claiming,
    notices,
    remove,
    reports_of,
    steps,
    take_in,
)


def test_a_pod_without_interfaces_is_bound_without_an_assignment(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """No request, or an empty one: a node is all that it needs."""
    take_in(machine, make_node(), make_pod(), make_pod(request=[]))
    assert [decision.annotations for decision in binds(steps(machine))] == [{}, {}]


def test_reasons_are_counted_over_the_nodes(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """As in kube-scheduler, sorted by text, with the nodes named in `why`."""
    nodes = [
        make_node("n1", pfs=(make_pf(vfs=1),)),
        make_node("n2", pfs=(make_pf(vfs=1),)),
        make_node("n3"),
        make_node("n4", spec={"unschedulable": True}),
    ]
    take_in(machine, *nodes, make_pod(request=[{}, {}]))
    (report,) = steps(machine)
    assert isinstance(report, Report)
    assert report.message == (
        "0/4 nodes are available: 1 node(s) had no RDMA inventory, 1 node(s) were unschedulable, "
        "2 not enough free RDMA VFs. preemption: 0/4 nodes are available: "
        "4 Preemption is not helpful for scheduling."
    )
    assert report.why["refused"] == {
        "node(s) had no RDMA inventory": ["n3"],
        "node(s) were unschedulable": ["n4"],
        "not enough free RDMA VFs": ["n1", "n2"],
    }


def test_an_assumed_pod_never_expires_without_an_answer(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """However late, and whatever unrelated the watch shows meanwhile, its VF is not given again."""
    first, second = make_pod(request=[{}]), make_pod(request=[{}])
    node = make_node(pfs=(make_pf(vfs=1),))
    take_in(machine, node, first)
    assert len(binds(steps(machine))) == 1
    take_in(machine, first, second, node, now=100_000.0)
    assert binds(steps(machine, now=100_000.0)) == []
    identities = [changed_pod(first), changed_pod(second)]
    machine.handle(Pod, Synced(tuple(identities)), 200_000.0)
    assert binds(steps(machine, now=200_000.0)) == []


def test_a_bind_to_a_node_that_was_deleted_meanwhile_is_reported(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The API server does not check whether the node exists: the pod is bound, and a log line names both."""
    node = make_node(pfs=(make_pf(vfs=1),))
    take_in(machine, node, make_pod(request=[{}]))
    (decision,) = binds(steps(machine))
    machine.nodes(Removed(Identity(name=node.metadata.name)), 1.0)
    report, notice = machine.finished(decision, BOUND, 2.0)
    assert isinstance(report, Report)
    assert isinstance(notice, Notice)
    assert (notice.fields["node"], notice.fields["uid"]) == (node.metadata.name, decision.pod_info.uid)


@pytest.mark.parametrize("kind", ["taken", "changed", "gated", "deleting", "gone", "refused"])
def test_a_definite_refusal_ends_the_reservation(
    kind: Any, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Whatever the API server's reason, the next pod gets the VF."""
    first, second = make_pod(request=[{}]), make_pod(request=[{}])
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), first, second)
    (decision,) = binds(steps(machine))
    machine.finished(decision, Outcome(kind, "because"), 0.0)
    remove(machine, first, now=0.5)
    assert [one.pod_info.uid for one in binds(steps(machine, now=2.0))] == [second.metadata.uid]


def test_what_is_bound_is_not_forgotten(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """A second answer to a Binding, which comes late, takes no pod off its node."""
    take_in(machine, make_node(), make_pod())
    (decision,) = binds(steps(machine))
    machine.finished(decision, BOUND, 0.0)
    assert machine.cache.forget(decision.pod_info.uid, 1.0) is None
    assert machine.cache.assigned(decision.pod_info.uid) == decision.assigned


def test_a_changed_pod_is_scheduled_again(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """After a conflict the pod comes again with backoff, as it is then."""
    pod = make_pod(request=[{}])
    take_in(machine, make_node(pfs=(make_pf(),)), pod)
    (decision,) = binds(steps(machine))
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = {names.REQUEST: '[{"vlan":1}]'}
    take_in(machine, msgspec.convert(document, Pod))
    machine.finished(decision, Outcome("changed"), 0.0)
    assert steps(machine, now=0.5) == []
    (report,) = reports_of(steps(machine, now=1.0))
    assert "vlan 1 is not allowed" in report


def test_a_refused_binding_is_reported_and_its_pod_waits_for_a_change(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Repeating it would change nothing."""
    take_in(machine, make_node(), make_pod())
    (decision,) = binds(steps(machine))
    assert reports_of(machine.finished(decision, Outcome("refused", "etcdserver: too large"), 0.0)) == [
        "the API server rejected the binding: etcdserver: too large"
    ]
    take_in(machine, make_node("n2"), now=50.0)
    assert steps(machine, now=100.0) == []


def test_a_malformed_request_is_named_and_scheduled_once_fixed(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Its owner gets field and rule; other pods are not delayed; the fix is all that it needs."""
    bad, good = make_pod(request=[{"min_tx_rate": 9, "max_tx_rate": 5}]), make_pod(request=[{}])
    take_in(machine, make_node(pfs=(make_pf(),)), bad, good)
    instructions = steps(machine)
    assert [one.pod_info.uid for one in binds(instructions)] == [good.metadata.uid]
    assert reports_of(instructions) == ["annotation 'mooring.dev/interfaces'[0].min_tx_rate: 9 exceeds max_tx_rate 5"]
    document = msgspec.to_builtins(bad)
    document["metadata"]["annotations"] = {names.REQUEST: "[{}]"}
    take_in(machine, msgspec.convert(document, Pod))
    assert [one.pod_info.uid for one in binds(steps(machine))] == [bad.metadata.uid]


def test_our_own_status_writes_requeue_no_pod(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """A pod that only got its condition is not tried again, and is reported once."""
    pod = make_pod(request=[{}])
    take_in(machine, make_node(), pod)
    (report,) = steps(machine)
    assert isinstance(report, Report)
    document = msgspec.to_builtins(pod)
    condition = {"type": "PodScheduled", "status": "False", "message": report.message}
    document["status"] = {"conditions": [condition]}
    document["metadata"]["resourceVersion"] = "9"
    take_in(machine, msgspec.convert(document, Pod), now=50.0)
    assert machine.step(50.0) is None
    take_in(machine, make_node("n2", labels={"new": "label"}), now=60.0)
    assert reports_of(steps(machine, now=60.0)) == ["0/2 nodes are available: 2 node(s) had no RDMA inventory."]
    take_in(machine, make_node("n2", labels={"newer": "label"}), now=90.0)
    assert steps(machine, now=90.0) == []


def test_a_heartbeat_of_a_node_requeues_no_pod(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """A node whose facts are the same is the same node."""
    take_in(machine, make_node(), make_pod(request=[{}]))
    steps(machine)
    take_in(machine, make_node(), now=50.0)
    assert machine.step(50.0) is None


def test_a_restart_rebuilds_the_same_use_from_the_api(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A new machine that lists what the old one bound sees the same VFs free, and repeats no message."""
    node = make_node(pfs=(make_pf(vfs=4),))
    pods = [make_pod(request=[{"min_tx_rate": 1000}]) for _ in range(3)]
    take_in(machine, node, *pods)
    bound = [as_bound(decision) for decision in binds(steps(machine))]
    waiting = make_pod(request=[{}, {}], status={"conditions": [_condition()]})
    machine.pods(changed_pod(waiting), 0.0)
    fresh = Machine("mooring")
    fresh.handle(Pod, Synced(tuple(changed_pod(pod) for pod in (*bound, waiting))), 0.0)
    fresh.handle(Node, Synced((changed_node(node),)), 0.0)
    assert fresh.cache.vf_accounting("n1").free_vfs == machine.cache.vf_accounting("n1").free_vfs
    assert steps(fresh) == []
    fresh.check()


def _condition() -> dict[str, str]:
    nobody = "1 No preemption victims found for incoming pod"
    message = f"0/1 nodes are available: 1 not enough free RDMA VFs. preemption: 0/1 nodes are available: {nobody}."
    return {"type": "PodScheduled", "status": "False", "message": message}


def test_a_pod_of_another_scheduler_counts_for_resources(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Whichever scheduler bound it, it uses what it requests."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}
    take_in(machine, make_node(), make_pod(node="n1", spec=spec | {"schedulerName": "other"}), make_pod(spec=spec))
    assert reports_of(steps(machine)) == ["0/1 nodes are available: 1 Insufficient cpu."]


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"schedulerName": "other"}},
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"phase": "Failed"}},
    ],
)
def test_a_pod_that_is_not_to_be_scheduled_is_left_alone(
    fields: dict[str, Any], machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Another scheduler's, gated, being deleted, or completed."""
    take_in(machine, make_node(), make_pod(**fields))
    assert machine.step(0.0) is None


def test_a_pod_bound_by_another_scheduler_counts_on_its_node(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """What was assumed for it elsewhere is free at once: our Binding can only be refused now."""
    pod, waiting = make_pod(request=[{}]), make_pod(request=[{}])
    take_in(machine, make_node("n1", pfs=(make_pf(vfs=1),)), pod, waiting)
    (decision,) = binds(steps(machine))
    elsewhere = as_bound(decision)
    elsewhere.spec.node_name = "n2"
    take_in(machine, elsewhere)
    assert [one.pod_info.uid for one in binds(steps(machine, now=2.0))] == [waiting.metadata.uid]
    machine.finished(decision, Outcome("taken"), 3.0)
    assert machine.cache.assigned(pod.metadata.uid) is not None


def test_an_unreadable_object_is_ignored_and_reported_once(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A node or pod that does not decode; what a pod is known to hold, it keeps."""
    held = claiming(make_pod, 0)
    take_in(machine, make_node(pfs=(make_pf(vfs=1),)), held, make_pod(request=[{}]))
    broken = Unreadable(Identity("p", "default", held.metadata.uid), "Expected `str`")
    assert [notice.subject for notice in notices(machine.pods(broken, 0.0))] == ["pod"]
    assert machine.pods(broken, 0.0) == []
    assert binds(steps(machine)) == []
    node = Unreadable(Identity("n9"), "Expected `object`")
    assert [notice.subject for notice in notices(machine.nodes(node, 0.0))] == ["node"]
    assert machine.nodes(node, 0.0) == []


def test_an_ignored_object_is_forgotten_when_it_is_deleted(machine: Machine) -> None:
    """Whether its deletion was seen or not; a new object of that name is reported again."""
    nameless = {Node: "n", Pod: "p", StatefulSet: "s"}
    for kind, name in nameless.items():
        broken = Unreadable(Identity(name, "default", "u"), "Expected `str`")
        endings: tuple[Event[Any], ...] = (Removed(broken.identity), Synced(()))
        for gone in endings:
            assert len(notices(machine.handle(kind, broken, 0.0))) == 1
            assert machine.handle(kind, Synced((broken,)), 0.0) == []
            machine.handle(kind, gone, 0.0)
            assert len(machine.event_handlers.unreadable_objects) == 0


def test_a_bound_pod_is_known_in_its_version_only(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """An unchanged object in a new list is skipped; an assumed pod has no version, and a waiting pod is read."""
    bound, waiting = make_pod(node="n1"), make_pod()
    for pod in (bound, waiting):
        pod.metadata.resource_version = "7"
    take_in(machine, make_node(), bound, waiting)

    def has(pod: Pod, version: str) -> bool:
        return machine.event_handlers.has(Pod, Identity(pod.metadata.name, "default", pod.metadata.uid, version))

    assert (has(bound, "7"), has(bound, "8"), has(waiting, "7"), has(make_pod(), "7")) == (True, False, False, False)
    machine.handle(Pod, Synced((), (Identity("p", "default", bound.metadata.uid, "7"),)), 0.0)
    assert machine.cache.assigned(bound.metadata.uid) is not None
    assert machine.pending_pods.depths()["active"] == 0
    take_in(machine, waiting)
    assert len(binds(steps(machine))) == 1
    assert not has(waiting, "")


def test_a_relisted_set_replaces_what_was_known(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Nodes and pods that vanished while the watch was away are gone."""
    held, waiting = claiming(make_pod, 0), make_pod(request=[{}])
    node = make_node(pfs=(make_pf(vfs=1),))
    take_in(machine, node, make_node("n2"), held, waiting)
    assert binds(steps(machine)) == []
    machine.handle(Node, Synced((changed_node(node),)), 1.0)
    machine.handle(Pod, Synced((changed_pod(waiting),)), 1.0)
    assert machine.cache.node_names() == {"n1"}
    assert len(binds(steps(machine, now=2.0))) == 1


def test_pods_that_ask_for_more_than_can_be_counted_fit_nowhere(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Waiting or bound by another scheduler, in one container or in several: they are told, and the rest goes on."""
    greedy = [{"name": name, "resources": {"requests": {"memory": "8Ei"}}} for name in "ab"]
    below = [{"name": "a", "resources": {"requests": {"cpu": "-100"}}}]
    take_in(machine, make_node(), make_node("n2"), make_pod(spec={"containers": greedy}))
    assert reports_of(steps(machine)) == ["0/2 nodes are available: 2 Insufficient memory."]
    take_in(machine, *(make_pod(node="n1", spec={"containers": greedy}) for _ in range(3)))
    take_in(machine, make_pod(node="n2", spec={"containers": below}))
    take_in(machine, *(make_pod(spec={"containers": [_using(cpu="6", memory="1Gi")]}) for _ in range(2)), now=5.0)
    assert [bind.assigned.node for bind in binds(steps(machine, 5.0))] == ["n2"]


def _using(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def test_a_bug_in_a_decision_affects_one_pod_only(
    machine: Machine, make_node: MakeNode, make_pod: MakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod gets a message, the next of its signature is tried, and a change of it lets it be tried again."""
    first, second = make_pod(), make_pod()
    take_in(machine, first, second)
    steps(machine)
    proceed = SchedulingCycle.proceed

    def fail(
        scheduling_cycle: SchedulingCycle,
        pod_info: PodInfo,
        now: float,
        search: VictimSearch,
        record_phase: RecordPhase,
    ) -> Decision | None:
        if pod_info.uid == first.metadata.uid:
            raise ZeroDivisionError
        return proceed(scheduling_cycle, pod_info, now, search, record_phase)

    monkeypatch.setattr(SchedulingCycle, "proceed", fail)
    take_in(machine, make_node(), now=10.0)
    with pytest.raises(ZeroDivisionError):
        machine.step(10.0)
    assert reports_of(machine.give_up(10.0)) == ["internal error while scheduling this pod: see the scheduler's log"]
    assert machine.give_up(10.0) == []
    assert [bind.pod_info.uid for bind in binds(steps(machine, 10.0))] == [second.metadata.uid]
    monkeypatch.undo()
    take_in(machine, annotated(first, {}, priority=1), now=20.0)
    assert len(binds(steps(machine, 20.0))) == 1
