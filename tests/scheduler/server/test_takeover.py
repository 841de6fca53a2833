"""Two schedulers as processes against one server: whatever happens to the leader, one of them binds, and only one."""

import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.client import Client
from scheduler.kube.objects import Node, Pod
from tests.scheduler.server.process import PATIENCE_S, PODS, Scheduler, scheduler
from tests.scheduler.server.stage import add_node
from tests.support.polling import eventually

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mooring-scheduler"
# The longest that a Binding may be on its way, in seconds.
REQUEST_S = 5.0


class Cluster:
    """A server with one node of many VFs."""

    def __init__(self, client: Client, server: ApiServer, kubeconfig: Path) -> None:
        self.client = client
        self.server = server
        self.kubeconfig = kubeconfig

    async def add_pod(self, name: str) -> None:
        spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}]}
        body = {"metadata": {"name": name, "annotations": {names.REQUEST: "[{}]"}}, "spec": spec}
        await self.client.request("POST", PODS, msgspec.json.encode(body))

    async def pods(self) -> dict[str, Pod]:
        items = msgspec.json.decode(await self.client.request("GET", PODS))["items"]
        return {pod.metadata.name: pod for pod in msgspec.convert(items, list[Pod])}

    async def bound(self, name: str) -> None:
        """Wait until a pod has a node."""

        async def found() -> bool | None:
            return bool((await self.pods())[name].spec.node_name) or None

        await eventually(found, PATIENCE_S)

    async def holder(self) -> str:
        lease: Any = msgspec.json.decode(await self.client.request("GET", LEASE))
        return str(lease["spec"]["holderIdentity"])

    async def another_holder(self, first: str) -> str:
        """Wait until another than ``first`` has the lease."""

        async def found() -> str | None:
            holder = await self.holder()
            return holder if holder not in ("", first) else None

        return await eventually(found, PATIENCE_S)

    async def given(self) -> list[str]:
        texts = [pod.annotations.get(names.ASSIGNMENT) for pod in (await self.pods()).values() if pod.spec.node_name]
        return [vf.pci for text in texts if text for vf in read_assignment(text).vfs]


@pytest.fixture
async def cluster(
    server: ApiServer, client: Client, tmp_path: Path, make_node: MakeNode, make_pf: MakePf
) -> AsyncIterator[Cluster]:
    """Give a cluster with a node; in the end no VF may have been given twice."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig_text())
    cluster = Cluster(client, server, kubeconfig)
    await add_node(cluster.client, make_node("n1", (make_pf(vfs=20),)))
    yield cluster
    given = await cluster.given()
    assert len(given) == len(set(given))


@asynccontextmanager
async def _pair(cluster: Cluster, metrics_addr: str = "") -> AsyncIterator[tuple[Scheduler, Scheduler]]:
    """Run a leader that has bound a pod, and a standby that has listed everything."""
    async with scheduler(cluster.kubeconfig) as leader:
        await cluster.add_pod("before")
        await cluster.bound("before")
        async with scheduler(cluster.kubeconfig, metrics_addr) as standby:
            await standby.saying("listed")
            yield leader, standby


async def test_a_killed_leader_is_replaced_after_its_lease_and_its_last_binding(cluster: Cluster) -> None:
    """No release: the lease expires, the time of a last Binding is waited out, then the standby binds."""
    async with _pair(cluster) as (leader, standby):
        first = await cluster.holder()
        leader.process.kill()
        await cluster.add_pod("after")
        await cluster.another_holder(first)
        await cluster.bound("after")
        await standby.saying("pod bound")
        assert standby.waited_s() >= REQUEST_S
        assert standby.has_said("leading")[0]["took_over"] is True
        relisted = {one["kind"] for one in standby.has_said("listed") if one["leads"]}
        assert {"Node", "Pod"} <= relisted


async def test_a_leader_that_was_halted_sends_nothing_when_it_continues(cluster: Cluster) -> None:
    """Halted with a Binding under way that is to be repeated, it finds another leading, and ends."""
    async with _pair(cluster) as (leader, _):
        first = await cluster.holder()
        # Bindings come back without an answer: the leader repeats them while it may.
        cluster.server.faults.plan(Fault("POST", "/binding$", "answer", times=1000, code=503))
        await cluster.add_pod("pending")
        await eventually(lambda: _refused_once(cluster), PATIENCE_S)
        leader.process.send_signal(signal.SIGSTOP)
        await cluster.another_holder(first)
        cluster.server.faults.planned.clear()
        sent_before = len(leader.has_said("pod bound"))
        leader.process.send_signal(signal.SIGCONT)
        assert await leader.end() == 1
        assert "lease" in leader.has_said("ended")[0]["reason"]
        assert len(leader.has_said("pod bound")) == sent_before
        assert (await cluster.pods())["pending"].spec.node_name is None
        await cluster.bound("pending")


async def _refused_once(cluster: Cluster) -> bool | None:
    return True if sum(fault.times for fault in cluster.server.faults.planned) < 1000 else None


async def test_a_leader_completes_its_bindings_before_it_releases_the_lease(cluster: Cluster) -> None:
    """What it had sent is there when the next one lists; that one need not wait."""
    async with _pair(cluster) as (leader, standby):
        cluster.server.faults.plan(Fault("POST", "/binding$", "delay", delay_s=2.0))
        await cluster.add_pod("slow")
        await eventually(lambda: _taken(cluster), PATIENCE_S)
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.end() == 0
        assert (await cluster.pods())["slow"].spec.node_name == "n1"
        assert [one["pod"] for one in leader.has_said("pod bound")] == ["default/before", "default/slow"]
        await cluster.add_pod("next")
        await cluster.bound("next")
        await standby.saying("pod bound")
        assert standby.waited_s() < REQUEST_S
        assert standby.has_said("leading")[0]["took_over"] is False


async def _taken(cluster: Cluster) -> bool | None:
    return True if not cluster.server.faults.planned else None


def _sum(text: str, metric: str) -> float:
    """Return the sum of a metric's samples in a page."""
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return sum(float(value) for name, _, value in samples if name.partition("{")[0] == metric)


async def test_a_standby_decides_and_reports_nothing(cluster: Cluster) -> None:
    """It only follows: while the leader cannot bind, nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    async with _pair(cluster, address) as (leader, standby), aiohttp.ClientSession() as session:

        async def known() -> tuple[float, float]:
            """Return how many pods the standby knows to be waiting, and how many VFs to be free."""
            async with session.get(f"http://{address}/metrics") as answer:
                text = await answer.text()
            return _sum(text, "scheduler_pending_pods"), _sum(text, "mooring_free_vfs")

        async def knows(pods: int) -> bool | None:
            return (await known())[0] == pods or None

        leader.process.send_signal(signal.SIGSTOP)
        lease = await cluster.client.request("GET", LEASE)
        # A decision about the first would come before the second is taken in. It takes a VF until its Binding has an
        # answer, and a standby sends none.
        for number, name in enumerate(("waiting", "second"), 1):
            await cluster.add_pod(name)
            await eventually(partial(knows, number), PATIENCE_S)
        assert await known() == (2, 19)
        assert (await cluster.pods())["waiting"].spec.node_name is None
        assert await cluster.client.request("GET", LEASE) == lease
        leader.process.send_signal(signal.SIGCONT)
        await cluster.bound("waiting")
        assert standby.has_said("pod bound") == []
