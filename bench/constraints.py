"""Time decisions about pods that request FPGAs beside their VFs, against the same pods without; no I/O.

    python -m bench.constraints [--nodes 5000] [--pods 3000] [--rounds 3]

Nodes have 4 PFs and 8 FPGAs under 4 PCIe switches; a pod has 2 VFs of one of 64 mixes of rates, an FPGA beside each.
The constraint is that of docs/examples/fpga. Three loads take turns for some rounds, and each pod's best time counts:
pods without a constraint where none is installed, the same where one is, and pods with FPGAs. CPU time of one core.
`bench.overhead` measures whether a pod without FPGAs is slowed: there the loads take turns pod by pod.
"""

import argparse
import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec

from bench.loads import scheduler_load as load
from bench.scheduler import Scheduling, line
from mooring import names
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.kube.events import Changed, Identity
from mooring.parsing import dump
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.kube.objects import Node
from scheduler.server import startup

_EXAMPLE = Path(__file__).parent.parent / "docs/examples/fpga"
_SWITCHES, _FPGAS = 4, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    # A pod whose selector leaves it a tenth of the nodes finds no free FPGA there when there are as many pods as nodes.
    parser.add_argument("--pods", type=int, help="pods of each load (default 3 for 5 nodes)")
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which each pod's best counts (default 3)")
    options = parser.parse_args()
    kinds, pods = fpga_kinds(), options.pods or options.nodes * 3 // 5
    loads = {
        "no constraint installed": Load(NONE, fpgas=False),
        "one installed, not used": Load(kinds, fpgas=False),
        "an FPGA beside each VF": Load(kinds, fpgas=True),
    }
    rounds: dict[str, list[list[float]]] = {name: [] for name in loads}
    for _ in range(options.rounds):
        for name, one in loads.items():
            rounds[name].append(one.measure(options.nodes, pods))
    print(f"{options.nodes} nodes; CPU time in µs a pod")
    print(f"{'':26} {'pods':>7} {'pods/s':>9} {'mean':>8} {'p50':>8} {'p99':>8} {'max':>9}")
    # Equal rounds make equal decisions, so that each pod has a best time of its own.
    best = {name: [min(times) for times in zip(*same, strict=True)] for name, same in rounds.items()}
    for name, times in best.items():
        line(name, times, 0.0)


def fpga_kinds() -> Kinds:
    """Load the constraint from its source."""
    sys.path.insert(0, str(_EXAMPLE))
    return startup.load_kinds([EntryPoint("fpga", "mooring_fpga.constraint:Fpgas", startup.GROUP)])


def cluster(nodes: int, kinds: Kinds) -> Scheduling:
    """Return nodes with FPGAs."""
    scheduling = Scheduling(0, kinds)
    for number in range(nodes):
        node = msgspec.convert(_node(number), Node)
        scheduling.machine.nodes(Changed(Identity(node.metadata.name), node), scheduling.now)
    return scheduling


@dataclass(frozen=True, slots=True)
class Load:
    """Pods on nodes with FPGAs, with a constraint for them or without; ``fpgas`` is true if the pods request them."""

    kinds: Kinds
    fpgas: bool

    def measure(self, nodes: int, pods: int) -> list[float]:
        """Return the seconds of each decision; raise ValueError if a pod finds no node."""
        scheduling = cluster(nodes, self.kinds)
        scheduling.offer([self._pod(number) for number in range(pods)])
        gc.collect()
        gc.freeze()
        times: list[float] = []
        while (decided := scheduling.decide()) is not None:
            took, bind = decided
            if bind is None:
                raise ValueError(f"pod {len(times)} of the load found no node")
            times.append(took)
        scheduling.machine.check()
        return times

    def _pod(self, number: int) -> load.Json:
        pod = load.mixed_pod(number)
        if self.fpgas:
            pod["metadata"]["annotations"][f"{names.REQUEST_OF}fpga"] = dump([{"beside": 0}, {"beside": 1}])
        return pod


def _node(number: int) -> load.Json:
    node = load.node(number)
    annotations = node["metadata"]["annotations"]
    inventory = read_inventory(annotations[names.INVENTORY])
    pfs = tuple(replace(pf, pcie=(*_path(index), f"{pf.pci[:-4]}1f.0")) for index, pf in enumerate(inventory.pfs))
    annotations[names.INVENTORY] = dump_inventory(replace(inventory, pfs=pfs))
    annotations[f"{names.INVENTORY_OF}fpga"] = dump({"v": 1, "fpgas": [_fpga(index) for index in range(_FPGAS)]})
    return node


def _fpga(index: int) -> Mapping[str, object]:
    return {"pci": f"0000:{index + 16:02x}:00.0", "pcie": _path(index % _SWITCHES)}


def _path(switch: int) -> tuple[str, ...]:
    return (f"0000:00:{switch + 1:02x}.0", f"0000:{switch + 64:02x}:00.0")


if __name__ == "__main__":
    main()
