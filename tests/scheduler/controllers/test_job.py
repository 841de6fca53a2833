"""Job: the controller of kube-controller-manager, from start through suspension and failure to the end."""

from typing import Any

import pytest

from tests.scheduler.controllers.player import Stage, template

pytestmark = pytest.mark.apiserver
RANKS = ("train-0", "train-1", "train-2", "train-3")


def _job_of(pod: Any) -> str:
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"])


async def test_a_job_starts_whole_again_after_its_suspension_and_replaces_ranks_one_by_one(stage: Stage) -> None:
    """Five completions with a parallelism of four: the last rank comes when one has succeeded."""
    groups = stage.watch_groups(_job_of, 4)
    ranks = template({"min": 4, "rails": "index"}, restartPolicy="Never")
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 4, "backoffLimit": 3, "template": ranks}
    async with stage.start_whole(*RANKS):
        await stage.create("Job", {"metadata": {"name": "train"}, "spec": spec})

    await stage.patch("Job", "train", spec={"suspend": True})
    await stage.leaves_all_nodes_free()

    async with stage.start_whole(*RANKS):
        await stage.patch("Job", "train", spec={"suspend": False})
    assert groups.starts == 2

    await stage.end("train-0", phase="Succeeded")
    await stage.runs(*RANKS[1:], "train-4")
    await stage.end("train-2", "train-3", "train-4", phase="Succeeded")
    await stage.end("train-1", phase="Failed")
    await stage.runs("train-1")
    await stage.end("train-1", phase="Succeeded")
    await stage.job_is("Complete", "train")
    assert groups.starts == 2
    await stage.leaves_all_nodes_free()


async def test_a_rank_of_a_lost_node_is_made_again_while_the_old_pod_never_ends(stage: Stage) -> None:
    """No kubelet confirms the deletion; the controller does not wait for it."""
    groups = stage.watch_groups(_job_of, 3)
    ranks = template({"min": 3, "rails": "index"}, restartPolicy="Never")
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "template": ranks}
    await stage.create("Job", {"metadata": {"name": "train"}, "spec": spec})
    await stage.runs(*RANKS[:3])
    lost = stage.live("train-1")["spec"]["nodeName"]
    async with stage.slow_to_end("train-1"):
        # What node-lifecycle-controller and taint-eviction-controller do.
        await stage.lose_node(lost)
        await stage.delete("Pod", "train-1")
        await stage.runs(*RANKS[:3])
        assert stage.live("train-1")["spec"]["nodeName"] != lost
    assert groups.starts == 1
