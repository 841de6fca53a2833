"""Two schedulers as processes against one server: whatever happens to the leader, one of them binds, and only one."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest

from bench.served.apiservers import free_ports
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import read_assignment
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import LEASE, Cluster
from tests.scheduler.server.process import Scheduler, replicas
from tests.support.polling import eventually, until

# The longest that a Binding may be on its way, in seconds.
REQUEST_S = 5.0


class Pair(Cluster):
    """A server with one node of many VFs, and two schedulers."""

    def __init__(self, cluster: Cluster, server: ApiServer) -> None:
        super().__init__(cluster.client, cluster.kubeconfig)
        self.server = server

    @asynccontextmanager
    async def run(self, metrics_addr: str = "") -> AsyncIterator[tuple[Scheduler, Scheduler]]:
        """Run a leader that has bound a pod, and a standby."""
        async with replicas(self.kubeconfig, metrics_addr=metrics_addr) as (leader, standby):
            await self.add_pod("before", "[{}]")
            await self.bound("before")
            yield leader, standby

    async def holder(self) -> str:
        return str((await self.call("GET", LEASE))["spec"]["holderIdentity"])

    async def another_holder(self, first: str) -> None:
        """Wait until another than ``first`` has the lease."""

        async def found() -> bool:
            return await self.holder() not in ("", first)

        await eventually(found)


@pytest.fixture
async def pair(cluster: Cluster, server: ApiServer, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Pair]:
    """Give a cluster with a node; in the end no VF may have been given twice."""
    await cluster.add_node(make_node("n1", (make_pf(vfs=20),)))
    yield Pair(cluster, server)
    texts = [pod.annotations[names.ASSIGNMENT] for pod in (await cluster.pods()).values() if pod.spec.node_name]
    given = [vf.pci for text in texts for vf in read_assignment(text).vfs]
    assert len(given) == len(set(given))


async def test_a_killed_leader_is_replaced_after_its_lease_and_its_last_binding(pair: Pair) -> None:
    """No release: the lease expires, the time of a last Binding is waited out, then the standby binds."""
    async with pair.run() as (leader, standby):
        first = await pair.holder()
        leader.process.kill()
        await pair.add_pod("after", "[{}]")
        await pair.another_holder(first)
        await pair.bound("after")
        await standby.saying("pod bound")
        assert standby.waited_s() >= REQUEST_S
        assert standby.has_said("leading")[0]["took_over"] is True
        relisted = {one["kind"] for one in standby.has_said("listed") if one["leads"]}
        assert {"Node", "Pod"} <= relisted


async def test_a_leader_that_was_halted_sends_nothing_when_it_continues(pair: Pair) -> None:
    """Halted with a Binding under way that is to be repeated, it finds another leading, and ends."""
    async with pair.run() as (leader, _):
        first = await pair.holder()
        # Bindings come back without an answer: the leader repeats them while it may.
        pair.server.faults.plan(Fault("POST", "/binding$", "answer", times=1000, code=503))
        await pair.add_pod("pending", "[{}]")
        await until(lambda: sum(fault.times for fault in pair.server.faults.planned) < 1000)
        leader.process.send_signal(signal.SIGSTOP)
        await pair.another_holder(first)
        pair.server.faults.planned.clear()
        sent_before = len(leader.has_said("pod bound"))
        leader.process.send_signal(signal.SIGCONT)
        assert await leader.end() == 1
        assert "lease" in leader.has_said("ended")[0]["reason"]
        assert len(leader.has_said("pod bound")) == sent_before
        assert not await pair.is_bound("pending")
        await pair.bound("pending")


async def test_a_leader_completes_its_bindings_before_it_releases_the_lease(pair: Pair) -> None:
    """What it had sent is there when the next one lists; that one need not wait."""
    async with pair.run() as (leader, standby):
        pair.server.faults.plan(Fault("POST", "/binding$", "delay", delay_s=2.0))
        await pair.add_pod("slow", "[{}]")
        await until(lambda: not pair.server.faults.planned)
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.end() == 0
        assert await pair.is_bound("slow")
        assert [one["pod"] for one in leader.has_said("pod bound")] == ["default/before", "default/slow"]
        await pair.add_pod("next", "[{}]")
        await pair.bound("next")
        await standby.saying("pod bound")
        assert standby.waited_s() < REQUEST_S
        assert standby.has_said("leading")[0]["took_over"] is False


def _sum(text: str, metric: str) -> float:
    """Return the sum of a metric's samples in a page."""
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return sum(float(value) for name, _, value in samples if name.partition("{")[0] == metric)


async def test_a_standby_decides_and_reports_nothing(pair: Pair) -> None:
    """It only follows: while the leader cannot bind, nobody does."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with pair.run(address) as (leader, standby), aiohttp.ClientSession() as session:

        async def known() -> tuple[float, float]:
            """Return how many pods the standby knows to be waiting, and how many VFs to be free."""
            async with session.get(f"http://{address}/metrics") as answer:
                text = await answer.text()
            return _sum(text, "scheduler_pending_pods"), _sum(text, "mooring_free_vfs")

        async def knows(pods: int) -> bool:
            return await known() == (pods, 19)

        leader.process.send_signal(signal.SIGSTOP)
        lease = await pair.call("GET", LEASE)
        # A decision about the first would come before the second is taken in. It takes a VF until its Binding has an
        # answer, and a standby sends none.
        for number, name in enumerate(("waiting", "second"), 1):
            await pair.add_pod(name, "[{}]")
            await eventually(partial(knows, number))
        assert await known() == (2, 19)
        assert not await pair.is_bound("waiting")
        assert await pair.call("GET", LEASE) == lease
        leader.process.send_signal(signal.SIGCONT)
        await pair.bound("waiting")
        assert standby.has_said("pod bound") == []
