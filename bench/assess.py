"""Time `kubectl mooring assess` and its memory: a whole process, against devcluster's API server and captures.

    python -m bench.assess [--nodes 400] [--pods 5000] [--vfs 16]

The goal is 5 minutes and 2 GiB for 400 nodes and 5,000 pods. All nodes have two PFs with so many VFs each, the pods one
VF each. Every eighth pod is in a job of eight. Exit status 1 if the goal is missed.
"""

import argparse
import asyncio
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from advertiser.formats import use_record
from advertiser.host.capture import Content, pack
from bench.served import apiservers
from cli.plugin.assess.node_archives import opened_members
from devcluster.demo.assess import fill
from devcluster.demo.plugin_cluster import PluginCluster, PluginNode, PluginPod
from mooring.kube.access import load_access
from mooring.kube.client import Client

_MOST_S, _MOST_BYTES = 300.0, 2 << 30
_OF_A_JOB = 8


def main() -> int:
    """Fill a cluster, run the command once; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--vfs", type=int, default=16)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, apiservers.devcluster(Path(folder)) as kubeconfig:
        cluster = asyncio.run(_fill(kubeconfig, make_cluster(given.nodes, given.pods, given.vfs)))
        write_captures(cluster, Path(folder) / "nodes", Path(folder) / "trees")
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        flags = ["assess", "--nodes", f"{folder}/nodes", "-o", "json", "--kubeconfig", str(kubeconfig)]
        done = subprocess.run([sys.executable, "-m", "cli", *flags], capture_output=True, text=True, check=True)
        took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(done.stdout)
    # Of all children, the largest: ru_maxrss is in KiB.
    memory = after.ru_maxrss << 10
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    captured = sum(node["captured"] for node in document["nodes"])
    print(
        f"{captured} captures of {2 * given.vfs} VFs, {given.pods} pods, {document['decisions']['placed']} placed again"
    )
    print(f"{took:.0f} s ({cpu:.0f} s of CPU), {memory >> 20} MiB, {len(document['findings'])} findings")
    return 0 if took <= _MOST_S and memory <= _MOST_BYTES else 1


def make_cluster(nodes: int, pods: int, vfs: int) -> PluginCluster:
    """Return a cluster without faults, whose pods are spread over the nodes in turn."""
    made = tuple(PluginNode(f"n{number:04}", number, vfs=vfs) for number in range(1, nodes + 1))
    placed = (divmod(number, nodes) for number in range(pods))
    given = tuple(
        PluginPod(
            f"pod-{number:05}",
            made[at].name,
            ((turn % 2, turn // 2),),
            job=f"job-{number // _OF_A_JOB}" if number // _OF_A_JOB % _OF_A_JOB == 0 else "",
        )
        for number, (turn, at) in enumerate(placed)
    )
    return PluginCluster(made, given)


def write_captures(cluster: PluginCluster, folder: Path, scratch: Path) -> None:
    """Write the nodes' archives: all are that of the first node, with each node's own pods."""
    folder.mkdir()
    first = cluster.nodes[0]
    contents: dict[str, Content] = {}
    with opened_members(io.BytesIO(cluster.capture(first, scratch))) as members:
        for member in members:
            file = members.extractfile(member) if member.isreg() else None
            contents[member.name] = file.read() if file is not None else member.linkname if member.issym() else None
    use = contents[use_record.FILE]
    assert isinstance(use, bytes)
    by_node: dict[str, list[str]] = {}
    for pod in cluster.pods:
        by_node.setdefault(pod.node, []).append(pod.uid)
    for node in cluster.nodes:
        own = use.decode()
        for template, uid in zip(by_node[first.name], by_node.get(node.name, ()), strict=False):
            own = own.replace(template, uid)
        (folder / f"{node.name}.tar.gz").write_bytes(pack({**contents, use_record.FILE: own.encode()}))


async def _fill(kubeconfig: Path, cluster: PluginCluster) -> PluginCluster:
    async with Client(load_access(str(kubeconfig))) as client:
        return await fill(client, cluster)


if __name__ == "__main__":
    sys.exit(main())
