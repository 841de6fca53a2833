"""Kueue v0.19.2 (kubernetes-sigs/kueue): its calls are played; the Job controller is real."""

from typing import Any

import pytest

from tests.scheduler.controllers.player import POOL, Stage, template

pytestmark = pytest.mark.apiserver
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
GATE = "kueue.x-k8s.io/admission"
RANKS = ("train-0", "train-1")


async def _admit(stage: Stage, pool: str) -> None:
    # RunWithPodSetsInfo in pkg/controller/jobs/job/job_controller.go: the node labels of the flavor
    selector = {"nodeSelector": {POOL: pool}}
    await stage.patch("Job", "train", spec={"suspend": False, "template": {"spec": selector}})


async def _evict(stage: Stage) -> None:
    # Stop in pkg/controller/jobs/job/job_controller.go, with RestorePodSetsInfo
    await stage.patch("Job", "train", spec={"suspend": True})
    # The API server rejects the other two before.
    await stage.job_is("Suspended", "train")
    await stage.patch("Job", "train", status={"startTime": None})
    await stage.patch("Job", "train", spec={"template": {"spec": {"nodeSelector": None}}})


async def test_a_job_starts_whole_in_the_flavor_of_each_admission(stage: Stage) -> None:
    """Kueue evicts it from one pool of nodes and admits it to the other."""
    groups = stage.watch_groups(lambda _: "train", 2)
    ranks = template({"min": 2}, restartPolicy="Never")
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": ranks}
    # Default in pkg/controller/jobs/job/job_webhook.go suspends a Job with a queue.
    await stage.create("Job", {"metadata": {"name": "train", "labels": QUEUE}, "spec": spec | {"suspend": True}})
    for pool in ("a", "b"):
        await _admit(stage, pool)
        await stage.runs(*RANKS)
        assert {stage.live(rank)["spec"]["nodeName"] for rank in RANKS} == set(stage.nodes_of(pool))
        await _evict(stage)
        await stage.leaves_all_nodes_free()
    assert groups.starts == 2


def _member(name: str) -> dict[str, Any]:
    # Default in pkg/controller/jobs/pod/pod_webhook.go
    labels = QUEUE | {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "train"}
    pod = template({"name": "train", "min": 4}, labels, schedulingGates=[{"name": GATE}], restartPolicy="Never")
    pod["metadata"] |= {"name": name, "finalizers": ["kueue.x-k8s.io/managed"]}
    pod["metadata"]["annotations"] |= {"kueue.x-k8s.io/pod-group-total-count": "4"}
    return pod


async def _ungate(stage: Stage, *names: str) -> None:
    # Run and prepare in pkg/controller/jobs/pod/pod_controller.go: one patch for each pod
    for name in names:
        await stage.patch("Pod", name, spec={"schedulingGates": None})


async def test_a_group_of_pods_starts_whole_when_all_gates_are_gone_and_admits_a_replacement(stage: Stage) -> None:
    """A pod that fails is replaced by whoever made it, and Kueue ungates the replacement."""
    names = ("rank-0", "rank-1", "rank-2", "rank-3")
    groups = stage.watch_groups(lambda _: "train", 4)
    await stage.create_pods(map(_member, names))
    async with stage.start_whole(*names):
        await _ungate(stage, *names)

    await stage.end("rank-1", phase="Failed")
    await stage.create_pods([_member("rank-4")])
    await _ungate(stage, "rank-4")
    await stage.runs("rank-0", "rank-2", "rank-3", "rank-4")
    assert groups.starts == 1

    # Stop in pod_controller.go deletes the pods of an evicted group; Finalize takes its finalizer off.
    await stage.delete("Pod", "rank-0", "rank-2", "rank-3", "rank-4")
    for name in (*names, "rank-4"):
        await stage.patch("Pod", name, metadata={"finalizers": None})
    await stage.leaves_all_nodes_free()
