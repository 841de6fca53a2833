"""Two schedulers as processes against one server: whatever happens to the leader, one of them binds, and only one."""

import signal
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from devcluster.processes import free_ports
from tests.scheduler.server.cluster import LEASE, Cluster, all_given_vfs, when
from tests.scheduler.server.process import Scheduler, page, replicas
from tests.support.polling import until

# The longest that a Binding may be on its way, in seconds.
REQUEST_S = 5.0


class Pair(Cluster):
    """A cluster with one node of many VFs; a leader that has bound a pod; a standby that serves metrics."""

    leader: Scheduler
    standby: Scheduler
    address: str

    async def holder(self) -> str:
        return str((await self.call("GET", LEASE))["spec"]["holderIdentity"])

    async def metric(self, name: str) -> float:
        """Return the sum of a metric's samples, as the standby has them."""
        families = text_string_to_metric_families(await page(self.address, "/metrics"))
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)


@pytest.fixture
async def pair(cluster: Cluster) -> AsyncIterator[Pair]:
    """In the end no VF may have been given twice."""
    pair = Pair(cluster.client, cluster.kubeconfig)
    pair.address = f"127.0.0.1:{free_ports(1)[0]}"
    await pair.add_rdma_node("n1", vfs=20)
    async with replicas(pair, metrics_addr=pair.address) as (pair.leader, pair.standby):
        await pair.add_pod("before", "[{}]")
        await pair.bound("before")
        yield pair
    all_given_vfs(await pair.pods())


async def test_a_killed_leader_is_replaced_after_its_lease_and_its_last_binding(pair: Pair) -> None:
    """No release: the lease expires, the time of a last Binding is waited out, then the standby binds."""
    first = await pair.holder()
    pair.leader.process.kill()
    await pair.add_pod("after", "[{}]")
    await when(pair.holder, lambda holder: holder not in ("", first))
    await pair.bound("after")
    await pair.standby.until_logged("pod bound")
    assert pair.standby.waited_s() >= REQUEST_S
    assert pair.standby.logged("leading")[0]["took_over"] is True
    assert {"Node", "Pod"} <= {line["kind"] for line in pair.standby.logged("listed") if line["leads"]}


async def test_a_leader_that_was_halted_sends_nothing_when_it_continues(pair: Pair, server: ApiServer) -> None:
    """Halted with a Binding under way that is to be repeated, it finds another leading, and ends.

    Until the lease has expired, the standby only follows, and decides nothing.
    """
    first = await pair.holder()
    # Bindings come back without an answer: the leader repeats them while it may.
    server.faults.plan(Fault("POST", "/binding$", "answer", times=1000, code=503))
    await pair.add_pod("pending", "[{}]")
    await until(lambda: sum(fault.times for fault in server.faults.planned) < 1000)
    pair.leader.process.send_signal(signal.SIGSTOP)
    lease = await pair.call("GET", LEASE)
    # A decision about the first pod would come before the second is taken in. It takes a VF until its Binding has an
    # answer.
    await pair.add_pod("second", "[{}]")
    await when(lambda: pair.metric("scheduler_pending_pods"), (2.0).__eq__)
    assert await pair.metric("mooring_free_vfs") == 19
    assert await pair.call("GET", LEASE) == lease
    assert not pair.standby.logged("leading")
    await when(pair.holder, lambda holder: holder not in ("", first))
    server.faults.planned.clear()
    pair.leader.process.send_signal(signal.SIGCONT)
    assert await pair.leader.end() == 1
    assert "lease" in pair.leader.logged("ended")[0]["reason"]
    assert [line["pod"] for line in pair.leader.logged("pod bound")] == ["default/before"]
    assert not await pair.is_bound("pending")
    await pair.bound("pending", "second")


async def test_a_leader_completes_its_bindings_before_it_releases_the_lease(pair: Pair, server: ApiServer) -> None:
    """What it had sent is there when the next one lists, with its event; that one need not wait."""
    server.faults.plan(Fault("POST", "/binding$", "delay", delay_s=2.0))
    await pair.add_pod("slow", "[{}]")
    await until(lambda: not server.faults.planned)
    pair.leader.process.send_signal(signal.SIGTERM)
    assert await pair.leader.end() == 0
    assert await pair.is_bound("slow")
    assert [event["reason"] for event in await pair.events("slow")] == ["Scheduled"]
    assert [line["pod"] for line in pair.leader.logged("pod bound")] == ["default/before", "default/slow"]
    await pair.add_pod("next", "[{}]")
    await pair.bound("next")
    await pair.standby.until_logged("pod bound")
    assert pair.standby.waited_s() < REQUEST_S
    assert pair.standby.logged("leading")[0]["took_over"] is False
