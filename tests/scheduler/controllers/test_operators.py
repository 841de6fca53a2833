"""Operators that create pods themselves: their calls are played; the Job controller of the MPI launcher is real.

PyTorchJob of training-operator v1.9.4 (kubeflow/trainer): functions of pkg/controller.v1/common, in pod.go where no
other file is named. RayCluster of KubeRay v1.7.0 (ray-project/kuberay): functions of
ray-operator/controllers/ray/raycluster_controller.go, where no other file is named. MPIJob of MPI operator v0.8.0
(kubeflow/mpi-operator): functions of pkg/controller/mpi_job_controller.go.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.scheduler.controllers.player import Stage, controller, template

pytestmark = pytest.mark.apiserver
KUBEFLOW = "training.kubeflow.org"
Pod = dict[str, Any]


def _named(name: str, owner: dict[str, Any], pod: Pod) -> Pod:
    pod["metadata"] |= {"name": name, "ownerReferences": [owner]}
    return pod


def _rank(name: str) -> Pod:
    # createNewPod, and GenLabels in job_controller.go
    _, replica_type, index = name.split("-")
    labels = {"operator-name": "pytorchjob-controller", "job-name": "train", "replica-type": replica_type}
    labels |= {"replica-index": index} | ({"job-role": "master"} if replica_type == "master" else {})
    pod = template({"name": "train", "min": 4}, _prefixed(KUBEFLOW, labels), restartPolicy="OnFailure")
    return _named(name, controller("kubeflow.org/v1", "PyTorchJob", "train"), pod)


def _ray(name: str, label: str = "cluster", minimum: int = 4, **labels: str) -> Pod:
    # buildHeadPod, buildWorkerPod; labelPod and DefaultWorkerPodTemplate in common/pod.go
    is_head = name == "ray-head"
    own = {"is-ray-node": "yes", "cluster": "ray", "node-type": "head" if is_head else "worker"}
    own["group"] = "headgroup" if is_head else "workers"
    pod = template({"name_from": f"ray.io/{label}", "min": minimum}, _prefixed("ray.io", own | labels))
    return _named(name, controller("ray.io/v1", "RayCluster", "ray"), pod)


def _prefixed(prefix: str, labels: dict[str, str]) -> dict[str, str]:
    return {f"{prefix}/{key}": value for key, value in labels.items()}


# Who creates the pods, in which order, and which pods replace which: both operators delete a pod that has failed, and
# create another one. ReconcileJobs in job.go calls ReconcilePods for each replica type; `replicas` is a map in Go, so
# workers may come before the master. reconcilePods of KubeRay creates the head, then workers with random names.
OPERATORS = {
    "training-operator": (
        _rank,
        ("train-worker-2", "train-worker-1", "train-worker-0", "train-master-0"),
        (("train-worker-1", "train-worker-1"), ("train-master-0", "train-master-0")),
    ),
    "kuberay": (
        _ray,
        ("ray-head", *(f"ray-workers-worker-{end}" for end in ("aaaaa", "bbbbb", "ccccc"))),
        (("ray-workers-worker-aaaaa", "ray-workers-worker-ddddd"), ("ray-head", "ray-head")),
    ),
}


@pytest.mark.parametrize(("make", "pods", "replaced"), OPERATORS.values(), ids=OPERATORS)
async def test_pods_start_whole_and_failed_ones_are_replaced(
    stage: Stage, make: Callable[[str], Pod], pods: tuple[str, ...], replaced: tuple[tuple[str, str], ...]
) -> None:
    groups = stage.watch_groups(lambda _: "train", 4)
    async with stage.start_whole(*pods):
        await stage.create_pods(map(make, pods))

    live = set(pods)
    for failed, new in replaced:
        await stage.end(failed, phase="Failed")
        await stage.delete_ended()
        await stage.create_pods([make(new)])
        live = live - {failed} | {new}
        await stage.runs(*live)
    assert groups.starts == 1

    # A suspended job: CleanUpResources and DeletePodsAndServices in job.go; deleteAllPods of KubeRay.
    await stage.delete("Pod", *live)
    await stage.leaves_all_nodes_free()
    async with stage.start_whole(*pods):
        await stage.create_pods(map(make, pods))
    assert groups.starts == 2


async def test_a_replica_of_several_hosts_of_a_ray_cluster_is_replaced_whole(stage: Stage) -> None:
    """A group for each replica by `name_from`: the new one waits for the room of the old one, and then starts whole."""
    label = "worker-group-replica-name"
    groups = stage.watch_groups(lambda pod: str(pod["metadata"]["labels"][f"ray.io/{label}"]), 2)

    def replica(end: str, index: int) -> dict[str, Pod]:
        # createWorkerPodWithIndex; GenerateRayWorkerReplicaGroupName in utils/util.go
        more = {label: f"workers-{end}", "worker-group-replica-index": str(index)}
        hosts = {f"ray-workers-worker-{end}{host}": str(host) for host in range(2)}
        return {name: _ray(name, label, 2, **more, **{"replica-host-index": host}) for name, host in hosts.items()}

    left, old, new = replica("aaaa", 0), replica("bbbb", 1), replica("cccc", 1)
    async with stage.one_node_taken():
        await stage.create_pods([*left.values(), *old.values()])
        await stage.until(lambda: groups.starts == 1, "one replica runs")
    await stage.runs(*left, *old)

    # reconcileMultiHostWorkerGroup deletes the failed pod's replica, and creates another one at once.
    failed, other = old
    async with stage.slow_to_end(other):
        await stage.end(failed, phase="Failed")
        await stage.delete_ended()
        await stage.delete("Pod", other)
        await stage.create_pods(new.values())
        await stage.waits(*new, message="1 of 2 members fit")
    await stage.runs(*left, *new)
    assert groups.starts == 3


WORKERS = ("train-worker-0", "train-worker-1", "train-worker-2", "train-worker-3")
LAUNCHER = "train-launcher"
MPI_JOB = controller("kubeflow.org/v2beta1", "MPIJob", "train")


def _mpi_labels(role: str) -> dict[str, str]:
    # defaultLabels
    return _prefixed(KUBEFLOW, {"operator-name": "mpi-operator", "job-name": "train", "job-role": role})


def _worker(name: str) -> Pod:
    # newWorker
    labels = _mpi_labels("worker") | {f"{KUBEFLOW}/replica-index": name.rpartition("-")[2]}
    spec = {"hostname": name, "subdomain": "train", "restartPolicy": "Never"}
    return _named(name, MPI_JOB, template({"name": "train", "min": 4, "rails": "same"}, labels, **spec))


def _launcher() -> Pod:
    # newLauncherJob, newLauncherPodTemplate; docs/jobs.md: no annotation, so kube-scheduler places it.
    spec = {"containers": [{"name": "launcher", "image": "registry.example/train:1"}], "restartPolicy": "Never"}
    pod = {"metadata": {"labels": _mpi_labels("launcher")}, "spec": spec}
    return _named(LAUNCHER, MPI_JOB, {"metadata": {}, "spec": {"template": pod}})


async def test_workers_of_an_mpi_job_start_whole_and_one_that_was_lost_joins_the_others(stage: Stage) -> None:
    """The launcher is no member; it may come before the workers run."""
    role = f"{KUBEFLOW}/job-role"
    groups = stage.watch_groups(lambda pod: "train" * (pod["metadata"]["labels"][role] == "worker"), 4)
    async with stage.start_whole(*WORKERS, others=(LAUNCHER,)):
        # syncHandler: getOrCreateWorker, then the launcher at once, as LauncherCreationPolicy is AtStartup
        await stage.create_pods(map(_worker, WORKERS))
        await stage.create("Job", _launcher())
        await stage.lives(LAUNCHER)
        await stage.bind(stage.live(LAUNCHER)["metadata"]["name"], "n1")

    # A drained node; then getOrCreateWorker. A worker that fails stays as it is.
    await stage.delete("Pod", WORKERS[2])
    await stage.until(lambda: WORKERS[2] not in stage.pods, f"{WORKERS[2]} is gone")
    await stage.create_pods([_worker(WORKERS[2])])
    await stage.runs(*WORKERS, LAUNCHER)
    assert groups.starts == 1

    # syncHandler of a suspended MPIJob: the launcher is suspended, then cleanUpWorkerPods
    await stage.patch("Job", LAUNCHER, spec={"suspend": True})
    await stage.delete("Pod", *WORKERS)
    await stage.leaves_all_nodes_free()
