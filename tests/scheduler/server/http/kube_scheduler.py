"""A real kube-scheduler with our extender."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.served.apiservers import free_ports
from mooring import names
from mooring.kube.client import Client
from tests.scheduler.server.cluster import Cluster
from tests.support.polling import eventually

CONFIG = Path(__file__).parents[4] / "manifests/components/extender/kube-scheduler.yaml"


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
    """Run kube-scheduler with this configuration."""
    config |= {"clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}
    (written := folder / "kube-scheduler.yaml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    flags = [f"--config={written}", f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={folder}"]
    flags += [f"--{use}-kubeconfig={kubeconfig}" for use in ("authentication", "authorization")]
    async with running(binary("kube-scheduler"), flags):
        yield


@asynccontextmanager
async def mooring_scheduler(kubeconfig: Path, *flags: str) -> AsyncIterator[None]:
    own = ["-m", "scheduler", f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--metrics-addr=", *flags]
    async with running(sys.executable, own):
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
        own = mooring_scheduler(self.kubeconfig, f"--extender-addr=127.0.0.1:{port}", *ours)
        async with own, kube_scheduler(config, self.kubeconfig, self.folder):
            yield

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        """Run kube-controller-manager, as far as it makes claims from templates and removes them."""
        (port,) = free_ports(1)
        flags = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", f"--secure-port={port}")
        only = ("--controllers=resourceclaim-controller", "--bind-address=127.0.0.1", f"--cert-dir={self.folder}")
        async with running(binary("kube-controller-manager"), (*flags, *only)):
            yield

    async def request(self, name: str, request: str = "[{}]", vfs: int = 1, placement: str = "", **spec: Any) -> None:
        """Add a pod of kube-scheduler's that requests VFs."""
        limits = {"limits": {names.RIT_VFS: str(vfs)}} if vfs else {}
        containers = [{"name": "c", "image": "i", "resources": limits}]
        annotations = {names.PLACEMENT: placement} if placement else {}
        whole = {"schedulerName": "default-scheduler", "containers": containers, **spec}
        await self.add_pod(name, request, annotations, **whole)

    async def going(self, name: str) -> None:
        """Wait until a pod has been deleted."""

        async def found() -> bool:
            return (await self.pod(name)).metadata.deletion_timestamp is not None

        await eventually(found)

    async def event(self, name: str, *texts: str) -> str:
        """Wait for an event about a pod with one of these texts."""

        async def found() -> str | None:
            for path in ("/api/v1/events", "/apis/events.k8s.io/v1/events"):
                for one in (await self.call("GET", path))["items"]:
                    about = one.get("involvedObject") or one.get("regarding")
                    message = one.get("message") or one.get("note") or ""
                    if about["name"] == name and any(text in message for text in texts):
                        return str(message)
            return None

        return await eventually(found)
