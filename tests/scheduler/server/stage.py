"""A loop beside an API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from devcluster.apiserver.serve import ApiServer
from mooring.annotations.inventory import Pf
from mooring.kube.access import Access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Status
from scheduler.kube.objects import Node, Pod
from scheduler.server.leader import LeaseUnsure
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine
from tests.support.polling import eventually

PODS = "/api/v1/namespaces/default/pods"


MakePf = Callable[..., Pf]


MakeNode = Callable[..., Node]


async def add_node(client: Client, node: Node) -> None:
    """Create a node with its annotations, and give it what its kubelet would report, without taints."""
    status = msgspec.to_builtins(node.status)
    metadata = {"name": node.metadata.name, "annotations": node.metadata.annotations}
    await client.request("POST", "/api/v1/nodes", msgspec.json.encode({"metadata": metadata}))
    path = f"/api/v1/nodes/{node.metadata.name}"
    kept = {name: status[name] for name in ("allocatable", "conditions", "nodeInfo")}
    for where, patch in ((path, {"spec": {"taints": None}}), (f"{path}/status", {"status": kept})):
        await client.request("PATCH", where, msgspec.json.encode(patch), MERGE_PATCH)


class Stage:
    """A server, a loop, and the time that the loop sees."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.now = 1000.0
        self.leads = True
        # Requests that the guard has kept from being sent.
        self.unsent = 0
        self.machine = Machine("mooring")
        self.loop: Loop

    def guard(self) -> None:
        if not self.leads:
            self.unsent += 1
            raise LeaseUnsure(Status(0, message="the lease is over"), 0.1)

    @asynccontextmanager
    async def run(self) -> AsyncIterator["asyncio.Task[bool]"]:
        """Run the loop; it must end after `stop`."""
        async with Client(Access(self.server.url), timeout_s=2.0, guard=self.guard) as leaders:
            writer = ReportWriter(self.client, "mooring")
            clients = ApiClients(self.client, leaders)
            self.loop = Loop(self.machine, clients, writer, lambda: self.now, lambda: self.leads)
            running = asyncio.create_task(self.loop.run())
            try:
                yield running
            finally:
                self.loop.stop()
                async with asyncio.timeout(90):
                    await running
                self.machine.check()

    async def add_node(self, node: Node) -> None:
        await add_node(self.client, node)

    async def add_pod(
        self, name: str, metadata: dict[str, Any] | None = None, namespace: str = "default", **spec: Any
    ) -> Pod:
        containers = [{"name": "c", "image": "i"}]
        body = {
            "metadata": {"name": name} | (metadata or {}),
            "spec": {"schedulerName": "mooring", "containers": containers} | spec,
        }
        path = f"/api/v1/namespaces/{namespace}/pods"
        return msgspec.json.decode(await self.client.request("POST", path, msgspec.json.encode(body)), type=Pod)

    async def pod(self, name: str) -> Pod | None:
        items = msgspec.json.decode(await self.client.request("GET", PODS))["items"]
        return next((pod for pod in msgspec.convert(items, list[Pod]) if pod.metadata.name == name), None)

    async def is_bound(self, name: str) -> bool:
        pod = await self.pod(name)
        return pod is not None and bool(pod.spec.node_name)

    async def events(self, pod: str) -> list[tuple[str, str]]:
        items = json.loads(await self.client.request("GET", "/api/v1/events"))["items"]
        return [(one["reason"], one["message"]) for one in items if one["involvedObject"]["name"] == pod]

    async def seen(self, uid: str) -> None:
        """Wait until the machine knows a pod."""

        async def known() -> bool:
            return uid in self.machine.queue.uids() or self.machine.cache.assigned(uid) is not None

        await eventually(known)
