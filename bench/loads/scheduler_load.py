"""Nodes and pods to schedule, as JSON documents of the API: many shapes, the same at every run.

A node has 4 PFs with 32 VFs each, one PF a network; every tenth is tainted, every tenth carries a label that pods
require. A pod has 2 VFs with one of 64 mixes of rates; every tenth tolerates the taint, every tenth has node affinity.
"""

from typing import Any

from mooring import names
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.indexes import Indexes
from mooring.parsing import dump

Json = dict[str, Any]

BOOT = "5f1c0c7e-7f0b-4d7e-9f53-2f1d5a1c9e10"
ZONES = 16
_PFS, _VFS = 4, 32
VFS_A_NODE, VFS_A_POD = _PFS * _VFS, 2
_RATES = (0, 500, 1000, 1500, 2000, 2500, 3000, 5000)
_CPU = ("100m", "250m", "500m", "1")
_CAN = frozenset({"min_tx_rate", "max_tx_rate", "vlan", "qos", "trust", "spoofchk", "link_state"})
_TAINT: Json = {"key": "dedicated", "value": "rdma", "effect": "NoSchedule"}


def node_name(number: int) -> str:
    return f"node-{number:05}"


def pod_name(number: int) -> str:
    return f"pod-{number:06}"


def node(number: int) -> Json:
    """Return a Ready node with its inventory."""
    name = node_name(number)
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % ZONES}"}
    if number % 10 == 3:
        labels["disk"] = "nvme"
    capacity = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {names.INVENTORY: _inventory()}},
        "spec": {"taints": [_TAINT]} if number % 10 == 7 else {},
        "status": {
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": BOOT},
        },
    }


def _inventory() -> str:
    return dump_inventory(Inventory(BOOT, tuple(_pf(index) for index in range(_PFS))))


def _pf(index: int) -> Pf:
    bus = f"0000:{index + 1:02x}"
    return Pf(
        name=f"enp{index + 1}s0f0",
        pci=f"{bus}:00.0",
        rdma=f"mlx5_{index}",
        link="ethernet",
        network=f"rail{index}",
        mbps=100_000,
        offer_mbps=90_000,
        up=True,
        vfs=Indexes.of(range(_VFS)),
        vf0=f"{bus}:00.2",
        can=_CAN,
    )


def mixed_pod(number: int) -> Json:
    """Return a pod of one of many shapes: rates, cpu, and for a tenth each tolerations and node affinity."""
    rates: list[Json] = [
        {"min_tx_rate": rate, "max_tx_rate": rate + 5000} for rate in (_rate(number), _rate(number // 8))
    ]
    spec: Json = {}
    if number % 10 == 1:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if number % 10 == 6:
        spec["affinity"] = {"nodeAffinity": _NEAR_NVME}
    return pod(number, rates, _CPU[number % len(_CPU)], spec)


def _rate(number: int) -> int:
    return _RATES[number % len(_RATES)]


_NEAR_NVME: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}]
    }
}


def replica(number: int) -> Json:
    """Return one more of the same shape."""
    return pod(number, [{"min_tx_rate": 1000}, {"min_tx_rate": 500}], "250m", {})


def impossible_pod(number: int) -> Json:
    """Return a pod that fits no node, of eight shapes."""
    wanted: list[Json] = [{"min_tx_rate": 95_000 + number % 8}, {"network": "rail9"}]
    return pod(number, wanted, "100m", {})


def spread_pod(number: int) -> Json:
    """Return a pod of one of 8 groups that must be even over zones, and nearly so over nodes."""
    group = {"group": f"g{number % 8}"}
    constraints = [
        _constraint(group, "topology.kubernetes.io/zone", 1, "DoNotSchedule"),
        _constraint(group, "kubernetes.io/hostname", 2, "ScheduleAnyway"),
    ]
    return pod(number, [{"min_tx_rate": 500}, {}], "250m", {"topologySpreadConstraints": constraints}, group)


def _constraint(labels: Json, key: str, skew: int, otherwise: str) -> Json:
    selector = {"matchLabels": labels}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": otherwise, "labelSelector": selector}


def apart_pod(number: int) -> Json:
    """Return a pod of one of 8 groups with anti-affinity by node among themselves, and preferred affinity by zone."""
    group = {"group": f"g{number % 8}"}
    apart = {"labelSelector": {"matchLabels": group}, "topologyKey": "kubernetes.io/hostname"}
    near = {"labelSelector": {"matchLabels": group}, "topologyKey": "topology.kubernetes.io/zone"}
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": near}],
        },
    }
    return pod(number, [{"min_tx_rate": 500}, {}], "250m", {"affinity": affinity}, group)


def pod(number: int, interfaces: list[Json], cpu: str, spec: Json, labels: Json | None = None) -> Json:
    """Return a pod of our scheduler as it is created."""
    requests = {"cpu": cpu, "memory": "128Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(number),
            "namespace": "default",
            "labels": labels or {},
            "annotations": {names.REQUEST: dump(interfaces)},
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "registry.example/app:1", "resources": {"requests": requests}}],
            **spec,
        },
    }
