"""Describe the kubelet stand-in's node: labels, capacity, conditions, lease. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devcluster.kubelet.plan.status import Document, timestamp

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
LEASE_LASTS_S = 40
_VERSION = "v1.36.0-devcluster"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class Machine:
    """What the node has: ``cpus``, ``memory_kib``, ``storage_kib``, at most ``pods``; ``boot_id`` is the kernel's.

    ``port``: where the kubelet serves logs, 0 for nowhere.
    """

    name: str
    address: str
    boot_id: str
    cpus: int
    memory_kib: int
    storage_kib: int
    pods: int
    kernel: str
    runtime: str
    port: int = 0


def node(machine: Machine) -> Document:
    """Return the Node to create."""
    about = {"name": machine.name, "labels": labels(machine)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": about}


def labels(machine: Machine) -> Mapping[str, str]:
    return {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def node_status(machine: Machine, now_s: float) -> Document:
    """Return the part of the Node's status that the kubelet owns; other resources of the node stay as they are."""
    resources = {
        "cpu": str(machine.cpus),
        "memory": f"{machine.memory_kib}Ki",
        "ephemeral-storage": f"{machine.storage_kib}Ki",
        "pods": str(machine.pods),
    }
    info = {
        "architecture": "amd64",
        "bootID": machine.boot_id,
        "containerRuntimeVersion": machine.runtime,
        "kernelVersion": machine.kernel,
        "kubeletVersion": _VERSION,
        "operatingSystem": "linux",
        "osImage": "simulated",
    }
    addresses = [{"type": "InternalIP", "address": machine.address}, {"type": "Hostname", "address": machine.name}]
    pressures = [_condition(kind, "False", "KubeletHasSufficientResources", now_s) for kind in _PRESSURES]
    return {
        "capacity": resources,
        "allocatable": resources,
        "addresses": addresses,
        "nodeInfo": info,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": machine.port}},
        "conditions": [*pressures, ready_condition(now_s, ready=True)],
    }


def ready_condition(now_s: float, *, ready: bool) -> Document:
    """Return the node's Ready condition: NotReady if its runtime does not answer."""
    if ready:
        return _condition("Ready", "True", "KubeletReady", now_s)
    return _condition("Ready", "False", "KubeletNotReady", now_s) | {"message": "container runtime is down"}


def without_not_ready(taints: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """Return the taints that stay once the node is ready: the controller manager's part, which is missing here."""
    return [taint for taint in taints if taint.get("key") != NOT_READY_TAINT]


def lease(machine: Machine, now_s: float) -> Document:
    """Return the node's lease; renewing it is the heartbeat, the node's status is written once."""
    spec = {
        "holderIdentity": machine.name,
        "leaseDurationSeconds": LEASE_LASTS_S,
        "renewTime": timestamp(now_s).replace("Z", ".000000Z"),
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": machine.name, "namespace": "kube-node-lease"},
        "spec": spec,
    }


def _condition(kind: str, value: str, reason: str, now_s: float) -> Document:
    now = timestamp(now_s)
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": value, "reason": reason, "message": "", **times}
