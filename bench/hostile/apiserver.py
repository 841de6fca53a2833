"""An API server with nodes, as a process of its own: `python -m bench.hostile.apiserver KUBECONFIG NODES`.

A node has 8 PFs of 100 Gb/s with 32 VFs each; what it offers of them differs from node to node, so that no answer about
one node holds for the next.
"""

import asyncio
import signal
import sys
import uuid
from pathlib import Path

from bench.loads import scheduler_load as load
from devcluster.apiserver.cluster import NODES
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.indexes import Indexes

_PFS, _VFS, _MBPS, _OFFERS = 8, 32, 100_000, 499
# Labels of which each node has a value of its own, as storage drivers and clouds write them.
LEVELS = 8
_BORN = "2026-01-01T00:00:00Z"


def node(number: int) -> load.Json:
    """Return a Ready node as a watch shows it."""
    document = load.node(number)
    document["metadata"]["labels"] |= {f"example.com/level-{level}": f"{number}" for level in range(LEVELS)}
    inventory = Inventory(load.BOOT, tuple(_pf(index, number) for index in range(_PFS)))
    document["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _BORN}
    document["metadata"]["annotations"] = {names.INVENTORY: dump_inventory(inventory)}
    return {"apiVersion": "v1", "kind": "Node", **document}


def _pf(index: int, number: int) -> Pf:
    bus = f"0000:{index + 1:02x}"
    return Pf(
        name=f"enp{index + 1}s0f0",
        pci=f"{bus}:00.0",
        rdma=f"mlx5_{index}",
        link="ethernet",
        network=f"rail{index}",
        mbps=_MBPS,
        offer_mbps=_MBPS - (number * _PFS + index) % _OFFERS,
        up=True,
        vfs=Indexes.of(range(_VFS)),
        vf0=f"{bus}:00.2",
        can=frozenset({"min_tx_rate", "max_tx_rate", "vlan"}),
    )


async def main(kubeconfig: Path, nodes: int) -> None:
    """Serve until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with ApiServer() as server:
        for number in range(nodes):
            server.cluster.store.put(NODES, node(number))
        # Whole from the first moment: who waits for it reads it then.
        written = kubeconfig.with_suffix(".new")
        written.write_text(server.kubeconfig_text())
        written.rename(kubeconfig)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
