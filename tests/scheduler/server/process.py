"""The schedulers as processes, ours and a real kube-scheduler, beside an API server."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from devcluster.processes import free_ports
from mooring import names
from mooring.kube.client import Client
from tests.scheduler.server.cluster import NODES, Cluster, beside
from tests.support.polling import until

ALONE = ("--leader-elect", "false")
CONFIG = Path(__file__).parents[3] / "manifests/components/extender/kube-scheduler.yaml"


class Scheduler:
    """One process, and the lines that it writes."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[bytes] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line)

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in map(json.loads, self.lines) if entry["event"] == event]

    def waited_s(self) -> float:
        """Return how long after it began to lead it bound its first pod, in seconds of its own clock."""
        leading, bound = (self.logged(event)[0]["ts"] for event in ("leading", "pod bound"))
        return (datetime.fromisoformat(bound) - datetime.fromisoformat(leading)).total_seconds()

    async def until_logged(self, event: str) -> None:
        """Wait for this log event."""
        await until(lambda: self.logged(event), event)

    async def end(self) -> int:
        """Wait for its end, and for all that it has written; return its exit status."""
        async with asyncio.timeout(90):
            status = await self.process.wait()
            await self._reading
        return status


@asynccontextmanager
async def scheduler(cluster: Cluster, *flags: str) -> AsyncIterator[Scheduler]:
    """Run a scheduler; it must end by itself after SIGTERM."""
    arguments = ["-m", "scheduler", "--kubeconfig", str(cluster.kubeconfig), "--metrics-addr", "", *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=PIPE)
    scheduler = Scheduler(process)
    try:
        yield scheduler
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        await scheduler.end()


@asynccontextmanager
async def replicas(cluster: Cluster, *flags: str, metrics_addr: str = "") -> AsyncIterator[tuple[Scheduler, Scheduler]]:
    """Run a leader, and a standby that has listed everything and serves metrics."""
    async with scheduler(cluster, *flags) as leader:
        await leader.until_logged("leading")
        async with scheduler(cluster, *flags, "--metrics-addr", metrics_addr) as standby:
            await standby.until_logged("listed")
            yield leader, standby


async def page(address: str, path: str) -> str:
    """Return what a process serves there, nothing as long as it does not."""
    with suppress(aiohttp.ClientConnectionError):
        async with aiohttp.request("GET", f"http://{address}{path}") as answer:
            return await answer.text() if answer.status == 200 else ""
    return ""


def binary(name: str) -> str:
    """Return the path of a program of the control plane; skip the test where there is none."""
    path = Path(os.environ["KUBEBUILDER_ASSETS"]) / name
    if not path.exists():
        pytest.skip(f"tier 'apiserver': KUBEBUILDER_ASSETS has no {name}")
    return str(path)


@asynccontextmanager
async def running(program: str, arguments: Sequence[str]) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(program, *arguments, stderr=DEVNULL, stdout=DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            await process.wait()


@asynccontextmanager
async def kube_scheduler(config: dict[str, Any], kubeconfig: Path, folder: Path) -> AsyncIterator[None]:
    """Run kube-scheduler with this in its configuration."""
    config |= {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config |= {"clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}
    (written := folder / "kube-scheduler.yaml").write_text(yaml.safe_dump(config))
    async with running(binary("kube-scheduler"), (f"--config={written}", "--secure-port=0")):
        yield


class RealCluster(Cluster):
    """A real API server, and both schedulers at work on it."""

    def __init__(self, client: Client, kubeconfig: Path, folder: Path) -> None:
        super().__init__(client, kubeconfig)
        self.folder = folder

    @asynccontextmanager
    async def scheduled(self, *ours: str, **extender: Any) -> AsyncIterator[None]:
        """Run both: ours with these flags, kube-scheduler with the manifests' configuration, changed as given."""
        (port,) = free_ports(1)
        config = yaml.safe_load(CONFIG.read_text())
        config["podInitialBackoffSeconds"] = config["podMaxBackoffSeconds"] = 1
        scheme = "https" if extender.get("enableHTTPS") else "http"
        config["extenders"][0] |= {"urlPrefix": f"{scheme}://127.0.0.1:{port}/scheduler"} | extender
        own = scheduler(self, *ALONE, f"--extender-addr=127.0.0.1:{port}", *ours)
        async with own, kube_scheduler(config, self.kubeconfig, self.folder), beside(self._stir()):
            yield

    async def _stir(self) -> None:
        """Make events: kube-scheduler asks again at its own, perhaps before ours has seen a deletion."""
        for number in itertools.count():
            await self.patch(f"{NODES}/n1", metadata={"labels": {"event": str(number)}})
            await asyncio.sleep(1.0)

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        """Run kube-controller-manager, as far as it makes claims from templates and removes them."""
        flags = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        only = "--controllers=resourceclaim-controller"
        async with running(binary("kube-controller-manager"), (*flags, only)):
            yield

    async def request(
        self, name: str, request: str = "[{}]", vfs: int = 1, cpu: str = "0", placement: str = "", **spec: Any
    ) -> None:
        """Add a pod of kube-scheduler's that requests VFs."""
        resources = {"requests": {"cpu": cpu}, "limits": {names.RIT_VFS: str(vfs)} if vfs else {}}
        whole = {"schedulerName": "default-scheduler", **containing(resources), **spec}
        await self.add_pod(name, request, {names.PLACEMENT: placement} if placement else {}, **whole)


def containing(resources: dict[str, Any]) -> dict[str, Any]:
    """Return what a pod's spec says of one container with these resources."""
    return {"containers": [{"name": "c", "image": "i", "resources": resources}]}
