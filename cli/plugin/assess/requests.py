"""What pods request of devices, of networks and of each other, in the words of any system. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.plugin.assess.snapshot import Object, Snapshot, annotations_of, at, items, key_of, labels_of
from cli.plugin.reports.lint.manifests import Place, PodPlace
from cli.plugin.reports.lint.other_networks import Networks
from cli.plugin.reports.lint.other_requests import advise
from mooring import names

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_RAY_LABEL = ("ray.io/cluster",)
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
# Labels by which controllers name the job of a pod, the narrowest first. Sources: jobset, training-operator, volcano,
# lws, scheduler-plugins, kuberay, each in its constants.
_JOB_LABELS: tuple[tuple[str, ...], ...] = (
    ("jobset.sigs.k8s.io/jobset-name",),
    ("training.kubeflow.org/job-name",),
    ("volcano.sh/job-name",),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    (names.POD_GROUP_LABEL,),
    _RAY_LABEL,
)
_JOB_KINDS = frozenset({"Job", "MPIJob", "PyTorchJob", "RayCluster"})
# Labels of nodes that name a rack or the switch above it, the most usual first. Sources: NVIDIA's topograph, AWS, GKE
# and OKE by their documentation of node labels.
RACKS = (
    "topology.kubernetes.io/rack",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/accelerator",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "oci.oraclecloud.com/rdma.local_block_id",
    "oci.oraclecloud.com/rdma.network_block_id",
    "rack",
)


@dataclass(frozen=True, slots=True)
class Job:
    """Pods that work together, of which at least one requests a network device.

    ``needs_all``: none of them can work before all run.
    """

    name: str
    pods: tuple[Object, ...]
    needs_all: bool

    def bound(self) -> list[Object]:
        return [pod for pod in self.pods if at(pod, "spec", "nodeName")]

    def unscheduled(self) -> list[Object]:
        return [pod for pod in self.pods if not at(pod, "spec", "nodeName")]

    def domains(self, nodes: Mapping[str, Object], label: str) -> list[str]:
        """Return the values of a label that the nodes of its pods have."""
        own = (str(at(pod, "spec", "nodeName")) for pod in self.bound())
        return sorted({labels_of(nodes[name]).get(label, "") for name in own if name in nodes} - {""})


def limits_of(pod: Object) -> dict[str, int]:
    """Return the extended resources that a pod's containers limit, each with its sum."""
    found: defaultdict[str, int] = defaultdict(int)
    for kind in ("initContainers", "containers"):
        for container in items(pod, "spec", kind):
            limits = at(container, "resources", "limits")
            for name, amount in limits.items() if isinstance(limits, Mapping) else ():
                if "/" in str(name):
                    found[str(name)] += int(amount) if str(amount).isdecimal() and len(str(amount)) < 6 else 0
    return {name: amount for name, amount in found.items() if amount}


def place_of(value: Any, owner: str) -> PodPlace:
    """Return a pod or template as `lint` reads it; its lines are unknown."""
    place = Place(value, (), {(): 1})
    return PodPlace(owner, place, place)


def is_for_network(pod: Object, networks: Networks) -> bool:
    """Return whether a pod requests network devices, of Mooring or of another system."""
    texts = annotations_of(pod)
    if names.REQUEST in texts or names.RIT_REQUEST in texts:
        return True
    advice = advise(place_of(pod, f"Pod/{key_of(pod)}"), networks, (names.SCHEDULER_NAME,))
    return advice.is_for_others or advice.is_refused


def is_in_host_network(pod: Object) -> bool:
    return at(pod, "spec", "hostNetwork") is True


def jobs(snapshot: Snapshot, for_network: Mapping[str, bool]) -> list[Job]:
    """Return the jobs with at least two pods; ``for_network`` says of each pod, by key, what it requests."""
    groups: defaultdict[tuple[str, bool], list[Object]] = defaultdict(list)
    for pod in snapshot.pods():
        if (job := _job_of(pod)) is not None:
            groups[job].append(pod)
    return [
        Job(name, tuple(pods), needs_all)
        for (name, needs_all), pods in sorted(groups.items(), key=lambda item: item[0])
        if len(pods) > 1 and any(for_network.get(key_of(pod), False) for pod in pods)
    ]


def _job_of(pod: Object) -> tuple[str, bool] | None:
    """Return the name of a pod's job, and whether it needs all of its pods.

    Ray adds workers as it gets them, and the pods of a Job without indexes do not know each other.
    """
    labels, namespace = labels_of(pod), at(pod, "metadata", "namespace") or "default"
    for keys in _JOB_LABELS:
        values = [labels.get(key, "") for key in keys]
        if all(values):
            return f"{namespace}/{'-'.join(values)}", keys != _RAY_LABEL
    for owner in _controllers(pod):
        kind = at(owner, "kind")
        if kind in _JOB_KINDS:
            is_indexed = _COMPLETION_INDEX in labels or _COMPLETION_INDEX in annotations_of(pod)
            needs_all = is_indexed if kind == "Job" else kind != "RayCluster"
            return f"{namespace}/{at(owner, 'name')}", needs_all
    return None


def _controllers(pod: Object) -> Iterator[Any]:
    return (item for item in items(pod, "metadata", "ownerReferences") if at(item, "controller") is True)


def rack_label(nodes: Sequence[Object]) -> str:
    """Return the label by which most nodes name their rack; empty if none does."""
    counts = {label: sum(label in labels_of(node) for node in nodes) for label in RACKS}
    best = max(RACKS, key=lambda label: counts[label])
    return best if counts[best] else ""
