"""A pod's life through the machine: events in, instructions out."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.assignment import AssignedVf, Assignment, dump_assignment, read_assignment
from mooring.indexes import Indexes
from mooring.inventory import Out, Pf
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle
from scheduler.cycle.decisions import Bind, Decision
from scheduler.cycle.instructions import PreBindResult
from scheduler.cycle.select_victims import VictimSearch
from scheduler.kube.binding_outcome import BOUND, Outcome
from scheduler.kube.objects import Node, Pod, StatefulSet
from scheduler.kube.pod_info import PodInfo
from scheduler.state.machine import Instruction, Machine, Notice, Report
from tests.scheduler.reference.messages import refusal

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]


def _changed_pod(pod: Pod) -> Changed[Pod]:
    return Changed(Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid), pod)


def _changed_node(node: Node) -> Changed[Node]:
    return Changed(Identity(node.metadata.name), node)


def _see(machine: Machine, *things: Pod | Node, now: float = 0.0) -> list[Instruction]:
    found: list[Instruction] = []
    for thing in things:
        if isinstance(thing, Pod):
            found += machine.pods(_changed_pod(thing), now)
        else:
            found += machine.nodes(_changed_node(thing), now)
    return found


def _remove(machine: Machine, pod: Pod, now: float = 0.0) -> None:
    machine.pods(Removed(Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)), now)


def _steps(machine: Machine, now: float = 0.0) -> list[Instruction]:
    """Decide about everything that is ready; return all instructions."""
    found: list[Instruction] = []
    while (instructions := machine.step(now)) is not None:
        found += instructions
    return found


def _binds(instructions: list[Instruction]) -> list[Bind]:
    return [one for one in instructions if isinstance(one, Bind)]


def _reports(instructions: list[Instruction]) -> list[str]:
    """Return the reports; of waiting pods why no node fits."""
    return [refusal(one.message) for one in instructions if isinstance(one, Report)]


def _notices(instructions: list[Instruction]) -> list[Notice]:
    return [one for one in instructions if isinstance(one, Notice)]


def _as_bound(decision: Bind) -> Pod:
    """Return the pod as the API server shows it after the bind."""
    document = msgspec.to_builtins(decision.pod_info.pod)
    document["spec"]["nodeName"] = decision.assigned.node
    document["metadata"]["annotations"] = {**decision.pod_info.pod.annotations, **decision.annotations}
    return msgspec.convert(document, Pod)


def _claiming(make_pod: MakePod, vf: int, node: str = "n1", **fields: Any) -> Pod:
    """Make a bound pod whose assignment claims VF ``vf`` of pf0."""
    pod = make_pod(node=node, **fields)
    vfs = (AssignedVf("pf0", vf, f"0000:04:00.{vf + 2}", "ethernet", "rail0"),)
    annotations = {names.ASSIGNMENT: dump_assignment(Assignment(pod.metadata.uid, "n1", vfs))}
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = annotations
    return msgspec.convert(document, Pod)


def test_a_pod_gets_its_node_and_exact_vfs_in_one_decision(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The Bind carries the assignment, one entry per interface in order, for this uid and node."""
    pod = make_pod(request=[{"min_tx_rate": 5000}, {"name": "rdma1"}])
    _see(machine, make_node(pfs=(make_pf(),)), pod)
    (decision,) = _binds(_steps(machine))
    assignment = read_assignment(decision.annotations[names.ASSIGNMENT])
    assert (assignment.uid, assignment.node) == (pod.metadata.uid, "n1")
    assert [(vf.vf, vf.pci, vf.min_tx_rate, vf.name) for vf in assignment.vfs] == [
        (0, "0000:04:00.2", 5000, None),
        (1, "0000:04:00.3", 0, "rdma1"),
    ]


def test_a_pod_without_interfaces_is_bound_without_an_assignment(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """No request, or an empty one: a node is all that it needs."""
    _see(machine, make_node(), make_pod(), make_pod(request=[]))
    assert [decision.annotations for decision in _binds(_steps(machine))] == [{}, {}]


def test_many_pods_at_once_on_one_vf_bind_exactly_one(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The VF is reserved from the decision on, before any answer: all others get the reason why they wait."""
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), *(make_pod(request=[{}]) for _ in range(20)))
    instructions = _steps(machine)
    assert len(_binds(instructions)) == 1
    assert _reports(instructions) == ["0/1 nodes are available: 1 not enough free RDMA VFs."] * 19


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
    _see(machine, *nodes, make_pod(request=[{}, {}]))
    (report,) = _steps(machine)
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


def test_a_vf_is_free_again_when_its_pod_has_ended_or_is_gone(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Then, and only then, a pod that waits for it is requeued."""
    waiting = make_pod(request=[{}])
    held = _claiming(make_pod, 0)
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), held, waiting)
    assert _binds(_steps(machine)) == []
    _remove(machine, held, now=5.0)
    (decision,) = _binds(_steps(machine, now=6.0))
    machine.finished(decision, BOUND, 6.0)
    second = make_pod(request=[{}])
    _see(machine, second, now=7.0)
    assert _binds(_steps(machine, now=7.0)) == []
    ended = _as_bound(decision)
    ended.status.phase = "Succeeded"
    _see(machine, ended, now=8.0)
    assert [one.pod_info.uid for one in _binds(_steps(machine, now=9.0))] == [second.metadata.uid]


def test_an_assumed_pod_never_expires_without_an_answer(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """However late, and whatever unrelated the watch shows meanwhile, its VF is not given again."""
    first, second = make_pod(request=[{}]), make_pod(request=[{}])
    node = make_node(pfs=(make_pf(vfs=1),))
    _see(machine, node, first)
    assert len(_binds(_steps(machine))) == 1
    _see(machine, first, second, node, now=100_000.0)
    assert _binds(_steps(machine, now=100_000.0)) == []
    identities = [_changed_pod(first), _changed_pod(second)]
    machine.see(Pod, Synced(tuple(identities)), 200_000.0)
    assert _binds(_steps(machine, now=200_000.0)) == []


def test_a_bind_to_a_node_that_was_deleted_meanwhile_is_reported(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The API server does not check whether the node exists: the pod is bound, and a log line names both."""
    node = make_node(pfs=(make_pf(vfs=1),))
    _see(machine, node, make_pod(request=[{}]))
    (decision,) = _binds(_steps(machine))
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
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), first, second)
    (decision,) = _binds(_steps(machine))
    machine.finished(decision, Outcome(kind, "because"), 0.0)
    _remove(machine, first, now=0.5)
    assert [one.pod_info.uid for one in _binds(_steps(machine, now=2.0))] == [second.metadata.uid]


def test_what_is_bound_is_not_forgotten(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """A second answer to a Binding, which comes late, takes no pod off its node."""
    _see(machine, make_node(), make_pod())
    (decision,) = _binds(_steps(machine))
    machine.finished(decision, BOUND, 0.0)
    assert machine.cache.forget(decision.pod_info.uid, 1.0) is None
    assert machine.cache.assigned(decision.pod_info.uid) == decision.assigned


def test_a_result_of_another_kind_of_write_is_an_error(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """It changes nothing: what was reserved stays so until the write's own result."""
    _see(machine, make_node(), make_pod())
    (decision,) = _binds(_steps(machine))
    with pytest.raises(TypeError, match="PreBindResult is not the result of Bind"):
        machine.finished(decision, PreBindResult(), 0.0)
    assert machine.cache.assigned(decision.pod_info.uid) == decision.assigned


def test_a_changed_pod_is_scheduled_again(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """After a conflict the pod comes again with backoff, as it is then."""
    pod = make_pod(request=[{}])
    _see(machine, make_node(pfs=(make_pf(),)), pod)
    (decision,) = _binds(_steps(machine))
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = {names.REQUEST: '[{"vlan":1}]'}
    _see(machine, msgspec.convert(document, Pod))
    machine.finished(decision, Outcome("changed"), 0.0)
    assert _steps(machine, now=0.5) == []
    (report,) = _reports(_steps(machine, now=1.0))
    assert "vlan 1 is not allowed" in report


def test_a_refused_binding_is_reported_and_its_pod_waits_for_a_change(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Repeating it would change nothing."""
    _see(machine, make_node(), make_pod())
    (decision,) = _binds(_steps(machine))
    assert _reports(machine.finished(decision, Outcome("refused", "etcdserver: too large"), 0.0)) == [
        "the API server refuses the binding: etcdserver: too large"
    ]
    _see(machine, make_node("n2"), now=50.0)
    assert _steps(machine, now=100.0) == []


def test_a_malformed_request_is_named_and_scheduled_once_fixed(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Its owner gets field and rule; other pods are not delayed; the fix is all that it needs."""
    bad, good = make_pod(request=[{"min_tx_rate": 9, "max_tx_rate": 5}]), make_pod(request=[{}])
    _see(machine, make_node(pfs=(make_pf(),)), bad, good)
    instructions = _steps(machine)
    assert [one.pod_info.uid for one in _binds(instructions)] == [good.metadata.uid]
    assert _reports(instructions) == ["annotation 'mooring.dev/interfaces'[0].min_tx_rate: 9 exceeds max_tx_rate 5"]
    document = msgspec.to_builtins(bad)
    document["metadata"]["annotations"] = {names.REQUEST: "[{}]"}
    _see(machine, msgspec.convert(document, Pod))
    assert [one.pod_info.uid for one in _binds(_steps(machine))] == [bad.metadata.uid]


def test_our_own_status_writes_requeue_no_pod(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """A pod that only got its condition is not tried again, and is reported once."""
    pod = make_pod(request=[{}])
    _see(machine, make_node(), pod)
    (report,) = _steps(machine)
    assert isinstance(report, Report)
    document = msgspec.to_builtins(pod)
    condition = {"type": "PodScheduled", "status": "False", "message": report.message}
    document["status"] = {"conditions": [condition]}
    document["metadata"]["resourceVersion"] = "9"
    _see(machine, msgspec.convert(document, Pod), now=50.0)
    assert machine.step(50.0) is None
    _see(machine, make_node("n2", labels={"new": "label"}), now=60.0)
    assert _reports(_steps(machine, now=60.0)) == ["0/2 nodes are available: 2 node(s) had no RDMA inventory."]
    _see(machine, make_node("n2", labels={"newer": "label"}), now=90.0)
    assert _steps(machine, now=90.0) == []


def test_a_heartbeat_of_a_node_requeues_no_pod(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """A node whose facts are the same is the same node."""
    _see(machine, make_node(), make_pod(request=[{}]))
    _steps(machine)
    _see(machine, make_node(), now=50.0)
    assert machine.step(50.0) is None


def test_a_restart_rebuilds_the_same_use_from_the_api(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A new machine that lists what the old one bound sees the same VFs free, and repeats no message."""
    node = make_node(pfs=(make_pf(vfs=4),))
    pods = [make_pod(request=[{"min_tx_rate": 1000}]) for _ in range(3)]
    _see(machine, node, *pods)
    bound = [_as_bound(decision) for decision in _binds(_steps(machine))]
    waiting = make_pod(request=[{}, {}], status={"conditions": [_condition()]})
    machine.pods(_changed_pod(waiting), 0.0)
    fresh = Machine("mooring")
    fresh.see(Pod, Synced(tuple(_changed_pod(pod) for pod in (*bound, waiting))), 0.0)
    fresh.see(Node, Synced((_changed_node(node),)), 0.0)
    assert fresh.cache.derive_usage("n1").free_vfs == machine.cache.derive_usage("n1").free_vfs
    assert _steps(fresh) == []
    fresh.check()


def _condition() -> dict[str, str]:
    nobody = "1 No preemption victims found for incoming pod"
    message = f"0/1 nodes are available: 1 not enough free RDMA VFs. preemption: 0/1 nodes are available: {nobody}."
    return {"type": "PodScheduled", "status": "False", "message": message}


def test_a_vf_with_two_claims_is_free_when_both_are_gone(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Neither is trusted to free it; the log and an event on each of the pods name both."""
    one, two = _claiming(make_pod, 0, name="one"), _claiming(make_pod, 0, name="two")
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), one)
    instructions = _see(machine, two)
    assert [notice.subject for notice in _notices(instructions)] == ["dispute"]
    assert _notices(instructions)[0].fields["reason"] == "claimed by default/one, default/two"
    assert [one.pod.key for one in instructions if isinstance(one, Report)] == ["default/one", "default/two"]
    assert all("default/one, default/two" in message for message in _reports(instructions))
    waiting = make_pod(request=[{}])
    _see(machine, waiting)
    for now, claimant, expected in ((100.0, one, 0), (200.0, two, 1)):
        _remove(machine, claimant, now)
        assert len(_binds(_steps(machine, now))) == expected


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ('{"v":1,"uid":"other","node":"n1","vfs":[]}', "is not this pod's uid"),
        ('{"v":1,"uid":"uid-0","node":"n2","vfs":[]}', "is not this pod's node"),
        ('{"v":1,"uid":"uid-0","node":"n1","vfs":[{"pf":7}]}', "vfs[0]"),
        ("{", "not valid JSON"),
    ],
)
def test_an_assignment_is_valid_for_its_own_pod_and_node_only(
    annotation: str, why: str, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Any other causes a log line and nothing else."""
    forged = make_pod(node="n1", annotations={names.ASSIGNMENT: annotation})
    (notice,) = _notices(_see(machine, make_node(pfs=(make_pf(vfs=1),)), forged))
    assert notice.subject == "assignment"
    assert why in notice.fields["reason"]
    _see(machine, make_pod(request=[{}]))
    assert len(_binds(_steps(machine))) == 1


def test_a_claim_on_a_vf_that_does_not_exist_takes_nothing(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The inventory defines which VFs exist."""
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), _claiming(make_pod, 3), make_pod(request=[{}]))
    assert len(_binds(_steps(machine))) == 1


def test_a_pod_of_another_scheduler_counts_for_resources(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Whichever scheduler bound it, it uses what it requests."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}
    _see(machine, make_node(), make_pod(node="n1", spec=spec | {"schedulerName": "other"}), make_pod(spec=spec))
    assert _reports(_steps(machine)) == ["0/1 nodes are available: 1 Insufficient cpu."]


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
    _see(machine, make_node(), make_pod(**fields))
    assert machine.step(0.0) is None


def test_a_pod_bound_by_another_scheduler_counts_on_its_node(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """What was assumed for it elsewhere is free at once: our Binding can only be refused now."""
    pod, waiting = make_pod(request=[{}]), make_pod(request=[{}])
    _see(machine, make_node("n1", pfs=(make_pf(vfs=1),)), pod, waiting)
    (decision,) = _binds(_steps(machine))
    elsewhere = _as_bound(decision)
    elsewhere.spec.node_name = "n2"
    _see(machine, elsewhere)
    assert [one.pod_info.uid for one in _binds(_steps(machine, now=2.0))] == [waiting.metadata.uid]
    machine.finished(decision, Outcome("taken"), 3.0)
    assert machine.cache.assigned(pod.metadata.uid) is not None


def test_an_unreadable_object_is_ignored_and_reported_once(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A node or pod that does not decode; what a pod is known to hold, it keeps."""
    held = _claiming(make_pod, 0)
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), held, make_pod(request=[{}]))
    broken = Unreadable(Identity("p", "default", held.metadata.uid), "Expected `str`")
    assert [notice.subject for notice in _notices(machine.pods(broken, 0.0))] == ["pod"]
    assert machine.pods(broken, 0.0) == []
    assert _binds(_steps(machine)) == []
    node = Unreadable(Identity("n9"), "Expected `object`")
    assert [notice.subject for notice in _notices(machine.nodes(node, 0.0))] == ["node"]
    assert machine.nodes(node, 0.0) == []


def test_an_ignored_object_is_forgotten_when_it_is_deleted(machine: Machine) -> None:
    """Whether its deletion was seen or not; a new object of that name is reported again."""
    nameless = {Node: "n", Pod: "p", StatefulSet: "s"}
    for kind, name in nameless.items():
        broken = Unreadable(Identity(name, "default", "u"), "Expected `str`")
        endings: tuple[Event[Any], ...] = (Removed(broken.identity), Synced(()))
        for gone in endings:
            assert len(_notices(machine.see(kind, broken, 0.0))) == 1
            assert machine.see(kind, Synced((broken,)), 0.0) == []
            machine.see(kind, gone, 0.0)
            assert len(machine.event_handlers.unreadable_objects) == 0


def test_a_bound_pod_is_known_in_its_version_only(machine: Machine, make_node: MakeNode, make_pod: MakePod) -> None:
    """An unchanged object in a new list is skipped; an assumed pod has no version, and a waiting pod is read."""
    bound, waiting = make_pod(node="n1"), make_pod()
    for pod in (bound, waiting):
        pod.metadata.resource_version = "7"
    _see(machine, make_node(), bound, waiting)

    def has(pod: Pod, version: str) -> bool:
        return machine.event_handlers.has(Pod, Identity(pod.metadata.name, "default", pod.metadata.uid, version))

    assert (has(bound, "7"), has(bound, "8"), has(waiting, "7"), has(make_pod(), "7")) == (True, False, False, False)
    machine.see(Pod, Synced((), (Identity("p", "default", bound.metadata.uid, "7"),)), 0.0)
    assert machine.cache.assigned(bound.metadata.uid) is not None
    assert machine.pending_pods.depths()["active"] == 0
    _see(machine, waiting)
    assert len(_binds(_steps(machine))) == 1
    assert not has(waiting, "")


def test_the_time_a_vf_became_free_is_kept_only_for_existing_vfs(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Neither forged assignments nor nodes that come and go leave anything behind."""
    pods = [_claiming(make_pod, vf) for vf in (0, 1, 3)]
    _see(machine, make_node(pfs=(make_pf(vfs=2),)), *pods)
    for pod in (pods[0], pods[2]):
        _remove(machine, pod, now=3.0)
    assert machine.cache.free_since("n1") == {("pf0", 0): 3.0}
    machine.nodes(Removed(Identity("n1")), 4.0)
    _remove(machine, pods[1], now=5.0)
    assert machine.cache.free_since("n1") == {}


def test_an_unreadable_inventory_is_reported_once_and_the_node_takes_pods_without_vfs(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """One line in the log however often the node's heartbeat comes."""
    node = make_node(annotations={names.INVENTORY: "{"})
    (notice,) = _notices(_see(machine, node))
    assert (notice.subject, notice.fields["node"]) == ("inventory", "n1")
    assert _see(machine, make_node(annotations={names.INVENTORY: "{"}, labels={"a": "b"})) == []
    _see(machine, make_pod())
    assert len(_binds(_steps(machine))) == 1


def test_annotations_that_would_poison_the_pod_are_refused_before_the_bind(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The API server does not check the size in a Binding, and then refuses every later write."""
    pod = make_pod(request=[{}], annotations={"big": "x" * 262_000})
    _see(machine, make_node(pfs=(make_pf(),)), pod)
    (message,) = _reports(_steps(machine))
    assert message.startswith("annotations would have 262")
    assert message.endswith("the most is 262144")


def test_a_relisted_set_replaces_what_was_known(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Nodes and pods that vanished while the watch was away are gone."""
    held, waiting = _claiming(make_pod, 0), make_pod(request=[{}])
    node = make_node(pfs=(make_pf(vfs=1),))
    _see(machine, node, make_node("n2"), held, waiting)
    assert _binds(_steps(machine)) == []
    machine.see(Node, Synced((_changed_node(node),)), 1.0)
    machine.see(Pod, Synced((_changed_pod(waiting),)), 1.0)
    assert machine.cache.node_names() == {"n1"}
    assert len(_binds(_steps(machine, now=2.0))) == 1


def test_a_vf_held_out_by_the_node_keeps_its_rate_once(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A VF that is both out and claimed counts once in Σ min; out alone it counts too."""
    out = (Out(Indexes.of([0, 1]), "held", min_tx_rate=40_000),)
    node = make_node(pfs=(make_pf(vfs=4, out=out),))
    _see(machine, node, _claiming(make_pod, 0))
    (room,) = machine.cache.derive_usage("n1").free_vfs.capacities
    assert (room.vfs, room.mbps) == (2, 10_000)


def test_a_returned_vf_is_the_last_to_be_given_again(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Its node may still be restoring it: those that have been free the longest come first."""
    held = _claiming(make_pod, 0)
    _see(machine, make_node(pfs=(make_pf(vfs=3),)), held)
    _remove(machine, held, now=5.0)
    _see(machine, *(make_pod(request=[{}]) for _ in range(3)), now=6.0)
    given = [decision.assigned.assignment for decision in _binds(_steps(machine, now=6.0))]
    assert [assignment.vfs[0].vf for assignment in given if assignment] == [1, 2, 0]


def test_pods_that_ask_for_more_than_can_be_counted_fit_nowhere(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Waiting or bound by another scheduler, in one container or in several: they are told, and the rest goes on."""
    greedy = [{"name": name, "resources": {"requests": {"memory": "8Ei"}}} for name in "ab"]
    below = [{"name": "a", "resources": {"requests": {"cpu": "-100"}}}]
    _see(machine, make_node(), make_node("n2"), make_pod(spec={"containers": greedy}))
    assert _reports(_steps(machine)) == ["0/2 nodes are available: 2 Insufficient memory."]
    _see(machine, *(make_pod(node="n1", spec={"containers": greedy}) for _ in range(3)))
    _see(machine, make_pod(node="n2", spec={"containers": below}))
    _see(machine, *(make_pod(spec={"containers": [_using(cpu="6", memory="1Gi")]}) for _ in range(2)), now=5.0)
    assert [bind.assigned.node for bind in _binds(_steps(machine, 5.0))] == ["n2"]


def _using(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def _annotated(pod: Pod, annotations: dict[str, str], **spec: Any) -> Pod:
    """Return the same pod with other annotations."""
    document = msgspec.to_builtins(pod)
    document["metadata"]["annotations"] = annotations
    document["spec"] |= spec
    return msgspec.convert(document, Pod)


def test_a_pod_keeps_its_vf_whatever_happens_to_its_annotation(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Somebody removes it from a running pod: the VF is in the pod all the same."""
    pod, other = make_pod(request=[{}]), make_pod(request=[{}])
    _see(machine, make_node(pfs=(make_pf(vfs=1),)), pod)
    (bind,) = _binds(_steps(machine))
    _see(machine, _annotated(pod, pod.annotations | dict(bind.annotations), nodeName="n1"))
    _see(machine, _annotated(pod, {}, nodeName="n1"), other)
    assert _binds(_steps(machine)) == []
    _remove(machine, pod)
    assert len(_binds(_steps(machine, 100.0))) == 1


def test_annotations_count_as_they_are_when_a_pod_is_bound(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """They grew while the pod waited, so that a Binding would poison it; any change of them may help."""
    pod = make_pod(request=[{}])
    large = _annotated(pod, pod.annotations | {"x": "y" * 262_000})
    _see(machine, pod)
    assert _reports(_steps(machine)) == ["no nodes available to schedule pods"]
    _see(machine, large, make_node(pfs=(make_pf(),)))
    (report,) = _reports(_steps(machine, 10.0))
    assert report.startswith("annotations would have")
    _see(machine, large, now=20.0)
    assert _steps(machine, 20.0) == []
    _see(machine, pod, now=30.0)
    assert len(_binds(_steps(machine, 30.0))) == 1


def test_a_bug_in_a_decision_affects_one_pod_only(
    machine: Machine, make_node: MakeNode, make_pod: MakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod gets a message, the next of its signature is tried, and a change of it lets it be tried again."""
    first, second = make_pod(), make_pod()
    _see(machine, first, second)
    _steps(machine)
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
    _see(machine, make_node(), now=10.0)
    with pytest.raises(ZeroDivisionError):
        machine.step(10.0)
    assert _reports(machine.give_up()) == ["the scheduler failed to decide about this pod: see its log"]
    assert machine.give_up() == []
    assert [bind.pod_info.uid for bind in _binds(_steps(machine, 10.0))] == [second.metadata.uid]
    monkeypatch.undo()
    _see(machine, _annotated(first, {}, priority=1), now=20.0)
    assert len(_binds(_steps(machine, 20.0))) == 1
