"""Start the scheduler on a large cluster: time to the first bind, memory, and the longest pause of its loop.

    python -m bench.scheduler_large [--nodes 5000] [--pods 100000] [--new 1000]

Three processes: devcluster's API server with the cluster already in it, the scheduler as its own program with a ticker
beside it, and this one, which creates pods and sees them bound. Goals at 5,000 nodes and 100,000 bound pods: 15 s from
the process's start to its first bind, 1 GiB, no pause over 50 ms. A pause is printed twice: by the clock, and by the
CPU time that the loop's thread spent meanwhile, which a busy machine does not lengthen.
"""

import argparse
import asyncio
import gc
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.loads import scheduler_load as load
from devcluster.apiserver.objects import encode
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.nic.settings import VfSettings
from mooring.program import log

_PODS = "/api/v1/namespaces/default/pods"
_NODES_AT, _PODS_AT = ("", "nodes"), ("", "pods")
_WITHIN_S = 300.0
_TICK_S = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=100_000, help="pods that are bound already (default 100000)")
    parser.add_argument("--new", type=int, default=1_000, help="pods created once the scheduler works (default 1000)")
    parser.add_argument("--part", choices=("server", "scheduler"), help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "server":
        asyncio.run(_serve(arguments.nodes, arguments.pods))
    elif arguments.part == "scheduler":
        asyncio.run(_schedule(arguments.url))
    else:
        asyncio.run(_measure(arguments))


async def _serve(nodes: int, pods: int) -> None:
    """Serve a cluster that exists from the beginning, until standard input ends."""
    async with ApiServer() as server:
        store = server.cluster.store
        for number in range(nodes):
            store.put(_NODES_AT, listed_node(number))
        for number in range(pods):
            store.put(_PODS_AT, bound_pod(number, load.node_name(number % nodes), number // nodes))
        gc.freeze()
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def listed_node(number: int) -> load.Json:
    """Return a node as the API server has it."""
    return {"kind": "Node", "apiVersion": "v1", **_with_uid(load.node(number), f"node-{number}")}


def _with_uid(document: load.Json, uid: str) -> load.Json:
    document["metadata"] |= {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return document


def bound_pod(number: int, node: str, place: int) -> load.Json:
    """Return the pod that is ``place``-th on its node, of about the size that pods have on a real API server."""
    pod = load.pod(number, [{"min_tx_rate": 1000}, {"min_tx_rate": 500}], "250m", {}, {"app": f"a{number % 500}"})
    uid = f"00000000-0000-4000-8000-{number:012}"
    _with_uid(pod, uid)
    index = place % 4
    vfs = tuple(_vf(index, place // 4 * 2 + which, rate) for which, rate in enumerate((1000, 500)))
    pod["metadata"]["annotations"][names.ASSIGNMENT] = dump_assignment(Assignment(uid, node, vfs))
    pod["metadata"]["managedFields"] = [{"manager": "kubelet", "operation": "Update", "fieldsV1": _FIELDS}]
    pod["spec"] |= {"nodeName": node, "tolerations": _TOLERATIONS, "volumes": [{"name": "tmp", "emptyDir": {}}]}
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady")]
    started = [{"name": "c", "ready": True, "started": True, "restartCount": 0, "image": "registry.example/app:1"}]
    pod["status"] = {"phase": "Running", "conditions": conditions, "containerStatuses": started, "podIP": "10.0.0.1"}
    return pod


def _vf(index: int, vf: int, rate: int) -> AssignedVf:
    pci = f"0000:{index + 1:02x}:{(vf + 2) // 8:02x}.{(vf + 2) % 8}"
    settings = VfSettings(min_tx_rate=rate)
    return AssignedVf(f"enp{index + 1}s0f0", vf, pci, "ethernet", f"rail{index}", settings)


_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
_FIELDS: dict[str, Any] = {f"f:field{number}": {"f:value": {}} for number in range(50)}


@dataclass(slots=True)
class _Pauses:
    """The longest pause of the loop, in milliseconds, and how much of it was garbage collection."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    gc_ms: float = 0.0
    over: int = 0
    began: float = field(default=0.0, repr=False)

    def collected(self, phase: str, _: object) -> None:
        now = time.perf_counter()
        if phase == "start":
            self.began = now
        else:
            self.gc_ms = max(self.gc_ms, (now - self.began) * 1000)

    async def tick(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_TICK_S)
            spent_ms = (time.thread_time() - cpu) * 1000
            self.wall_ms = max(self.wall_ms, (time.perf_counter() - wall) * 1000)
            self.cpu_ms = max(self.cpu_ms, spent_ms)
            self.over += spent_ms > 50

    def take(self) -> dict[str, Any]:
        """Return what was seen since the last call."""
        seen = {"wall_ms": self.wall_ms, "cpu_ms": self.cpu_ms, "gc_ms": self.gc_ms, "over_50_ms": self.over}
        self.wall_ms = self.cpu_ms = self.gc_ms = 0.0
        self.over = 0
        return seen


async def _schedule(url: str) -> None:
    """Run the scheduler; on SIGUSR1 print the pauses since the last time, and the memory."""
    from scheduler.__main__ import Config, _run, spare_collections

    log.set_up("scheduler")
    spare_collections()
    pauses = _Pauses()
    gc.callbacks.append(pauses.collected)
    ticking = asyncio.create_task(pauses.tick())

    def tell() -> None:
        status = Path("/proc/self/status").read_text().splitlines()
        memory = {key: int(value.split()[0]) for key, value in (line.split(":", 1) for line in status) if "kB" in value}
        figures = {**pauses.take(), "VmHWM_mib": memory["VmHWM"] / 1024, "cpu_s": time.process_time()}
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    await _run(Config(metrics_addr=""), Access(url))
    ticking.cancel()


@asynccontextmanager
async def _part(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "bench.scheduler_large", "--part", *arguments]
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=null)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def _measure(arguments: argparse.Namespace) -> None:
    size = ("--nodes", str(arguments.nodes), "--pods", str(arguments.pods))
    async with _part("server", *size) as server:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        async with Client(Access(url), timeout_s=60.0) as client:
            await _create(client, range(arguments.pods, arguments.pods + 1))
            began = time.monotonic()
            async with _part("scheduler", "--url", url) as scheduler:
                await _bound(client, arguments.pods, 1)
                _tell("start", time.monotonic() - began, await _figures(scheduler))
                began = time.monotonic()
                await _create(client, range(arguments.pods + 1, arguments.pods + 1 + arguments.new))
                await _bound(client, arguments.pods + 1, arguments.new)
                _tell(f"{arguments.new} more", time.monotonic() - began, await _figures(scheduler))


async def _create(client: Client, numbers: range) -> None:
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await client.request("POST", _PODS, encode(load.mixed_pod(number)))

    await asyncio.gather(*(some() for _ in range(8)))


async def _bound(client: Client, first: int, count: int) -> None:
    """Wait until the last pods have nodes."""
    deadline = time.monotonic() + _WITHIN_S
    for number in range(first + count - 1, first - 1, -1):
        while not json.loads(await client.request("GET", f"{_PODS}/pod-{number:06}"))["spec"].get("nodeName"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"pod-{number:06} has no node after {_WITHIN_S:.0f} s")
            await asyncio.sleep(0.02)


async def _figures(scheduler: asyncio.subprocess.Process) -> dict[str, Any]:
    assert scheduler.stdout is not None
    scheduler.send_signal(signal.SIGUSR1)
    figures: dict[str, Any] = json.loads(await scheduler.stdout.readline())
    return figures


def _tell(what: str, spent_s: float, figures: dict[str, Any]) -> None:
    rest = "  ".join(f"{name} {value:.1f}" for name, value in figures.items())
    sys.stdout.write(f"{what:12} {spent_s:6.1f} s  {rest}\n")


if __name__ == "__main__":
    main()
