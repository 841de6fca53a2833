"""The extender over HTTP with a loop at work beside it, and kube-scheduler's part, played by the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from bench.served.apiservers import free_ports
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.inventory import Pf
from mooring.kube.access import Access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Status
from scheduler.kube.objects import Node, Pod
from scheduler.server.http import extender_server as servers
from scheduler.server.http.extender_handlers import ExtenderHandlers
from scheduler.server.leader import LeaseUnsure
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine
from tests.support.polling import eventually

MakeNode = Callable[..., Node]
PODS = "/api/v1/namespaces/default/pods"


class Stage:
    """A server, a scheduler's loop and its handlers, and kube-scheduler's part."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self._server = server
        self._client = client
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        self.machine = Machine("mooring")
        self.loop: Loop
        self.holds_lease = True

    def _guard(self) -> None:
        if not self.holds_lease:
            raise LeaseUnsure(Status(0, message="the lease is over"), 0.1)

    @asynccontextmanager
    async def run(self, *, leads: bool = True) -> AsyncIterator[None]:
        ours = Client(Access(self._server.url), timeout_s=1.0, guard=self._guard)
        async with ours as leaders, aiohttp.ClientSession() as self._session:
            clients = ApiClients(self._client, leaders)
            self.loop = Loop(self.machine, clients, ReportWriter(self._client, "mooring"), lambda: 1000.0)
            running = asyncio.create_task(self.loop.run())
            try:
                async with servers.serve(
                    self._address, ExtenderHandlers(self.machine.extender_pods, self.loop, clients, lambda: 1000.0)
                ):
                    if leads:
                        self.loop.lead()
                        await eventually(self._answers)
                    yield
            finally:
                self.loop.stop()
                async with asyncio.timeout(90):
                    await running
                self.machine.check()

    async def _answers(self) -> bool:
        return not self.loop.standing_by()

    async def ask(self, verb: str, body: Any) -> tuple[int, Any]:
        """Ask as kube-scheduler does; return the status and the answer."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self._session.post(f"http://{self._address}/scheduler/{verb}", data=data) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def bind(self, pod: Pod, node: str = "n1") -> str:
        meta = pod.metadata
        binding = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        status, answer = await self.ask("bind", binding)
        assert status == 200
        error: str = answer["Error"]
        return error

    async def refused(self, verb: str, pod: Pod, *nodes: str) -> dict[str, str]:
        status, answer = await self.ask(verb, {"Pod": msgspec.to_builtins(pod), "NodeNames": nodes})
        assert (status, answer["Error"]) == (200, "")
        refused: dict[str, str] = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        assert set(answer["NodeNames"]) == set(nodes) - refused.keys()
        return refused

    async def add_node(self, name: str, *pfs: Pf, make: MakeNode) -> None:
        document = msgspec.to_builtins(make(name, pfs))
        metadata = {"name": name, "annotations": document["metadata"]["annotations"]}
        await self._client.request("POST", "/api/v1/nodes", msgspec.json.encode({"metadata": metadata}))
        status = {key: document["status"][key] for key in ("allocatable", "conditions", "nodeInfo")}
        patch = msgspec.json.encode({"status": status})
        await self._client.request("PATCH", f"/api/v1/nodes/{name}/status", patch, MERGE_PATCH)

    async def add_pod(self, name: str, request: str = "[{}]", placement: str = "", **spec: Any) -> Pod:
        annotations = {names.REQUEST: request} | ({names.PLACEMENT: placement} if placement else {})
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i"}]} | spec,
        }
        return msgspec.json.decode(await self._client.request("POST", PODS, msgspec.json.encode(body)), type=Pod)

    async def pod(self, name: str) -> Pod:
        return msgspec.json.decode(await self._client.request("GET", f"{PODS}/{name}"), type=Pod)

    async def delete(self, name: str) -> None:
        await self._client.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    def is_free(self, uid: str) -> bool:
        return self.machine.cache.assigned(uid) is None
