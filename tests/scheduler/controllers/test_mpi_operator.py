"""MPI operator v0.8.0 (kubeflow/mpi-operator): its calls are played; the launcher's Job controller is real.

Functions are those of pkg/controller/mpi_job_controller.go.
"""

from typing import Any

import pytest

from tests.scheduler.controllers.conftest import Stage
from tests.scheduler.controllers.player import controller, template

pytestmark = pytest.mark.apiserver
LABEL = "training.kubeflow.org"
OWNER = controller("kubeflow.org/v2beta1", "MPIJob", "train")
WORKERS = ("train-worker-0", "train-worker-1", "train-worker-2", "train-worker-3")
LAUNCHER = "train-launcher"


def _labels(role: str) -> dict[str, str]:
    # defaultLabels
    return {f"{LABEL}/operator-name": "mpi-operator", f"{LABEL}/job-name": "train", f"{LABEL}/job-role": role}


def _worker(name: str) -> dict[str, Any]:
    # newWorker
    index = name.rpartition("-")[2]
    labels = _labels("worker") | {f"{LABEL}/replica-index": index}
    pod = template({"name": "train", "min": 4, "rails": "same"}, labels, hostname=name, subdomain="train")
    pod["spec"]["restartPolicy"] = "Never"
    pod["metadata"] |= {"name": name, "ownerReferences": [OWNER]}
    return pod


def _launcher() -> dict[str, Any]:
    # newLauncherJob, newLauncherPodTemplate; docs/jobs.md: no annotation, so kube-scheduler places it.
    spec = {"containers": [{"name": "launcher", "image": "registry.example/train:1"}], "restartPolicy": "Never"}
    pod = {"metadata": {"labels": _labels("launcher")}, "spec": spec}
    return {"metadata": {"name": LAUNCHER, "ownerReferences": [OWNER]}, "spec": {"template": pod}}


async def test_workers_start_whole_and_one_that_was_lost_joins_the_others(stage: Stage) -> None:
    """The launcher is no member; it may come before the workers run."""
    groups = stage.watch_groups(lambda pod: "train" * (pod["metadata"]["labels"][f"{LABEL}/job-role"] == "worker"), 4)
    async with stage.start_whole(*WORKERS, others=(LAUNCHER,)):
        # syncHandler: getOrCreateWorker, then the launcher at once, as LauncherCreationPolicy is AtStartup
        await stage.create_pods(map(_worker, WORKERS))
        await stage.create("Job", _launcher())
        await stage.lives(LAUNCHER)
        await stage.bind(stage.live(LAUNCHER)["metadata"]["name"], "n1")

    # A drained node; then getOrCreateWorker. A worker that fails stays as it is.
    await stage.delete("Pod", WORKERS[2])
    await stage.pod_gone(WORKERS[2])
    await stage.create_pods([_worker(WORKERS[2])])
    await stage.runs(*WORKERS, LAUNCHER)
    assert groups.starts == 1

    # syncHandler of a suspended MPIJob: the launcher is suspended, then cleanUpWorkerPods
    await stage.patch("Job", LAUNCHER, spec={"suspend": True})
    await stage.delete("Pod", *WORKERS)
    await stage.leaves_all_nodes_free()
