"""A loop beside an API server, and the extender over HTTP with kube-scheduler's part, played by the test."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from devcluster.apiserver.serve import ApiServer
from devcluster.processes import free_ports
from mooring import names
from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.failures import Status
from scheduler.kube.objects import Pod
from scheduler.server.http.extender_handlers import ExtenderHandlers
from scheduler.server.http.extender_server import serve
from scheduler.server.leader import LeaseUnsure
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine
from tests.scheduler.server.cluster import Cluster
from tests.support.polling import until


class Stage(Cluster):
    """A server, a loop, and the time that the loop sees."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        super().__init__(client)
        self.server = server
        self.now = 1000.0
        self.leads = True
        # Requests that the guard has kept from being sent.
        self.unsent = 0
        self.machine = Machine("mooring")

    def guard(self) -> None:
        if not self.leads:
            self.unsent += 1
            raise LeaseUnsure(Status(0, message="the lease is over"), 0.1)

    def clock(self) -> float:
        return self.now

    def may_decide(self) -> bool:
        return self.leads

    @asynccontextmanager
    async def run(self, *, until_listed: bool = True) -> AsyncIterator[None]:
        """Run the loop; it must end once it is stopped, and what the machine keeps is checked then."""
        async with Client(Access(self.server.url), timeout_s=2.0, guard=self.guard) as leaders:
            self.clients, reports = ApiClients(self.client, leaders), ReportWriter(self.client, "mooring")
            self.loop = Loop(self.machine, self.clients, reports, self.clock, self.may_decide)
            self.running = asyncio.create_task(self.loop.run())
            try:
                if until_listed:
                    await self.loop.reflectors.ready.wait()
                yield
            finally:
                self.loop.stop()
                async with asyncio.timeout(90):
                    await self.running
                self.machine.check()

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[None]:
        """Run the loop, and let it lead."""
        async with self.run():
            self.loop.lead()
            yield

    async def add_seen_pod(self, name: str, request: str | None = None, **spec: Any) -> str:
        """Add a pod, and wait until the machine knows it; return its uid."""
        uid = (await self.add_pod(name, request, **spec)).metadata.uid
        await until(lambda: uid in self.machine.queue.uids() or self.machine.cache.assigned(uid) is not None)
        return uid

    async def reasons(self, pod: str) -> list[str]:
        """Return the reasons of the events about a pod."""
        return [event["reason"] for event in await self.events(pod)]


class ExtenderStage(Stage):
    """A server, a scheduler's loop and its handlers, and kube-scheduler's part."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        super().__init__(server, client)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"

    def may_decide(self) -> bool:
        """Return True: a lease that is lost shows at the next write only."""
        return True

    @asynccontextmanager
    async def answering(self, *, leads: bool = True, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        async with self.run(), aiohttp.ClientSession() as self._session:
            handlers = ExtenderHandlers(self.machine.extender_pods, self.loop, self.clients, self.clock)
            async with serve(self.address, handlers, tls):
                if leads:
                    await self.lead_now()
                yield

    async def lead_now(self) -> None:
        self.loop.lead()
        await until(lambda: not self.loop.standing_by())

    async def ask(self, verb: str, body: Any) -> tuple[int, Any]:
        """Ask as kube-scheduler does; return the status and the answer."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self._session.post(f"http://{self.address}/scheduler/{verb}", data=data) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def ask_bind(self, pod: Pod, node: str = "n1") -> str:
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

    async def preempted(self, pod: Pod, victims: dict[str, str]) -> set[str]:
        """Offer a victim on each node; return the nodes that are left."""
        offered = {node: {"Pods": [{"UID": uid}], "NumPDBViolations": 0} for node, uid in victims.items()}
        status, answer = await self.ask("preempt", {"Pod": msgspec.to_builtins(pod), "NodeNameToMetaVictims": offered})
        assert status == 200
        return set(answer["NodeNameToMetaVictims"])

    async def request(self, name: str, request: str = "[{}]", placement: str = "", **spec: Any) -> Pod:
        """Add a pod of kube-scheduler's."""
        annotations = {names.PLACEMENT: placement} if placement else {}
        return await self.add_pod(name, request, annotations, **{"schedulerName": "default-scheduler"} | spec)

    def is_free(self, uid: str) -> bool:
        return self.machine.cache.assigned(uid) is None
