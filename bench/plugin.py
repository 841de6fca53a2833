"""Time `kubectl mooring` as a person waits for it: a whole process, against devcluster's API server.

    python -m bench.plugin --nodes 1000 --pods 5000

Prints for each command the best and the median of several runs, in seconds, with the CPU time of the command itself.
"""

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.loads import scheduler_load as load
from bench.served import apiservers
from bench.served.served_cluster import add_nodes, add_pods
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.access import load_access
from mooring.kube.client import JSON, Client
from mooring.nic.settings import VfSettings

_WAITS = 1_000_001
# The first pod has no event left; the second, which waits, is decided again.
COMMANDS = (
    ("nodes",),
    ("pods", "-A"),
    ("top",),
    ("doctor",),
    ("explain", "pod-000000"),
    ("explain", f"pod-{_WAITS}"),
    ("nodes", "-o", "json"),
    ("pods", "-A", "-o", "wide"),
    ("pods", "-A", "-o", "json"),
    ("nodes", "-o", "yaml"),
    ("pods", "-A", "-o", "yaml"),
)


def main() -> int:
    """Fill a cluster and time the commands; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, apiservers.devcluster(Path(folder)) as kubeconfig:
        asyncio.run(fill(kubeconfig, given.nodes, given.pods))
        asyncio.run(let_wait(kubeconfig))
        print(f"{given.nodes} nodes, {given.pods} pods, {given.runs} runs; seconds")
        for command in COMMANDS:
            walls, cpus = zip(*(timed(kubeconfig, command) for _ in range(given.runs)), strict=True)
            least, median = min(walls), statistics.median(walls)
            print(f"{' '.join(command):22} best {least:.2f}  median {median:.2f}  own CPU {min(cpus):.2f}")
    return 0


def timed(kubeconfig: Path, command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return how long it took and how much CPU it used, in seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    whole = [sys.executable, "-m", "cli", *command, "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def fill(kubeconfig: Path, nodes: int, pods: int) -> None:
    """Create nodes, and pods that hold two VFs each."""
    async with Client(load_access(str(kubeconfig))) as client:
        await add_nodes(client, map(load.node, range(nodes)))
        await add_pods(client, (load.mixed_pod(number) for number in range(pods)))
        listed = msgspec.json.decode(await client.request("GET", "/api/v1/namespaces/default/pods"))["items"]
        for number, pod in enumerate(listed):
            path, body = binding_of(pod["metadata"], load.node_name(number % nodes), number // nodes)
            await client.request("POST", path, msgspec.json.encode(body), JSON)


async def let_wait(kubeconfig: Path) -> None:
    """Create a pod that no scheduler sees: `explain` decides about it again."""
    async with Client(load_access(str(kubeconfig))) as client:
        await add_pods(client, [load.mixed_pod(_WAITS)])


def binding_of(pod: load.Json, node: str, turn: int) -> tuple[str, load.Json]:
    """Bind a pod to the VFs of its turn on two PFs, whose buses `bench.loads.scheduler_load` numbers from 1."""
    vfs = tuple(_vf(bus, turn) for bus in (1, 2))
    annotations = {names.ASSIGNMENT: dump_assignment(Assignment(pod["uid"], node, vfs))}
    metadata = {"name": pod["name"], "uid": pod["uid"], "annotations": annotations}
    path = f"/api/v1/namespaces/default/pods/{pod['name']}/binding"
    return path, {"metadata": metadata, "target": {"kind": "Node", "name": node}}


def _vf(bus: int, index: int) -> AssignedVf:
    device, function = divmod(2 + index, 8)
    pci, rates = f"0000:{bus:02x}:{device:02x}.{function}", VfSettings(500, 5000)
    return AssignedVf(f"enp{bus}s0f0", index, pci, "ethernet", f"rail{bus - 1}", rates)


if __name__ == "__main__":
    sys.exit(main())
