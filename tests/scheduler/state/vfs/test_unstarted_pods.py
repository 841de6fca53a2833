"""Pods that never start because their node contradicts their assignment: evicted after five minutes, or reported."""

import time
from typing import Any

import pytest

from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from scheduler.cycle.instructions import Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.group_life import changed, claiming
from tests.scheduler.state.life import Life

OWNED = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}]}
RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def publish(life: Life, now: float, vfs: int = 4, *, ready: bool = True, boot: str = "boot-1", **fields: Any) -> None:
    """Publish node n1 with these VFs."""
    life.now = now
    life.show_node("n1", life.make_pf(vfs=vfs, **fields), ready=ready, boot=boot)


def assigned(life: Life, now: float, vf: int = 3, metadata: dict[str, Any] = OWNED, **fields: Any) -> Pod:
    """Show a pod that is bound to n1 with a VF of pf0."""
    pod = claiming(life.make_pod(request=[{}], node="n1", metadata=metadata, **fields), vf)
    life.see(pod, now=now)
    return pod


def show(life: Life, now: float, pod: Pod, **status: Any) -> None:
    life.see(changed(pod, status=status), now=now)


def _evicted(instructions: list[Instruction]) -> list[str]:
    return [one.pod.metadata.uid for one in instructions if isinstance(one, Evict)]


def test_a_vf_gone_after_a_reboot_evicts_its_pod_after_five_minutes(life: Life) -> None:
    """Not a second before, and once; it is a deadline of the machine, without polling."""
    publish(life, 0.0)
    pod = assigned(life, 0.0)
    publish(life, 100.0, vfs=2, boot="boot-1")
    assert life.machine.next_due() == 400.0
    assert life.machine.tick(399.9) == []
    (order,) = life.machine.tick(400.0)
    assert isinstance(order, Evict)
    assert order.pod.metadata.uid == pod.metadata.uid
    assert order.reason == "cannot start on node n1: VF 0000:04:00.5 (pf0/3) no longer exists"
    assert life.machine.tick(10_000.0) == []
    assert life.machine.next_due() is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vf0": "0000:09:00.2"}, "no longer exists"),
        ({"name": "pf9"}, "no longer exists"),
        ({"network": "rail7"}, "is now on ethernet network 'rail7', not on ethernet network 'rail0'"),
        ({"link": "infiniband"}, "is now on infiniband network 'rail0'"),
        ({"out": (Out(Indexes.of([3]), "bound to vfio-pci"),)}, "cannot be used: bound to vfio-pci"),
        ({"out": (Out(Indexes.of([3]), "held by pod another"),)}, "cannot be used: held by pod another"),
    ],
)
def test_the_nodes_objection_to_an_assignment_is_the_reason(change: dict[str, Any], reason: str, life: Life) -> None:
    """A NIC that was swapped, renamed, recabled; a VF that another pod holds."""
    publish(life, 0.0)
    assigned(life, 0.0)
    publish(life, 0.0, **change)
    (order,) = life.machine.tick(300.0)
    assert isinstance(order, Evict)
    assert reason in order.reason


@pytest.mark.parametrize("why", ["drained", "preparing", "lost on the host although pod uid-0 holds it"])
def test_a_fault_that_is_not_about_the_pod_lets_it_wait(why: str, life: Life) -> None:
    """A drained VF still belongs to its holder, one that is being prepared will be there soon."""
    publish(life, 0.0, out=(Out(Indexes.of([3]), why),))
    assigned(life, 0.0)
    assert life.machine.next_due() is None


@pytest.mark.parametrize("between", [{"boot": "boot-2"}, {"ready": False}, {"vfs": 4}], ids=str)
def test_the_five_minutes_start_again_after_a_time_without_a_contradiction(between: dict[str, Any], life: Life) -> None:
    """The VF is back, or the inventory is not fresh: of another boot, or of a node that is not Ready."""
    publish(life, 0.0, vfs=2)
    assigned(life, 0.0)
    publish(life, 200.0, **{"vfs": 2} | between)
    assert life.machine.tick(1000.0) == []
    publish(life, 1000.0, vfs=2)
    assert life.machine.tick(1299.0) == []
    assert len(_evicted(life.machine.tick(1300.0))) == 1


@pytest.mark.parametrize(
    ("status", "is_evicted"),
    [
        ({"phase": "Running"}, False),
        ({"phase": "Pending", "containerStatuses": [RUNNING]}, False),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}, False),
        ({"phase": "Pending", "containerStatuses": [{"lastState": {"terminated": {}}, "restartCount": 1}]}, False),
        ({"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}, False),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, True),
    ],
)
def test_a_pod_that_has_started_is_never_evicted(status: dict[str, Any], is_evicted: bool, life: Life) -> None:
    """Whatever the inventory shows: it may be running with its VFs. A container that waits has never run."""
    publish(life, 0.0, vfs=2)
    pod = assigned(life, 0.0)
    show(life, 100.0, pod, **status)
    found = life.machine.tick(1000.0)
    assert (len(found), _evicted(found)) == ((1, [pod.metadata.uid]) if is_evicted else (0, []))


@pytest.mark.parametrize(
    ("metadata", "evicts"),
    [({}, True), ({"ownerReferences": [{"kind": "Node", "name": "n1", "controller": True}]}, True), (OWNED, False)],
    ids=["bare", "static", "eviction switched off"],
)
def test_a_pod_without_a_controller_is_reported_not_evicted(metadata: dict[str, Any], evicts: bool, life: Life) -> None:
    """By an event, once: deleting it would lose it. It is the same for all pods where eviction is switched off."""
    life = life.successor(Machine("mooring", evict_never_started=evicts))
    publish(life, 0.0, vfs=2)
    assigned(life, 0.0, metadata=metadata)
    (report,) = life.machine.tick(300.0)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == (
        "NeverStarts",
        "cannot start on node n1: VF 0000:04:00.5 (pf0/3) no longer exists; delete it",
    )
    publish(life, 400.0, vfs=1)
    assert life.machine.tick(10_000.0) == []
    life.machine.check()


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [(OWNED, {"schedulerName": "other"}), (OWNED | {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {})],
    ids=["another's", "leaving"],
)
def test_pods_that_are_not_ours_to_evict_are_left_alone(
    metadata: dict[str, Any], spec: dict[str, Any], life: Life
) -> None:
    """Anybody can write an annotation; and a pod that is being deleted needs no eviction."""
    publish(life, 0.0, vfs=2)
    assigned(life, 0.0, metadata=metadata, spec=spec)
    assert life.machine.tick(1000.0) == []


@pytest.mark.parametrize("end", ["eviction", "another VF"])
def test_of_two_pods_that_claim_one_vf_and_never_started_one_is_evicted(life: Life, end: str) -> None:
    """The one contested first. Once it is being deleted, or the other claims another VF, nothing contradicts either."""
    publish(life, 0.0)
    first = assigned(life, 0.0)
    rival = assigned(life, 10.0)
    assert life.machine.next_due() == 310.0
    if end == "eviction":
        assert _evicted(life.machine.tick(1000.0)) == [first.metadata.uid]
        life.remove(first, 1001.0)
    else:
        assigned(life, 20.0, vf=2, metadata={**OWNED, "uid": rival.metadata.uid})
        assert life.machine.next_due() is None
    assert life.machine.tick(5000.0) == []


def test_of_two_pods_that_claim_one_vf_the_running_one_stays(life: Life) -> None:
    publish(life, 0.0)
    late = assigned(life, 0.0)
    show(life, 1.0, assigned(life, 0.0), phase="Running")
    (order,) = life.machine.tick(301.0)
    assert isinstance(order, Evict)
    assert order.pod.metadata.uid == late.metadata.uid
    assert "is also claimed by another pod" in order.reason


def test_an_eviction_that_was_refused_is_tried_again(life: Life) -> None:
    """A minute later, as long as the contradiction lasts; the owner gets a report once it succeeded."""
    publish(life, 0.0, vfs=2)
    assigned(life, 0.0)
    (order,) = life.machine.tick(300.0)
    assert isinstance(order, Evict)
    assert life.machine.finished(order, "refused", 301.0) == []
    assert life.machine.next_due() == 361.0
    (again,) = life.machine.tick(361.0)
    assert isinstance(again, Evict)
    (report,) = life.machine.finished(again, "evicted", 362.0)
    assert isinstance(report, Report)
    assert report.message.startswith("evicted: cannot start on node n1")
    assert life.machine.finished(again, "gone", 362.0) == []


def test_a_node_that_contradicts_many_pods_at_once_holds_up_nobody(life: Life) -> None:
    """Each of its VFs is out for a reason of its own; the pods are settled in portions, each pod once.

    Judging all pods again for each, and reading all of the node's reasons for each VF, took minutes.
    """
    count = 600
    publish(life, 0.0, vfs=count)
    uids = [assigned(life, 0.0, vf=index, name=f"p{index}").metadata.uid for index in range(count)]
    began = time.thread_time()
    publish(life, 0.0, vfs=count, out=tuple(Out(Indexes.of([index]), f"bound to {index}") for index in range(count)))
    ticks = [_evicted(life.machine.tick(300.0)) for _ in range(20)]
    assert sorted(uid for tick in ticks for uid in tick) == sorted(uids)
    assert max(map(len, ticks)) <= 64
    assert life.machine.next_due() is None
    assert time.thread_time() - began < 3.0
