"""Measure how long users wait: for a job's last rank, for a pod amid others, and for the answer that none fits.

    python -m bench.waiting_times [--nodes 1000] [--ranks 512] [--seconds 30]

Against devcluster's API server, and against a real one where KUBEBUILDER_ASSETS names a folder with etcd and
kube-apiserver. All times are by the clock, from before a pod's creation is sent until a watch shows the result. The
ranks form one group and have 8 VFs each; their creations, 32 at once, count too. A stand-in for the kubelets marks a
bound rank as Running at once, so a node's own work is not in these times. Then a rank's node is deleted with its pods,
and a stand-in for the job's controller makes new ones. Then pods with 2 VFs come at a steady rate, 100 a second. At
last a pod that fits nowhere comes alone, ten times. The scheduler writes Events.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.loads import scheduler_load as load
from bench.scheduler_e2e import running, servers
from bench.served import baselines, served_cluster
from bench.served.served_cluster import PODS
from mooring import names
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.parsing import dump
from scheduler.kube.objects import Pod

_PER_S, _MISFITS, _LONGEST_S, _POLL_S = 100, 10, 300.0, 0.002
_JOB_UID = "3b0c7f9e-1d52-4b8e-9d0a-6f3f6f0d5a11"


class _Change(msgspec.Struct):
    """One line of a watch."""

    object: Pod


class _Seen:
    """When each pod by name was first seen bound, running, and reported as unschedulable; monotonic seconds."""

    def __init__(self) -> None:
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self.misfits: dict[str, float] = {}
        self.nodes: dict[str, str] = {}

    def note(self, pod: Pod, now: float) -> None:
        condition = pod.condition("PodScheduled")
        if pod.status.phase == "Running":
            self.running.setdefault(pod.metadata.name, now)
        if pod.spec.node_name:
            self.bound.setdefault(pod.metadata.name, now)
            self.nodes[pod.metadata.name] = pod.spec.node_name
        elif condition is not None and condition.status == "False":
            self.misfits.setdefault(pod.metadata.name, now)


@asynccontextmanager
async def _watching(client: Client) -> AsyncIterator[_Seen]:
    """Watch the pods of an empty cluster."""
    seen, decode = _Seen(), msgspec.json.Decoder(_Change).decode
    page = msgspec.json.decode(await client.request("GET", PODS, params={"limit": "1"}))
    params = {"watch": "true", "resourceVersion": str(page["metadata"]["resourceVersion"])}

    async def follow() -> None:
        while True:
            async with client.stream(PODS, params, 3600.0) as batches:
                async for lines in batches:
                    now = time.monotonic()
                    for pod in [decode(line).object for line in lines]:
                        seen.note(pod, now)
                        params["resourceVersion"] = pod.metadata.resource_version

    task = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        task.cancel()


async def _until(is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LONGEST_S):
        while not is_done():
            await asyncio.sleep(_POLL_S)


def _rank(number: int, ranks: int) -> load.Json:
    pod = load.pod(number, [{"min_tx_rate": 1000}] * 8, "1", {})
    pod["metadata"]["annotations"][names.GROUP] = dump({"name": "train", "min": ranks})
    controller = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": _JOB_UID, "controller": True}
    pod["metadata"]["ownerReferences"] = [controller]
    return pod


async def job_s(client: Client, ranks: int) -> tuple[float, float]:
    """Return the seconds until all ranks of a job run, and until they do again after one's node was deleted."""
    async with _watching(client) as seen, _kubelets(client, seen):
        began = time.monotonic()
        await served_cluster.add_pods(client, (_rank(number, ranks) for number in range(ranks)))
        await _until(lambda: len(seen.running) == ranks)
        whole_s = max(seen.running.values()) - began
        lost = [name for name, node in seen.nodes.items() if node == seen.nodes[load.pod_name(0)]]
        began = time.monotonic()
        await client.request("DELETE", f"/api/v1/nodes/{seen.nodes[lost[0]]}")
        for name in lost:
            await client.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})
        await served_cluster.add_pods(client, (_rank(number, ranks) for number in range(ranks, ranks + len(lost))))
        await _until(lambda: len(seen.running) == ranks + len(lost))
    return whole_s, max(seen.running.values()) - began


@asynccontextmanager
async def _kubelets(client: Client, seen: _Seen) -> AsyncIterator[None]:
    """Mark each pod as Running once it is bound."""

    async def mark() -> None:
        known = set[str]()
        while True:
            fresh = seen.bound.keys() - known
            known |= fresh
            await served_cluster.few_at_once(
                served_cluster.send(client, "PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}})
                for name in fresh
            )
            await asyncio.sleep(_POLL_S)

    task = asyncio.create_task(mark())
    try:
        yield
    finally:
        task.cancel()


async def steady_s(client: Client, seconds: int) -> list[float]:
    """Return the seconds from the creation of each pod to its Binding, at a steady rate."""
    created: dict[str, float] = {}

    async def create(number: int) -> None:
        created[load.pod_name(number)] = time.monotonic()
        await served_cluster.send(client, "POST", PODS, load.mixed_pod(number))

    async with _watching(client) as seen, asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(seconds * _PER_S):
            await asyncio.sleep(max(began + number / _PER_S - time.monotonic(), 0.0))
            group.create_task(create(number))
        await _until(lambda: len(seen.bound) == seconds * _PER_S)
    return [seen.bound[name] - since for name, since in created.items()]


async def misfit_s(client: Client) -> list[float]:
    """Return the seconds from the creation of each pod that fits nowhere to its condition."""
    times = list[float]()
    async with _watching(client) as seen:
        for number in range(_MISFITS):
            began = time.monotonic()
            await served_cluster.add_pods(client, [load.impossible_pod(number)])
            await _until(lambda number=number: load.pod_name(number) in seen.misfits)  # type: ignore[misc]
            times.append(seen.misfits[load.pod_name(number)] - began)
            await asyncio.sleep(0.5)
    return times


async def measure(kubeconfig: Path, folder: Path, options: argparse.Namespace) -> None:
    """Print a line for each thing that a user waits for."""
    (scheduler,) = (one for one in baselines.ours(kubeconfig) if one.name == baselines.SPEAKING)
    async with Client(load_access(str(kubeconfig)), connections=64) as client:
        await served_cluster.add_nodes(client, map(load.node, range(options.nodes)))
        with running(scheduler, folder):
            # Not the start of the scheduler.
            await job_s(client, 1)
            await served_cluster.clear(client)
            whole_s, again_s = await job_s(client, options.ranks)
            print(f"  {options.ranks} ranks of 8 VFs, from the first creation to the last Running: {whole_s:.2f} s")
            print(f"  from the loss of a rank's node until all run again: {again_s:.2f} s", flush=True)
            await served_cluster.clear(client)
            times = sorted(await steady_s(client, options.seconds))
            p50, p99 = statistics.median(times), times[int(len(times) * 0.99) - 1]
            print(f"  at {_PER_S} pods a second, from created to bound: p50 {_ms(p50)}, p99 {_ms(p99)}", flush=True)
            await served_cluster.clear(client)
            times = await misfit_s(client)
            print(f"  does not fit: median {_ms(statistics.median(times))}, longest {_ms(max(times))}", flush=True)
            await served_cluster.clear(client)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the cluster (default 1000)")
    parser.add_argument("--ranks", type=int, default=512, help="ranks of the job (default 512)")
    parser.add_argument("--seconds", type=int, default=30, help="seconds of steady creation (default 30)")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; {options.nodes} nodes")
    with tempfile.TemporaryDirectory() as folder:
        for server, kubeconfig, _ in servers(Path(folder)):
            print(f"{server}, load {os.getloadavg()[0]:.1f}", flush=True)
            asyncio.run(measure(kubeconfig, Path(folder), options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
