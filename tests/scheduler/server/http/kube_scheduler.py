"""A real kube-scheduler with our extender."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import yaml

from bench.served.apiservers import free_ports
from mooring import names
from mooring.kube.client import MERGE_PATCH, Client
from scheduler.kube.objects import Node, Pod
from tests.support.polling import eventually

T = TypeVar("T")
CONFIG = Path(__file__).parents[4] / "manifests/components/extender/kube-scheduler.yaml"
PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def running(program: str, arguments: Sequence[str]) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(program, *arguments, stderr=DEVNULL, stdout=DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            await process.wait()


class Cluster:
    """A real API server, and both schedulers at work on it."""

    def __init__(self, client: Client, kubeconfig: Path, folder: Path) -> None:
        self._client = client
        self._kubeconfig = kubeconfig
        self._folder = folder

    @asynccontextmanager
    async def scheduled(self, *ours: str, **extender: Any) -> AsyncIterator[None]:
        """Run both: ours with these flags, kube-scheduler with the manifests' configuration, changed as given."""
        port, secure = free_ports(2)
        config = yaml.safe_load(CONFIG.read_text())
        config["clientConnection"]["kubeconfig"] = str(self._kubeconfig)
        config["leaderElection"]["leaderElect"] = False
        config["podInitialBackoffSeconds"] = config["podMaxBackoffSeconds"] = 1
        scheme = "https" if extender.get("enableHTTPS") else "http"
        config["extenders"][0] |= {"urlPrefix": f"{scheme}://127.0.0.1:{port}/scheduler"} | extender
        (written := self._folder / "kube-scheduler.yaml").write_text(yaml.safe_dump(config))
        own = ["-m", "scheduler", "--kubeconfig", str(self._kubeconfig), "--leader-elect", "false"]
        own += ["--metrics-addr", "", "--extender-addr", f"127.0.0.1:{port}", *ours]
        binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kube-scheduler"
        if not binary.exists():
            pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-scheduler")
        by = ("--authentication-kubeconfig", "--authorization-kubeconfig")
        theirs = ["--config", str(written), f"--secure-port={secure}", "--bind-address=127.0.0.1"]
        theirs += [*(part for flag in by for part in (flag, str(self._kubeconfig))), f"--cert-dir={self._folder}"]
        async with running(sys.executable, own), running(str(binary), theirs):
            yield

    @asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        """Run kube-controller-manager, as far as it makes claims from templates and removes them."""
        binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kube-controller-manager"
        if not binary.exists():
            pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-controller-manager")
        (port,) = free_ports(1)
        flags = ("--kubeconfig", str(self._kubeconfig), "--leader-elect=false", f"--secure-port={port}")
        only = ("--controllers=resourceclaim-controller", "--bind-address=127.0.0.1", f"--cert-dir={self._folder}")
        async with running(str(binary), (*flags, *only)):
            yield

    async def add_node(self, node: Node) -> None:
        document = msgspec.to_builtins(node)
        metadata = {"name": node.metadata.name, "annotations": node.metadata.annotations}
        await self._client.request("POST", "/api/v1/nodes", msgspec.json.encode({"metadata": metadata}))
        path = f"/api/v1/nodes/{node.metadata.name}"
        status = {key: document["status"][key] for key in ("allocatable", "conditions", "nodeInfo")}
        for where, patch in ((path, {"spec": {"taints": None}}), (f"{path}/status", {"status": status})):
            await self._client.request("PATCH", where, msgspec.json.encode(patch), MERGE_PATCH)

    async def add_pod(self, name: str, request: str = "[{}]", vfs: int = 1, placement: str = "", **spec: Any) -> None:
        limits = {"limits": {names.RIT_VFS: str(vfs)}} if vfs else {}
        annotations = {names.REQUEST: request} | ({names.PLACEMENT: placement} if placement else {})
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}], **spec},
        }
        await self._client.request("POST", PODS, msgspec.json.encode(body))

    async def delete(self, name: str) -> None:
        await self._client.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    async def pod(self, name: str) -> Pod:
        return msgspec.json.decode(await self._client.request("GET", f"{PODS}/{name}"), type=Pod)

    async def bound(self, name: str) -> Pod:
        async def found() -> Pod | None:
            pod = await self.pod(name)
            return pod if pod.spec.node_name else None

        return await eventually(found)

    async def going(self, name: str) -> None:
        """Wait until a pod has been deleted."""

        async def found() -> bool | None:
            return True if (await self.pod(name)).metadata.deletion_timestamp is not None else None

        await eventually(found)

    async def event(self, name: str, *texts: str) -> str:
        """Wait for an event about a pod with one of these texts."""

        async def found() -> str | None:
            for path in ("/api/v1/events", "/apis/events.k8s.io/v1/events"):
                items = msgspec.json.decode(await self._client.request("GET", path))["items"]
                for one in items:
                    about, message = (
                        one.get("involvedObject") or one.get("regarding"),
                        one.get("message") or one.get("note"),
                    )
                    if about["name"] == name and any(text in (message or "") for text in texts):
                        return str(message)
            return None

        return await eventually(found)
