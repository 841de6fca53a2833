"""Pods that never start because their node contradicts their assignment: evicted after five minutes, or reported."""

import time
from typing import Any

import pytest

from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from scheduler.cycle.instructions import Evict
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, changed, claiming
from tests.scheduler.state.cluster import OWNED, Cluster
from tests.scheduler.story import play, stories

NEVER = "cannot start on node n1: VF 0000:04:00.5 (pf0/3)"
GONE = f"{NEVER} no longer exists"

STORIES = {
    # It is a deadline of the machine, without polling.
    "a VF that is gone after a reboot evicts its pod after five minutes, not a second before, and once": f"""
        node n1 4 | claim p 3 | at 100 | node n1 2 | due > 400 | at 399.9 | tick | at 400 | tick > p: {GONE}
        | at 10000 | tick | due > never""",
    # The one contested first. Once it is being deleted nothing contradicts the other.
    "of two pods that claim one VF and never started one is evicted": f"""
        node n1 4 | claim first 3 | at 10 | claim rival 3 | due > 310 | at 1000
        | tick > first: {NEVER} is also claimed by another pod: uid uid-1 | at 1001 | delete first | at 5000 | tick""",
    "two pods that claim one VF no more stay": """
        node n1 4 | claim first 3 | at 10 | claim rival 3 | due > 310 | at 20 | END | due > never | at 5000 | tick""",
    "of two pods that claim one VF the running one stays": f"""
        node n1 4 | claim late 3 | claim runs 3 | at 1 | claim runs 3 Running | at 301
        | tick > late: {NEVER} is also claimed by another pod: uid uid-1""",
    # It was to go later than the other, which lost another VF before.
    "once an evicted pod has left, nothing contradicts its rival": f"""
        node n1 4 | claim first 3,1 | node n1 3 | at 5 | claim rival 1 | at 300 | tick > first: {GONE} | at 301
        | terminate first | at 305 | tick | at 330 | delete first | at 5000 | tick""",
    # A minute later, as long as the contradiction lasts; the owner gets a report once it succeeded.
    "an eviction that was refused is tried again": f"""
        node n1 2 | claim p 3 | at 300 | tick > p: {GONE} | at 301 | evict refused p | due > 361 | at 361
        | tick > p: {GONE} | at 362 | evict evicted p > p NeverStarts: evicted: {GONE} | evict gone p""",
    "an eviction that was refused is not tried again if the VF is back": f"""
        node n1 2 | claim p 3 | at 300 | tick > p: {GONE} | node n1 4 | at 301 | evict refused p | due > never""",
    "the node's objection is the reason": "node n1 4 | claim p 3 | node n1 4 OBJECTION",
    # A drained VF still belongs to its holder, one that is being prepared will be there soon.
    "a fault that is not about the pod lets it wait": "node n1 4 out=3:FAULT | claim p 3 | due > never",
    # The VF is back, or the inventory is not fresh: of another boot, or of a node that is not Ready.
    "the five minutes start again after a time without a contradiction": f"""
        node n1 2 | claim p 3 | at 200 | node n1 BETWEEN | at 1000 | tick | node n1 2 | at 1299 | tick | at 1300
        | tick > p: {GONE}""",
}
FAULTS = {one: one for one in ("drained", "preparing", "lost_on_the_host_although_pod_uid-0_holds_it")}
BETWEEN = {one: one for one in ("2 boot=boot-2", "2 ready=false", "4")}
ENDS = {"by another claim": "claim rival 2", "by the end of one": "delete rival"}
OBJECTIONS = {
    "another address": f"vf0=0000:09:00.2 | at 300 | tick > p: {GONE}",
    "another name": f"name=pf9 | at 300 | tick > p: {GONE}",
    "another network": f"""network=rail7 | at 300
        | tick > p: {NEVER} is now on ethernet network 'rail7', not on ethernet network 'rail0'""",
    "another link": f"""link=infiniband | at 300
        | tick > p: {NEVER} is now on infiniband network 'rail0', not on ethernet network 'rail0'""",
    "another driver": f"out=3:bound_to_vfio-pci | at 300 | tick > p: {NEVER} cannot be used: bound to vfio-pci",
    "another holder": f"out=3:held_by_pod_another | at 300 | tick > p: {NEVER} cannot be used: held by pod another",
}


@stories(STORIES, OBJECTION=OBJECTIONS, FAULT=FAULTS, BETWEEN=BETWEEN, END=ENDS)
def test_pods_that_never_start(story: str, cluster: Cluster) -> None:
    play(cluster, story)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        # Whatever the inventory shows: it may be running with its VFs.
        ({"status": {"phase": "Running"}}, ""),
        ({"status": {"containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}, ""),
        ({"status": {"initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}}, ""),
        ({"status": {"containerStatuses": [{"lastState": {"terminated": {}}, "restartCount": 1}]}}, ""),
        ({"status": {"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}}, ""),
        # A container that waits has never run.
        ({"status": {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}}, f"p: {GONE}"),
        # Anybody can write an annotation; and a pod that is being deleted needs no eviction.
        ({"spec": {"schedulerName": "other"}}, ""),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, ""),
    ],
)
def test_a_pod_that_has_started_or_is_not_ours_to_evict_is_never_evicted(
    fields: dict[str, Any], told: str, cluster: Cluster
) -> None:
    play(cluster, "node n1 2 | claim p 3")
    cluster.show(changed(cluster.pods["p"], **fields))
    play(cluster, f"at 1000 | tick > {told}")


@pytest.mark.parametrize(
    ("owners", "evicts"),
    [([], True), ([{"kind": "Node", "name": "n1", "controller": True}], True), (OWNED["ownerReferences"], False)],
    ids=["bare", "static", "eviction switched off"],
)
def test_a_pod_without_a_controller_is_reported_not_evicted(owners: Any, evicts: bool, cluster: Cluster) -> None:
    """By an event, once: deleting it would lose it. It is the same for all pods where eviction is switched off."""
    cluster = cluster.successor(Machine("mooring", evict_never_started=evicts))
    play(cluster, "node n1 2 | claim p 3")
    cluster.show(changed(cluster.pods["p"], metadata={"ownerReferences": owners}))
    play(cluster, f"at 300 | tick > p NeverStarts: {GONE}; delete it | at 400 | node n1 1 | at 10000 | tick")
    cluster.machine.check()


def test_a_pod_that_is_reported_keeps_its_rival_from_starting(cluster: Cluster) -> None:
    play(cluster, "node n1 4 | claim first 3")
    cluster.show(changed(cluster.pods["first"], metadata={"ownerReferences": []}))
    told = [f"{NEVER} is also claimed by another pod: uid uid-{number}" for number in (0, 1)]
    play(cluster, f"claim rival 3 | at 300 | tick > rival: {told[0]} first NeverStarts: {told[1]}; delete it")


def test_a_node_that_contradicts_many_pods_at_once_holds_up_nobody(life: Life) -> None:
    """Each of its VFs is out for a reason of its own; the pods are settled in portions, each pod once.

    Judging all pods again for each, and reading all of the node's reasons for each VF, took minutes.
    """
    count = 600
    life.show_node("n1", life.make_pf(vfs=count))
    pods = [claiming(life.make_pod(request=[{}], node="n1", metadata=OWNED), index) for index in range(count)]
    life.see(*pods)
    began = time.thread_time()
    out = tuple(Out(Indexes.of([index]), f"bound to {index}") for index in range(count))
    life.show_node("n1", life.make_pf(vfs=count, out=out))
    ticks = [[one.pod for one in life.machine.tick(300.0) if isinstance(one, Evict)] for _ in range(20)]
    assert sorted(pod.key for tick in ticks for pod in tick) == sorted(pod.key for pod in pods)
    assert max(map(len, ticks)) <= 64
    assert life.machine.next_due() is None
    assert time.thread_time() - began < 3.0
