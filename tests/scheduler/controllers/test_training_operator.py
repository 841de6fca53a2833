"""PyTorchJob of training-operator v1.9.4 (kubeflow/trainer): its calls are played.

Functions are those of pkg/controller.v1/common, in pod.go where no other file is named.
"""

from typing import Any

import pytest

from tests.scheduler.controllers.conftest import Stage
from tests.scheduler.controllers.player import controller, template

pytestmark = pytest.mark.apiserver
LABEL = "training.kubeflow.org"
RANKS = ("train-master-0", "train-worker-0", "train-worker-1", "train-worker-2")


def _rank(name: str) -> dict[str, Any]:
    # createNewPod, and GenLabels in job_controller.go
    _, replica_type, index = name.split("-")
    labels = {
        f"{LABEL}/operator-name": "pytorchjob-controller",
        f"{LABEL}/job-name": "train",
        f"{LABEL}/replica-type": replica_type,
        f"{LABEL}/replica-index": index,
    }
    if replica_type == "master":
        labels[f"{LABEL}/job-role"] = "master"
    pod = template({"name": "train", "min": 4}, labels, restartPolicy="OnFailure")
    pod["metadata"] |= {"name": name, "ownerReferences": [controller("kubeflow.org/v1", "PyTorchJob", "train")]}
    return pod


async def test_master_and_workers_start_whole_and_a_failed_one_is_replaced(stage: Stage) -> None:
    """`replicas` is a map in Go: the workers may come before the master."""
    groups = stage.watch_groups(lambda _: "train", 4)
    async with stage.start_whole(*RANKS):
        # ReconcileJobs in job.go: ReconcilePods for each replica type
        await stage.create_pods(map(_rank, reversed(RANKS)))

    for failed in ("train-worker-1", "train-master-0"):
        # A pod with restartPolicy OnFailure fails if it is evicted. ReconcilePods deletes it and creates it again.
        await stage.end(failed, phase="Failed")
        await stage.delete_ended()
        await stage.create_pods([_rank(failed)])
        await stage.runs(*RANKS)
    assert groups.starts == 1

    # ReconcileJobs of a suspended job: CleanUpResources, DeletePodsAndServices in job.go
    await stage.delete("Pod", *RANKS)
    await stage.leaves_all_nodes_free()
    async with stage.start_whole(*RANKS):
        await stage.create_pods(map(_rank, RANKS))
    assert groups.starts == 2
