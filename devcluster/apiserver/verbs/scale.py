"""The subresource `scale` of workloads: the number of pods, and nothing else (autoscaling/v1)."""

from collections.abc import Callable

from devcluster.apiserver.objects import Object, metadata_of, section

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(workload: Object) -> Object:
    """Return a workload as its Scale."""
    about, spec, status = metadata_of(workload), section(workload, "spec"), section(workload, "status")
    labels = section(section(spec, "selector"), "matchLabels")
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: about[key] for key in _KEPT if key in about},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {"replicas": status.get("replicas", 0), "selector": selector},
    }


def through_scale(change: Callable[[Object], Object]) -> Callable[[Object], Object]:
    """Turn a change of a Scale into the same change of its workload."""

    def changed(workload: Object) -> Object:
        replicas = section(change(scale_of(workload)), "spec").get("replicas", 0)
        return {**workload, "spec": {**section(workload, "spec"), "replicas": replicas}}

    return changed
