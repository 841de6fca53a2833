"""Nodes and pods of the recorded decisions, as JSON documents of the API."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mooring import names
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.gpu.inventory import KEY as GPUS
from mooring.gpu.inventory import Gpu, GpuInventory, dump_gpu_inventory
from mooring.indexes import Indexes
from mooring.parsing import dump

Json = dict[str, Any]
BOOT = "boot-1"
ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"
FPGAS = f"{names.INVENTORY_OF}fpga"
ASKED_FPGAS, ASKED_GPUS = f"{names.REQUEST_OF}fpga", f"{names.REQUEST_OF}gpu"
_CAN = frozenset({"min_tx_rate", "max_tx_rate", "vlan", "qos", "mac", "trust", "spoofchk", "link_state"})
# PFs and units with the same number lie under one PCIe switch.
_UNITS_A_SWITCH = 2


def pf(index: int, vfs: int, **fields: Any) -> Pf:
    """Return a PF under a switch of its own: Ethernet, of 90,000 Mb/s that may be reserved."""
    values: Json = {
        "name": f"pf{index}",
        "pci": f"0000:{index + 4:02x}:00.0",
        "link": "ethernet",
        "network": f"rail{index}",
        "mbps": 100_000,
        "offer_mbps": 90_000,
        "up": True,
        "vfs": Indexes.of(range(vfs)),
        "vf0": f"0000:{index + 4:02x}:00.2",
        "can": _CAN,
        "pcie": _path(index, 0),
    }
    return Pf(**(values | fields))


def node_status(allocatable: Json, *, ready: bool = True, boot: str = BOOT) -> Json:
    return {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"} | allocatable,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "nodeInfo": {"bootID": boot},
    }


def _path(switch: int, port: int) -> tuple[str, ...]:
    return (f"0000:00:0{switch}.0", f"0000:{switch + 1}0:00.0", f"0000:{switch + 1}1:{port:02x}.0")


@dataclass
class Node:
    """A node: cpus, PFs, and how many GPUs and FPGAs each of its switches has."""

    name: str
    pfs: Sequence[Pf]
    cpu: int = 8
    memory: str = "16Gi"
    pods: int = 110
    labels: Json = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    gpus: Sequence[int] = ()
    fpgas: Sequence[int] = ()

    def document(self, in_force: str = "") -> Json:
        """Return the API's object; ``in_force`` is what its advertiser says of changed rates."""
        annotations = (
            {names.INVENTORY: dump_inventory(Inventory(BOOT, tuple(self.pfs), rates=True))} if self.pfs else {}
        )
        allocatable = {"cpu": str(self.cpu), "memory": self.memory, "pods": str(self.pods)}
        if in_force:
            annotations[names.RATES_IN_FORCE] = in_force
        if self.gpus:
            annotations[GPUS] = dump_gpu_inventory(GpuInventory(tuple(self._gpus())))
            allocatable["mooring.dev/gpu"] = str(sum(self.gpus))
        if self.fpgas:
            listed = [{"pci": f"0000:{s + 1}{n + 2:x}:00.0", "pcie": _path(s, n + 1)} for s, n in _counted(self.fpgas)]
            annotations[FPGAS] = dump({"v": 1, "fpgas": listed})
        return {
            "metadata": {"name": self.name, "labels": {HOST: self.name} | self.labels, "annotations": annotations},
            "spec": self.spec,
            "status": node_status(allocatable),
        }

    def _gpus(self) -> list[Gpu]:
        return [
            Gpu(
                *(f"0000:{s + 1}{n + 8:x}:00.0", f"GPU-{self.name}-{s}-{n}", "nvidia", "H100" if s else "A100"),
                *(80_000, s % 2, _path(s, n + 9), s // _UNITS_A_SWITCH),
            )
            for s, n in _counted(self.gpus)
        ]


def _counted(counts: Sequence[int]) -> list[tuple[int, int]]:
    return [(switch, number) for switch, count in enumerate(counts) for number in range(count)]


def pod(name: str, number: int, request: Sequence[Json] | None, cpu: int = 100, **fields: Any) -> Json:
    """Return pod ``number`` of the scenario, younger than those before it; ``cpu`` in thousandths."""
    annotations = {} if request is None else {names.REQUEST: dump(list(request))}
    container: Json = {
        "name": "c",
        "resources": {"requests": {"cpu": f"{cpu}m", "memory": fields.pop("memory", "64Mi")}},
    }
    if gpu_count := fields.pop("gpus", 0):
        limits = {"mooring.dev/gpu": str(gpu_count)}
        container["resources"]["requests"] |= limits
        container["resources"]["limits"] = limits
    if ports := fields.pop("ports", []):
        container["ports"] = ports
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
            "labels": fields.pop("labels", {}),
            "annotations": annotations | fields.pop("annotations", {}),
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]} | fields,
        "status": {},
    }
