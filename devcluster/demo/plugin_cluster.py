"""A cluster with a device plugin, sriov-cni and Multus in place of Mooring, as values: objects, and trees of its nodes.

`faulty` has one fault of each kind that `kubectl mooring assess` finds, and `healthy` none. The trees are simulated
hosts; what else a capture reads on a host is written here: links, the kubelet's checkpoint, settings of VFs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advertiser.host.capture import pack_capture
from advertiser.host.node_use import read_node_use
from advertiser.host.sysfs import read_functions
from advertiser.inventory.facts import Host as CapturedHost
from devcluster.hosts.netdevs import show
from devcluster.hosts.nic import Function, Host, describe_host
from devcluster.hosts.sysfs import Tree, add_function, build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings
from mooring.nic.vf_users import HostFacts, Link

Json = dict[str, Any]
RACK = "topology.kubernetes.io/rack"
POOLS = ("openshift.io/rail0", "openshift.io/rail1")
GPU = "nvidia.com/gpu"
# When the captures were taken, and when the pods have started.
TAKEN_AT, _STARTED = 1_700_000_000, "2023-11-14T20:00:00Z"
_NEAR, _FAR = ("0000:00:01.0", "0000:02:00.0"), ("0000:00:03.0", "0000:07:00.0")
_AMOUNTS = {"cpu": "64", "memory": "512Gi", "pods": "110"}


@dataclass(frozen=True, slots=True)
class PluginPod:
    """A pod: its VFs as (PF, VF) on its node, its GPUs by number, of its job. Without a node it waits.

    ``moved``: its VFs are in its network namespace. ``min_tx_rate`` is what its network's configuration sets.
    """

    name: str
    node: str = ""
    vfs: tuple[tuple[int, int], ...] = ()
    gpus: tuple[int, ...] = ()
    job: str = ""
    moved: bool = True
    min_tx_rate: int = 0
    rail: int = 0
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PluginNode:
    """A node with two PFs, each near one of its two GPUs; ``away``, ``left`` and ``bonded`` are VFs with a fault."""

    name: str
    number: int
    vfs: int = 4
    away: tuple[tuple[int, int], ...] = ()
    left: Mapping[tuple[int, int], VfSettings] = field(default_factory=dict)
    bonded: tuple[tuple[int, int], ...] = ()

    def host(self) -> Host:
        first, second = describe_host(self.name, self.number, vfs=self.vfs).pfs
        second = replace(second, name="enp132s0f0", pci="0000:84:00.0", pcie=_FAR, offset=2)
        return Host(self.name, self.number, (first, second))

    def gpus(self) -> dict[str, tuple[str, ...]]:
        """Return the bridges above each GPU, the one near the first PF first."""
        return {
            "0000:10:00.0": (*_NEAR, "0000:02:10.0"),
            "0000:90:00.0": (*_FAR, "0000:07:11.0"),
        }


@dataclass(frozen=True, slots=True)
class PluginCluster:
    """Nodes and pods."""

    nodes: tuple[PluginNode, ...]
    pods: tuple[PluginPod, ...]

    def objects(self) -> dict[str, list[Json]]:
        """Return the API's objects by the path of their list."""
        return {
            "/api/v1/nodes": [self._node(node) for node in self.nodes],
            "/api/v1/pods": [self._pod(pod) for pod in self.pods],
            "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions": [_network(rail) for rail in range(len(POOLS))],
        }

    def write_captures(self, folder: Path, scratch: Path) -> None:
        """Write the archive of each node, as `mooring-advertiser capture --uses` does on it."""
        folder.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            (folder / f"{node.name}.tar.gz").write_bytes(self.capture(node, scratch / node.name))

    def capture(self, node: PluginNode, root: Path) -> bytes:
        """Return a node's archive; its tree is made below ``root``."""
        host, sysfs = node.host(), root / "sys"
        build(sysfs, host)
        functions = {(host.pfs.index(one.pf), one.vf): one for one in host.functions()}
        for pci, bridges in node.gpus().items():
            attributes = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "0"}
            add_function(sysfs, pci, bridges, "nvidia", attributes)
            _write(root / "proc/driver/nvidia/gpus" / pci / "information", f"GPU UUID: \t {_uuid(node, pci)}\n")
        settings = VfTable(root / "vfs.json")
        settings.reset(host)
        moved = [vf for pod in self._on(node) if pod.moved for vf in pod.vfs]
        for vf in (*moved, *node.away):
            function = functions[vf]
            show(sysfs, Tree(sysfs).folder(function), function, None)
        for pod in self._on(node):
            for pf, number in pod.vfs if pod.min_tx_rate else ():
                settings.write(host.pfs[pf].name, number, VfSettings(min_tx_rate=pod.min_tx_rate))
        for (pf, number), found in node.left.items():
            settings.write(host.pfs[pf].name, number, found)
        _write(
            root / "kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(self._checkpoint(node, functions))
        )
        links = [Link(9, "bond0", "bond")]
        links += [
            Link(100 + at, functions[vf].netdev, parent=functions[vf].pci, master=9)
            for at, vf in enumerate(node.bonded)
        ]
        captured = CapturedHost(f"boot-{node.name}", read_functions(sysfs), uses=HostFacts(links=tuple(links)))
        use = read_node_use(captured, settings, sysfs, root / "proc", root / "kubelet", TAKEN_AT)
        return pack_capture(sysfs, captured, use)

    def _on(self, node: PluginNode) -> list[PluginPod]:
        return [pod for pod in self.pods if pod.node == node.name]

    def _node(self, node: PluginNode) -> Json:
        amounts = {**_AMOUNTS, GPU: "2", **{pool: str(node.vfs) for pool in POOLS}}
        labels = {"kubernetes.io/hostname": node.name, RACK: f"rack{node.number % 2}"}
        return {
            "metadata": {"name": node.name, "uid": f"uid-{node.name}", "labels": labels},
            "spec": {},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": f"boot-{node.name}"},
                "addresses": [{"type": "InternalIP", "address": f"10.0.0.{node.number}"}],
            },
        }

    def _pod(self, pod: PluginPod) -> Json:
        networks = [f"rail{pf}" for pf, _ in pod.vfs] or [f"rail{pod.rail}"]
        limits = {POOLS[int(name[4:])]: str(networks.count(name)) for name in networks}
        limits |= {GPU: str(len(pod.gpus))} if pod.gpus else {}
        annotations = {"k8s.v1.cni.cncf.io/networks": ", ".join(networks)}
        if pod.node:
            annotations["k8s.v1.cni.cncf.io/network-status"] = json.dumps(self._network_status(pod))
        labels = {"training.kubeflow.org/job-name": pod.job} if pod.job else {}
        metadata = {
            "name": pod.name,
            "namespace": "default",
            "uid": pod.uid or f"uid-{pod.name}",
            "creationTimestamp": _STARTED,
            "labels": labels,
            "annotations": annotations,
        }
        container = {"name": "main", "image": "registry.example/nccl:1", "resources": {"limits": limits}}
        spec: Json = {"schedulerName": "default-scheduler", "containers": [container]}
        if pod.node:
            return {
                "metadata": metadata,
                "spec": {**spec, "nodeName": pod.node},
                "status": {"phase": "Running", "startTime": _STARTED},
            }
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient openshift.io/rail0.",
            "lastTransitionTime": _STARTED,
        }
        return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}

    def _function(self, pod: PluginPod, pf: int, number: int) -> Function:
        host = next(node for node in self.nodes if node.name == pod.node).host()
        return next(one for one in host.functions() if one.pf == host.pfs[pf] and one.vf == number)

    def _network_status(self, pod: PluginPod) -> list[Json]:
        status: list[Json] = [{"name": "cluster", "interface": "eth0", "ips": ["10.1.0.7"], "default": True}]
        for number, (pf, vf) in enumerate(pod.vfs, start=1):
            function = self._function(pod, pf, vf)
            info = {"type": "pci", "version": "1.1.0", "pci": {"pci-address": function.pci}}
            status.append(
                {"name": f"default/rail{pf}", "interface": f"net{number}", "mac": function.mac, "device-info": info}
            )
        return status

    def _checkpoint(self, node: PluginNode, functions: Mapping[tuple[int, int | None], Function]) -> Json:
        entries: list[Json] = []
        gpus = [_uuid(node, pci) for pci in node.gpus()]
        for pod in self._on(node):
            for pf in sorted({pf for pf, _ in pod.vfs}):
                ids = [functions[pf, vf].pci for each, vf in pod.vfs if each == pf]
                entries.append(_entry(pod, POOLS[pf], ids))
            if pod.gpus:
                entries.append(_entry(pod, GPU, [gpus[number] for number in pod.gpus]))
        registered = {
            pool: [one.pci for (of, vf), one in functions.items() if of == pf and vf is not None]
            for pf, pool in enumerate(POOLS)
        }
        return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {**registered, GPU: gpus}}, "Checksum": 1}


def healthy(nodes: int = 2) -> PluginCluster:
    """Return a cluster without a fault: one pod a node, with a GPU and the VF near it."""
    made = tuple(PluginNode(f"n{number}", number) for number in range(1, nodes + 1))
    pods = tuple(PluginPod(f"pod-{node.name}", node.name, ((1, 0),), (1,)) for node in made)
    return PluginCluster(made, pods)


# What is planted, by the kind of finding, and the object that it is about.
PLANTED: Mapping[str, str] = {
    "vf-lost": "node/n1",
    "vf-orphaned": "node/n1",
    "settings-left": "node/n2",
    "vf-used-by-host": "node/n2",
    "pf-oversubscribed": "node/n3",
    "gpu-far": "pod/default/far",
    "job-half-started": "job/default/train",
}


def faulty() -> PluginCluster:
    """Return a cluster with one fault of each kind."""
    nodes = (
        PluginNode("n1", 1, away=((0, 3),)),
        PluginNode("n2", 2, left={(0, 2): VfSettings(vlan=100)}, bonded=((1, 3),)),
        PluginNode("n3", 3),
    )
    pods = (
        PluginPod("near", "n1", ((0, 0),), (0,)),
        PluginPod("lost", "n1", ((1, 0),), moved=False),
        PluginPod("far", "n2", ((1, 0),), (0,)),
        PluginPod("fast-0", "n3", ((0, 0),), min_tx_rate=60_000),
        PluginPod("fast-1", "n3", ((0, 1),), min_tx_rate=50_000),
        PluginPod("train-0", "n2", ((0, 0),), job="train"),
        PluginPod("train-1", "n3", ((0, 2),), job="train"),
        PluginPod("train-2", job="train"),
        PluginPod("train-3", job="train"),
    )
    return PluginCluster(nodes, pods)


def _network(rail: int) -> Json:
    config = {"cniVersion": "0.3.1", "name": f"rail{rail}", "type": "sriov", "ipam": {"type": "whereabouts"}}
    return {
        "metadata": {
            "name": f"rail{rail}",
            "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": POOLS[rail]},
        },
        "spec": {"config": json.dumps(config)},
    }


def _entry(pod: PluginPod, resource: str, ids: Sequence[str]) -> Json:
    return {
        "PodUID": pod.uid or f"uid-{pod.name}",
        "ContainerName": "main",
        "ResourceName": resource,
        "DeviceIDs": {"0": list(ids)},
    }


def _uuid(node: PluginNode, pci: str) -> str:
    return f"GPU-{node.number:08x}-0000-4000-8000-0000000000{pci[5:7]}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
