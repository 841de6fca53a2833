"""A loop beside an API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.failures import Status
from scheduler.server.leader import LeaseUnsure
from scheduler.server.loop import Loop
from scheduler.state.machine import Machine
from tests.scheduler.server.cluster import Cluster, following
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
        self.loop: Loop

    def guard(self) -> None:
        if not self.leads:
            self.unsent += 1
            raise LeaseUnsure(Status(0, message="the lease is over"), 0.1)

    def may_decide(self) -> bool:
        return self.leads

    @asynccontextmanager
    async def run(self) -> AsyncIterator["asyncio.Task[bool]"]:
        """Run the loop; it must end after `stop`."""
        client = Client(Access(self.server.url), timeout_s=2.0, guard=self.guard)
        async with client as self.leaders:
            loop = following(self.machine, self.client, self.leaders, lambda: self.now, self.may_decide)
            async with loop as (self.loop, running):
                yield running

    @asynccontextmanager
    async def lead(self) -> AsyncIterator["asyncio.Task[bool]"]:
        """Run the loop, and let it lead."""
        async with self.run() as running:
            self.loop.lead()
            yield running

    async def add_seen_pod(self, name: str, request: str | None = None, **spec: Any) -> str:
        """Add a pod, and wait until the machine knows it; return its uid."""
        uid = (await self.add_pod(name, request, **spec)).metadata.uid
        await until(lambda: uid in self.machine.queue.uids() or self.machine.cache.assigned(uid) is not None)
        return uid

    async def reasons(self, pod: str) -> list[str]:
        """Return the reasons of the events about a pod."""
        return [event["reason"] for event in await self.events(pod)]
