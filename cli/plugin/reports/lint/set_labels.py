"""The labels that controllers set on the pods of a template, as far as groups are read from them. Pure."""

from cli.plugin.reports.lint.made_pods import MadePods
from cli.plugin.reports.lint.manifests import PodPlace


def set_labels(pod_place: PodPlace, made: MadePods, number: int) -> dict[str, str]:
    """Return the labels of one pod of a template; unique values differ from those of the controller."""
    first = pod_place.whole.line
    shared = {key: f"{first}-{group.part}-{number // group.pods}" for key, group in made.labels.items() if group.pods}
    return {**shared, **role_labels(pod_place)}


def role_labels(pod_place: PodPlace) -> dict[str, str]:
    """Return the labels that all pods of a template have, with its role.

    Source: kuberay, ray-operator/controllers/ray/common/pod.go, labelPod; training-operator,
    pkg/controller.v1/common/pod.go, createNewPod; mpi-operator, pkg/controller/mpi_job_controller.go, newWorker and
    newLauncherPodTemplate; jobset, pkg/controllers/jobset_controller.go, labelAndAnnotateObject.
    """
    kind, path = pod_place.owner.partition("/")[0], pod_place.pod.path[len(pod_place.whole.path) : -1]
    above = pod_place.whole.at(*path)
    if kind.startswith("Ray") and path[-1] == "headGroupSpec":
        return {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
    if kind.startswith("Ray") and "workerGroupSpecs" in path:
        return {"ray.io/node-type": "worker", "ray.io/group": str(above.at("groupName").value)}
    if kind == "MPIJob":
        return {"training.kubeflow.org/job-role": path[-1].lower()}
    if kind in ("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"):
        return {"training.kubeflow.org/replica-type": path[-1].lower()}
    if kind == "JobSet":
        replicated = pod_place.whole.at(*path[:-2])
        name, group = (str(replicated.at(key).value or "default") for key in ("name", "groupName"))
        return {"jobset.sigs.k8s.io/replicatedjob-name": name, "jobset.sigs.k8s.io/group-name": group}
    return {}
