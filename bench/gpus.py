"""Time decisions about pods with GPUs beside their VFs, against the same pods' VFs alone; no I/O.

    python -m bench.gpus [--pods 2000] [--nodes 2000] [--rounds 3]

Nodes have 4 PFs and 8 GPUs under 4 PCIe switches, all of them linked; a pod has 2 VFs of one of 64 mixes of rates. Four
loads take turns for some rounds, and each pod's best time counts: the VFs alone on nodes that publish no GPUs, the same
where they do, two GPUs beside the VFs, and two GPUs each under the switch of a VF. A node takes four pods of each load,
so that as many nodes change between two decisions. CPU time of one core, and the mean of each load in proportion to
that of the VFs alone on the same nodes.
"""

import argparse
import gc
import statistics
from dataclasses import dataclass, replace

import msgspec

from bench.loads import scheduler_load as load
from bench.scheduler import Scheduling, line
from mooring import names
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.gpu.assignment import assigned_gpus
from mooring.gpu.inventory import Gpu, GpuInventory, dump_gpu_inventory
from mooring.kube.events import Changed, Identity
from mooring.parsing import dump
from scheduler.constraints.kinds import Kinds
from scheduler.kube.objects import Node
from scheduler.placement.gpus import gpu_kind

_SWITCHES, _GPUS, _OF_A_POD = 4, 8, 2


@dataclass(frozen=True, slots=True)
class Load:
    """Pods with a request for GPUs, empty for none, on nodes that publish GPUs or do not."""

    request: load.Json
    published: bool = True

    def measure(self, nodes: int, pods: int) -> list[float]:
        """Return the seconds of each decision; raise ValueError if a pod finds no node."""
        scheduling = Scheduling(0, Kinds((gpu_kind(),)))
        for number in range(nodes):
            node = msgspec.convert(_node(number, published=self.published), Node)
            scheduling.machine.nodes(Changed(Identity(node.metadata.name), node), scheduling.now)
        scheduling.offer([self._pod(number) for number in range(pods)])
        gc.collect()
        gc.freeze()
        times: list[float] = []
        while (decided := scheduling.decide()) is not None:
            took, bind = decided
            if bind is None:
                raise ValueError(f"pod {len(times)} of the load found no node")
            assigned = assigned_gpus(bind.assigned.assignment) if bind.assigned.assignment is not None else None
            if (len(assigned.units) if assigned is not None else 0) != (_OF_A_POD if self.request else 0):
                raise ValueError(f"pod {len(times)} of the load has other GPUs than it requests")
            times.append(took)
        scheduling.machine.check()
        return times

    def _pod(self, number: int) -> load.Json:
        pod = load.mixed_pod(number)
        if self.request:
            pod["metadata"]["annotations"][f"{names.REQUEST_OF}gpu"] = dump(self.request)
            (container,) = pod["spec"]["containers"]
            container["resources"].setdefault("limits", {})["mooring.dev/gpu"] = str(_OF_A_POD)
        return pod


LOADS = {
    "VFs, no GPUs published": Load({}, published=False),
    "VFs on nodes with GPUs": Load({}),
    "two GPUs and two VFs": Load({"count": _OF_A_POD}),
    "each GPU beside a VF": Load({"count": _OF_A_POD, "vfs": "switch"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=2000, help="pods of each load (default 2000)")
    parser.add_argument("--nodes", type=int, default=2000, help="nodes (default 2000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which each pod's best counts (default 3)")
    options = parser.parse_args()
    rounds: dict[str, list[list[float]]] = {name: [] for name in LOADS}
    for _ in range(options.rounds):
        for name, one in LOADS.items():
            rounds[name].append(one.measure(options.nodes, options.pods))
    print(f"{options.nodes} nodes; CPU time in µs a pod")
    print(f"{'':26} {'pods':>7} {'pods/s':>9} {'mean':>8} {'p50':>8} {'p99':>8} {'max':>9}")
    # Equal rounds make equal decisions, so that each pod has a best time of its own.
    best = {name: [min(times) for times in zip(*same, strict=True)] for name, same in rounds.items()}
    means = {name: statistics.fmean(times) for name, times in best.items()}
    alone = means["VFs on nodes with GPUs"]
    for name, times in best.items():
        line(name, times, 0.0)
    print("ratios to the VFs alone on the same nodes: ", end="")
    print(", ".join(f"{name} {mean / alone:.2f}" for name, mean in means.items()))


def _node(number: int, *, published: bool) -> load.Json:
    node = load.node(number)
    annotations = node["metadata"]["annotations"]
    inventory = read_inventory(annotations[names.INVENTORY])
    pfs = tuple(replace(pf, pcie=(*_path(index), f"{pf.pci[:-4]}1f.0")) for index, pf in enumerate(inventory.pfs))
    annotations[names.INVENTORY] = dump_inventory(replace(inventory, pfs=pfs))
    for amounts in ("allocatable", "capacity"):
        node["status"][amounts] = node["status"][amounts] | {"pods": str(_GPUS // _OF_A_POD)}
    if published:
        gpus = tuple(_gpu(number, index) for index in range(_GPUS))
        annotations[f"{names.INVENTORY_OF}gpu"] = dump_gpu_inventory(GpuInventory(gpus))
        for amounts in ("allocatable", "capacity"):
            node["status"][amounts] = node["status"][amounts] | {"mooring.dev/gpu": str(_GPUS)}
    return node


def _gpu(node: int, index: int) -> Gpu:
    return Gpu(
        pci=f"0000:{index + 16:02x}:00.0",
        uuid=f"GPU-{node:08x}-{index:04x}-4000-8000-000000000000",
        vendor="nvidia",
        model="NVIDIA H100 80GB HBM3",
        memory_mb=81559,
        numa=index // (_GPUS // 2),
        pcie=_path(index * _SWITCHES // _GPUS),
        link=0,
    )


def _path(switch: int) -> tuple[str, ...]:
    return (f"0000:00:{switch + 1:02x}.0", f"0000:{switch + 64:02x}:00.0")


if __name__ == "__main__":
    main()
