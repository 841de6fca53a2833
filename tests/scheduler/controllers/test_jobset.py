"""JobSet v0.12.0 (kubernetes-sigs/jobset): its calls are played; the Job controller and the garbage collector are real.

Functions are those of pkg/controllers/jobset_controller.go, where no other file is named.
"""

from typing import Any

import pytest

from tests.scheduler.controllers.player import Stage, controller, template
from tests.scheduler.controllers.whole_starts import WholeStarts

pytestmark = pytest.mark.apiserver
SET = "jobset.sigs.k8s.io"
JOBS = ("train-ranks-0", "train-ranks-1")
FIRST = ("train-ranks-0-0", "train-ranks-0-1")
SECOND = ("train-ranks-1-0", "train-ranks-1-1")


def _job(index: int, group: dict[str, Any], restarts: int = 0) -> dict[str, Any]:
    """Return what `constructJob` and `labelAndAnnotateObject` make: a Job of two pods that fails with the first."""
    labels = {
        f"{SET}/jobset-name": "train",
        f"{SET}/replicatedjob-name": "ranks",
        f"{SET}/job-index": str(index),
        # jobHashKey: one value for a Job's name, not for its uid.
        f"{SET}/job-key": f"hash-of-{JOBS[index]}",
        f"{SET}/restart-attempt": str(restarts),
    }
    owner = controller("jobset.x-k8s.io/v1alpha2", "JobSet", "train")
    ranks = template(group, labels, restartPolicy="Never", subdomain="train")
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 0, "template": ranks}
    metadata = {"name": JOBS[index], "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": spec | {"suspend": False}}


WHOLE = {"name": "train", "min": 4}


async def _create_jobs(stage: Stage, group: dict[str, Any], *indexes: int, restarts: int = 0) -> None:
    # createJobs, as soon as no Job of that name is left: shouldCreateJob.
    for index in indexes:
        await stage.absent("Job", JOBS[index])
        await stage.create("Job", _job(index, group, restarts))


async def test_all_jobs_of_a_jobset_start_whole_and_again_after_suspension(stage: Stage) -> None:
    """One group by `name`, as docs/jobs.md advises."""
    groups = stage.watch_groups(lambda _: "train", 4)
    async with stage.start_whole(*FIRST, *SECOND):
        await _create_jobs(stage, WHOLE, 0)
        await stage.lives(*FIRST)
        await _create_jobs(stage, WHOLE, 1)

    # suspendJobs
    for job in JOBS:
        await stage.patch("Job", job, spec={"suspend": True})
    await stage.leaves_all_nodes_free()

    # resumeJobsIfNecessary, resumeJob
    async with stage.start_whole(*FIRST, *SECOND):
        for job in JOBS:
            await stage.patch("Job", job, status={"startTime": None})
            await stage.patch("Job", job, spec={"suspend": False})
    assert groups.starts == 2


async def _start(stage: Stage) -> WholeStarts:
    """Start both Jobs as one group."""
    groups = stage.watch_groups(lambda _: "train", 4)
    await _create_jobs(stage, WHOLE, 0, 1)
    await stage.runs(*FIRST, *SECOND)
    return groups


async def _fail_first(stage: Stage) -> None:
    # The Job controller fails the Job and deletes its other pod. Then executeFailurePolicy in failure_policy.go.
    await stage.end(FIRST[1], phase="Failed")
    await stage.job_is("Failed", JOBS[0])


async def test_recreated_jobs_of_a_jobset_start_whole_when_the_old_pods_have_ended(stage: Stage) -> None:
    """With Recreate the first new Job comes while pods of an old one are being deleted; these do not count."""
    groups = await _start(stage)
    async with stage.slow_to_end(*SECOND):
        await _fail_first(stage)
        # deleteJobs
        await stage.delete("Job", *JOBS, propagation="Foreground")
        await _create_jobs(stage, WHOLE, 0, restarts=1)
        await stage.waits(*FIRST, message="2 of at least 4 members exist")
    async with stage.start_whole(*FIRST, *SECOND):
        await _create_jobs(stage, WHOLE, 1, restarts=1)
    assert groups.starts == 2


async def test_recreated_pods_of_a_jobset_join_old_ones_that_run(stage: Stage) -> None:
    """With Recreate, where the garbage collector is late: all Jobs are deleted, but only one Job's pods are."""
    groups = await _start(stage)
    await _fail_first(stage)
    await stage.delete("Job", JOBS[0], propagation="Foreground")
    await _create_jobs(stage, WHOLE, 0, restarts=1)
    await stage.runs(*FIRST, *SECOND)
    await stage.delete("Job", JOBS[1], propagation="Foreground")
    await _create_jobs(stage, WHOLE, 1, restarts=1)
    await stage.runs(*FIRST, *SECOND)
    assert groups.starts == 1


async def test_a_jobset_with_blocking_recreate_starts_whole_again(stage: Stage) -> None:
    """It creates no Job before all old ones are gone."""
    groups = await _start(stage)
    await _fail_first(stage)
    await stage.delete("Job", *JOBS, propagation="Foreground")
    # constructJobsFromTemplate
    await stage.absent("Job", *JOBS)
    async with stage.start_whole(*FIRST, *SECOND):
        await _create_jobs(stage, WHOLE, 0, 1, restarts=1)
    assert groups.starts == 2


async def test_one_job_of_a_jobset_is_made_again_and_starts_whole_while_the_other_runs(stage: Stage) -> None:
    """RestartJob, with a group for each Job by `name_from`."""
    group = {"name_from": f"{SET}/job-key", "min": 2}
    groups = stage.watch_groups(lambda pod: str(pod["metadata"]["labels"][f"{SET}/job-key"]), 2)
    async with stage.one_node_taken():
        await _create_jobs(stage, group, 0, 1)
        await stage.until(lambda: groups.starts == 1, "one Job runs")
    await stage.runs(*FIRST, *SECOND)

    await stage.end(SECOND[0], phase="Failed")
    await stage.job_is("Failed", JOBS[1])
    # restartJobActionApplier in failure_policy.go; then deleteJobs
    await stage.delete("Job", JOBS[1], propagation="Foreground")
    await stage.absent("Job", JOBS[1])
    async with stage.start_whole(*SECOND, fit="1 of 2", others=FIRST):
        await _create_jobs(stage, group, 1)
    assert groups.starts == 3
