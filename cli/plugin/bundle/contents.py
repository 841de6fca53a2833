"""Which lists a support bundle has, and which of their objects. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.plugin.reports.checks import NAME
from mooring import names
from mooring.annotations.request import asks_for_vfs
from mooring.kube.guard import BINDING, BINDINGS_PATH, POLICIES_PATH, POLICY
from scheduler.kube import objects
from scheduler.kube.workload_objects import JOB_PATHS, POD_GROUP_PATHS

NODES, PODS, EVENTS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"
VERSION = "/version"
# What `explain --recompute` reads beside nodes, pods, PodGroups and Jobs. Its own table is in a module with numpy.
AROUND: Mapping[str, str] = {
    "/api/v1/namespaces": "Namespace",
    "/api/v1/services": "Service",
    "/api/v1/replicationcontrollers": "ReplicationController",
    "/apis/apps/v1/replicasets": "ReplicaSet",
    "/apis/apps/v1/statefulsets": "StatefulSet",
    "/apis/policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
    "/api/v1/persistentvolumeclaims": "PersistentVolumeClaim",
    "/api/v1/persistentvolumes": "PersistentVolume",
    "/apis/storage.k8s.io/v1/storageclasses": "StorageClass",
    "/apis/storage.k8s.io/v1/csinodes": "CSINode",
    "/apis/storage.k8s.io/v1/csidrivers": "CSIDriver",
    "/apis/storage.k8s.io/v1/csistoragecapacities": "CSIStorageCapacity",
    "/apis/storage.k8s.io/v1/volumeattachments": "VolumeAttachment",
}
_OURS = {"labelSelector": "app.kubernetes.io/part-of=mooring"}
_DECISIONS = frozenset({"Scheduled", "FailedScheduling"})
README_TEXT = """\
A support bundle of Mooring, made by `kubectl mooring support-bundle`.

Look through it before you send it. To see what its readers see:

    kubectl mooring status --from THIS-FILE
    kubectl mooring explain POD -n NAMESPACE --from THIS-FILE

manifest.json   when and of which API server it was taken, and which lists could not be read
api/            nodes, all pods, events of pods that concern Mooring, the scheduler's Lease, Mooring's admission
                policies and workloads, and what the scheduler decides by (PodGroups, Jobs, services, volumes, ...)
logs/           the last lines of Mooring's own pods
metrics/        the metrics of these pods, where the API server can reach them

Removed are: values of environment variables, command lines and arguments of programs that are not Mooring's, all
annotations except those that Mooring or its scheduler reads (so also last-applied-configuration), HTTP headers of
probes, termination messages, parameters of volumes, and from all texts what looks like a password, a token, a private
key or a URL with a password. Secrets and ConfigMaps are never read.

Not removed are: names of objects, images, labels, nodes' addresses, and what else programs have written into logs.
"""
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BundledList:
    """A list: its path, its objects' kind, the parameters of the request, and which of the objects are taken."""

    path: str
    kind: str
    params: Mapping[str, str] = field(default_factory=dict)
    takes: Callable[[Object], bool] = lambda _object: True


def lists(uids: set[str]) -> list[BundledList]:
    """Return the lists in the order in which they are read; ``uids`` gets those of the pods that concern Mooring."""
    of_groups = [path for paths in POD_GROUP_PATHS.values() for path in paths]
    return [
        BundledList(NODES, "Node"),
        BundledList(PODS, "Pod"),
        BundledList(EVENTS, "Event", takes=lambda event: _is_about(event, uids)),
        BundledList(POLICIES_PATH, POLICY, takes=lambda policy: _name(policy).startswith("mooring-")),
        BundledList(BINDINGS_PATH, BINDING, takes=_binds_ours),
        *(BundledList(path, "PodGroup") for path in of_groups),
        *(BundledList(path, "Job") for path in JOB_PATHS),
        *(BundledList(path, "RuntimeClass") for path in objects.RUNTIME_CLASS_PATHS),
        *(BundledList(path, kind) for path, kind in AROUND.items()),
        BundledList("/apis/apps/v1/deployments", "Deployment", _OURS),
        BundledList("/apis/apps/v1/daemonsets", "DaemonSet", _OURS),
    ]


def is_ours(item: Object) -> bool:
    """Return whether an object is one of Mooring's own programs, or the controller of one."""
    return str((_metadata(item).get("labels") or {}).get(NAME, "")).startswith("mooring-")


def concerns(pod: Object) -> bool:
    """Return whether a pod requests or holds VFs, is scheduled by Mooring, or runs one of its programs."""
    annotations = _metadata(pod).get("annotations") or {}
    has_vfs = names.ASSIGNMENT in annotations or asks_for_vfs(annotations)
    return has_vfs or scheduler_of(pod) == names.SCHEDULER_NAME or is_ours(pod)


def scheduler_of(pod: Object) -> str:
    """Return a pod's schedulerName."""
    spec = pod.get("spec")
    return str(spec.get("schedulerName", "")) if isinstance(spec, Mapping) else ""


def _is_about(event: Object, uids: set[str]) -> bool:
    """Return whether an event is of a node, of a pod that concerns Mooring, or says why a pod has its node."""
    about = event.get("involvedObject") or {}
    return about.get("kind") == "Node" or about.get("uid") in uids or event.get("reason") in _DECISIONS


def _binds_ours(binding: Object) -> bool:
    return str((binding.get("spec") or {}).get("policyName", "")).startswith("mooring-")


def _name(item: Object) -> str:
    return str(_metadata(item).get("name", ""))


def _metadata(item: Object) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}
