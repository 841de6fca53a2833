"""The demo's pods, as data: what each requests, and its expected end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring import names
from mooring.gpu.request import KEY, RESOURCE

IMAGE = "busybox"
# The job: its PodGroup says that its ranks start together.
JOB, RANKS = "train", 6
POD_GROUP: dict[str, Any] = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": JOB, "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": RANKS}}},
}
# GPUs of the pod with pairs: each host has half of its four below the NIC's switch.
PAIRS = 2
# The pod that has a node's rates to itself, and goes so that the job may start.
WHOLE_NODE = "exact-fit"
# For the pod that needs a whole node: of pods created in the same second, it is placed before the others.
FIRST: dict[str, Any] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "whole-node"},
    "value": 1000,
}


@dataclass(frozen=True, slots=True)
class DemoPod:
    """A pod and its expected end: ``Running``, ``Pending`` (the scheduler refuses) or ``Denied`` (the API server does).

    ``says`` is a text that the refusal must contain; ``only`` names the one container that gets the devices. ``gpus``
    is how many GPUs each of its containers gets.
    """

    name: str
    expect: str
    about: str
    annotations: dict[str, str] = field(default_factory=dict)
    node: str | None = None
    preset_node: str | None = None
    containers: tuple[str, ...] = ("main",)
    only: str | None = None
    says: str = ""
    priority_class: str | None = None
    gpus: int = 0
    pod_group: str | None = None

    def manifest(self) -> dict[str, object]:
        spec: dict[str, object] = {
            "schedulerName": names.SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 1,
            "containers": [_container(name, limits=self.only == name, gpus=self.gpus) for name in self.containers],
        }
        if self.node is not None:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        if self.preset_node is not None:
            spec["nodeName"] = self.preset_node
        if self.priority_class is not None:
            spec["priorityClassName"] = self.priority_class
        if self.pod_group is not None:
            spec["schedulingGroup"] = {"podGroupName": self.pod_group}
        metadata = {"name": self.name, "namespace": "default", "annotations": self.annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(name: str, *, limits: bool, gpus: int) -> dict[str, object]:
    limited = ({names.RIT_DEVICES: "1"} if limits else {}) | ({RESOURCE: str(gpus)} if gpus else {})
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": "10m"}} | ({"limits": limited} if limited else {}),
    }


def _asks(*interfaces: Mapping[str, object]) -> dict[str, str]:
    return {names.REQUEST: json.dumps(interfaces)}


def _rates(*rates_mbps: int) -> dict[str, str]:
    return _asks(*({"min_tx_rate": rate} for rate in rates_mbps))


def pods(nodes: list[str]) -> list[DemoPod]:
    """Return the first pods; PFs of 100,000 Mb/s, two on each of three nodes."""
    rit = '[{"min_tx_rate": 15000, "max_tx_rate": 20000}, {"min_tx_rate": 5000}, {}]'
    forged = {
        "v": 1,
        "uid": "00000000-0000-0000-0000-000000000000",
        "node": nodes[0],
        "vfs": [{"pf": "enp4s0f0", "vf": 0, "pci": "0000:04:00.2", "link": "ethernet", "network": "default"}],
    }
    return [
        DemoPod(
            WHOLE_NODE,
            "Running",
            "six rates that fill both PFs of a node to the last Mb/s; largest first would fail",
            _rates(50_000, 40_000, 30_000, 30_000, 25_000, 25_000),
            node=nodes[2],
            priority_class=FIRST["metadata"]["name"],
        ),
        DemoPod("rit-example", "Running", "rit-k8s-rdma's example, unchanged", {names.RIT_REQUEST: rit}, only="main"),
        DemoPod("named", "Running", "an interface with a name, on a PF by glob", _asks({"name": "rdma0", "pf": "*f1"})),
        DemoPod(
            "sidecar",
            "Running",
            "two containers, devices for one",
            _asks({"min_tx_rate": 10_000, "containers": ["worker"]}),
            containers=("worker", "logger"),
            only="worker",
        ),
        DemoPod(
            "gpu-pairs",
            "Running",
            "two GPUs, each with a VF below its switch",
            {**_asks({}, {}), KEY: json.dumps({"model": "*H100*", "vfs": "switch"})},
            gpus=PAIRS,
        ),
        DemoPod("plain", "Running", "asks for nothing, is left alone"),
        DemoPod("too-much", "Pending", "no PF has this rate", _rates(120_000), says="0/3 nodes are available"),
        DemoPod(
            "misspelt",
            "Pending",
            "a field that does not exist",
            _asks({"min_tx_rat": 5000}),
            says="[0].min_tx_rat: unknown",
        ),
        DemoPod(
            "forged",
            "Denied",
            "an assignment that nobody decided",
            {**_asks({}), names.ASSIGNMENT: json.dumps(forged)},
            preset_node=nodes[0],
            says="is not Mooring's scheduler",
        ),
    ]


def late_pod() -> DemoPod:
    """Return the pod that is created after programs were killed and started again."""
    return DemoPod("late", "Running", "comes after the programs were killed", _rates(20_000))


def ranks() -> list[DemoPod]:
    """Return the ranks of the job, as they wait: on two nodes, with what runs there, five of them fit at the most."""
    says = f"of {RANKS} members fit"
    request = _rates(30_000, 30_000)
    return [
        DemoPod(f"rank-{number}", "Pending", "a rank of a job", request, says=says, pod_group=JOB)
        for number in range(RANKS)
    ]
