"""``python -m devcluster.kubelet``: a kubelet stand-in for one node, until SIGTERM. Its pods outlive it."""

import asyncio
import os
import platform
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from devcluster import program
from devcluster.kubelet.agent import Agent
from devcluster.kubelet.api import Api
from devcluster.kubelet.logs import PORT, serving
from devcluster.kubelet.plan.node import Machine
from devcluster.kubelet.retry import retrying
from devcluster.kubelet.runtime import Runtime
from devcluster.kubelet.steps import Edge
from devcluster.kubelet.volumes import Volumes
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.program.config import option


@dataclass(frozen=True, slots=True)
class Options:
    """Play the kubelet of one node."""

    kubeconfig: str = option("", "kubeconfig file; the default order of kubectl where empty")
    node_name: str = option(platform.node().lower(), "name of the node; the host name as kubelets use it")
    container_runtime_endpoint: str = option(
        "unix:///run/mooring/cri.sock", "CRI socket; the shim's, which is to be tried here"
    )
    address: str = option("127.0.0.1", "the node's address, shown in its status")
    pods: int = option(110, "how many pods the node takes; the real kubelet's default")
    max_parallel: int = option(64, "how many sandboxes and containers may start at a time; enough for a burst")
    root_dir: Path = option(Path("/var/lib/kubelet"), "folder of the pods' volumes")
    pod_logs: str = option(
        "", "folder of containers' logs, which are then served at the node's port 10250; off where empty"
    )
    pull: bool = option(False, "true pulls images that are not there; the demonstration has them all")
    request_timeout: float = option(120.0, "deadline of a CRI call in seconds, twice that to make a sandbox")


async def run(options: Options) -> None:
    """Work until SIGTERM or SIGINT, under the name by which programs of the host find a kubelet."""
    Path("/proc/self/comm").write_text("kubelet", encoding="ascii")
    access = await asyncio.to_thread(load_access, options.kubeconfig or None)
    runtime = Runtime(options.container_runtime_endpoint, options.request_timeout)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(access))
        await stack.enter_async_context(runtime)
        api = Api(client, options.node_name)
        edge = Edge(
            api,
            runtime,
            time.time,
            options.address,
            asyncio.Semaphore(options.max_parallel),
            Volumes(client, options.root_dir / "pods", time.time),
            options.pull,
            await retrying()(api.services),
            Path(options.pod_logs) if options.pod_logs else None,
        )
        if options.pod_logs:
            await stack.enter_async_context(serving(Path(options.pod_logs), options.address))
        work = asyncio.create_task(Agent(machine(options), edge).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()


def machine(options: Options) -> Machine:
    """Describe this machine as the node's."""
    memory = Path("/proc/meminfo").read_text(encoding="ascii").split(maxsplit=2)[1]
    return Machine(
        name=options.node_name,
        address=options.address,
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        cpus=os.cpu_count() or 1,
        memory_kib=int(memory),
        storage_kib=shutil.disk_usage("/").total // 1024,
        pods=options.pods,
        kernel=platform.release(),
        runtime="containerd://devcluster",
        port=PORT if options.pod_logs else 0,
    )


if __name__ == "__main__":
    sys.exit(program.main(Options, "kubelet", run, os.environ))
