"""Pods as the kubelet stand-in reads them, and a node to run them on: API server, fake runtime, kubelet."""

import asyncio
import json
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.apiserver.serve import ApiServer
from devcluster.kubelet.agent import Agent
from devcluster.kubelet.api import Api
from devcluster.kubelet.plan.node import Machine
from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.runtime import Runtime
from devcluster.kubelet.steps import Edge
from devcluster.kubelet.volumes import Volumes
from devcluster.runtime import mounts
from devcluster.runtime.chain import Chain
from devcluster.runtime.server import serving
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import NotFound
from tests.support.polling import eventually

NODE = "n1"
PODS = "/api/v1/namespaces/default/pods"
# Gives an address; `behaviour` may first do something else, as the test likes.
_PLUGIN = """\
#!/bin/sh
here=$(dirname "$0")
cat > /dev/null
echo "$CNI_COMMAND ${CNI_NETNS:+netns}" >> "$here/calls"
. "$here/behaviour"
printf '%s' '{"cniVersion":"1.0.0","ips":[{"address":"10.9.8.7/24"}]}'
"""


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that sleeps on the node."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
    base = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]}
    metadata = {"name": name, "namespace": "default", "annotations": {"about": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": base | spec}


@pytest.fixture
def make_manifest() -> Callable[..., dict[str, Any]]:
    return manifest


@pytest.fixture
def make_pod() -> Callable[..., Pod]:
    """Decode a pod as the watch does; ``metadata`` and ``status`` are added to it."""

    def make(metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Pod:
        document = manifest("p1", **spec)
        document["metadata"] |= {"uid": "u1"} | (metadata or {})
        return msgspec.json.decode(json.dumps(document | {"status": status or {}}), type=Pod)

    return make


@dataclass(slots=True)
class Cluster:
    """A node under test, seen from the API server and from the runtime."""

    client: Client
    runtime: Runtime
    plugins: Path
    start_kubelet: Callable[[], Awaitable[None]]
    stop_kubelet: Callable[[], Awaitable[None]]
    server: ApiServer
    endpoint: str
    uids: dict[str, str] = field(default_factory=dict)

    async def create(self, document: dict[str, Any]) -> None:
        name = document["metadata"]["name"]
        created = await self.client.request("POST", PODS, json.dumps(document).encode())
        self.uids[name] = json.loads(created)["metadata"]["uid"]

    async def delete(self, name: str, **options: Any) -> None:
        await self.client.request("DELETE", f"{PODS}/{name}", json.dumps(options).encode())

    async def get(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads(await self.client.request("GET", f"{PODS}/{name}")))
        except NotFound:
            return None

    async def annotate(self, name: str, **annotations: str) -> None:
        patch = json.dumps({"metadata": {"annotations": annotations}}).encode()
        await self.client.request("PATCH", f"{PODS}/{name}", patch, content_type=MERGE_PATCH)

    async def environment(self, name: str) -> dict[str, str]:
        """Return the variables of the pod's only container, as the runtime received them."""
        (container,) = (await self.runtime.view(self.uids[name])).containers
        async with grpc.aio.insecure_channel(self.endpoint) as channel:
            request = cri.ContainerStatusRequest(container_id=container.id, verbose=True)
            info = (await cri_grpc.RuntimeServiceStub(channel).ContainerStatus(request)).info["info"]
        return {variable["key"]: variable["value"] for variable in json.loads(info)["config"]["envs"]}

    async def eventually(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        return await eventually(condition)

    async def has_called(self, call: str) -> None:
        """Wait until the CNI plugin was called that way."""

        async def called() -> bool:
            return call in self.calls()

        await eventually(called)

    async def reaches(self, name: str, phase: str) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            found = await self.get(name)
            return found if found and found["status"]["phase"] == phase else None

        return dict(await eventually(there))

    async def is_gone(self, name: str) -> None:
        """Wait until neither the API server nor the runtime has the pod."""

        async def gone() -> bool:
            return await self.get(name) is None and self.uids[name] not in await self.runtime.pods()

        await eventually(gone)

    async def events(self, reason: str) -> list[dict[str, Any]]:
        listed = json.loads(await self.client.request("GET", "/api/v1/namespaces/default/events"))
        return [event for event in listed["items"] if event["reason"] == reason]

    async def tells(self, reason: str) -> list[dict[str, Any]]:
        """Wait for events with that reason and return them."""
        return list(await eventually(lambda: self.events(reason)))

    def behave(self, text: str) -> None:
        (self.plugins / "behaviour").write_text(text)

    def calls(self) -> list[str]:
        path = self.plugins / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A node whose CNI chain is one small script; all of it is ended, and must leave no mount."""
    plugins, conf = tmp_path / "bin", tmp_path / "conf"
    plugins.mkdir()
    conf.mkdir()
    (plugins / "loopback").symlink_to("/usr/lib/cni/loopback")
    plugin = plugins / "scripted"
    plugin.write_text(_PLUGIN)
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    (plugins / "behaviour").write_text("")
    conflist = {"cniVersion": "1.0.0", "name": secrets.token_hex(4), "plugins": [{"type": "scripted"}]}
    (conf / "10.conflist").write_text(json.dumps(conflist))
    async with _cluster(tmp_path, Chain(plugins, conf, {"PATH": os.environ["PATH"]})) as found:
        yield found
    assert mounts.mounts_below(tmp_path) == []


@asynccontextmanager
async def _cluster(folder: Path, chain: Chain) -> AsyncIterator[Cluster]:
    socket = folder / "cri.sock"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer())
        (folder / "kubeconfig").write_text(server.kubeconfig_text())
        await stack.enter_async_context(serving(socket, folder / "state", chain, []))
        client = await stack.enter_async_context(Client(load_access(str(folder / "kubeconfig"))))
        runtime = await stack.enter_async_context(Runtime(f"unix://{socket}"))
        machine = Machine(NODE, "127.0.0.1", "boot", 4, 1024, 1024, 110, "6.1", "small://1")
        volumes = Volumes(client, folder / "pods", time.time)
        edge = Edge(Api(client, NODE), runtime, time.time, "127.0.0.1", asyncio.Semaphore(16), volumes)
        running: list[asyncio.Task[None]] = []

        async def start() -> None:
            running.append(asyncio.create_task(Agent(machine, edge).run()))

        async def stop() -> None:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            running.clear()

        stack.push_async_callback(stop)
        await start()
        yield Cluster(client, runtime, chain.bin_folder, start, stop, server, f"unix://{socket}")
