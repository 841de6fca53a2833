"""How orders are carried out: how many writes start at once, and what ends with them."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from mooring.kube.client import Client
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Evict, Order, Report
from scheduler.kube.objects import OwnedMetadata, Pod
from scheduler.kube.pod_info import PodInfo
from scheduler.server.evict import delete_victims
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.server.writes import PORTION, WriteResult, Writes
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakePod
from tests.scheduler.group_life import changed_event


class _Client(Client):
    """A client that counts the iterations of the event loop, and in which of them each request was sent."""

    def __init__(self) -> None:
        self.iteration = self.most_tasks = 0
        self.iterations: list[int] = []

    async def request(self, *_: Any, **__: Any) -> bytes:
        self.iterations.append(self.iteration)
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
        return b"{}"

    def count(self) -> None:
        self.iteration += 1
        asyncio.get_running_loop().call_soon(self.count)

    def most_at_once(self) -> int:
        return max(Counter(self.iterations).values())


def _writes(machine: Machine, client: Client, results: list[WriteResult]) -> Writes:
    return Writes(machine, client, ReportWriter(client, "mooring"), results.append, lambda: None)


def _binds(machine: Machine, make_pod: MakePod, count: int) -> list[Order]:
    orders: list[Order] = []
    for number in range(count):
        pod = make_pod(f"p{number}")
        machine.pods(changed_event(pod), 1.0)
        pod_info = machine.pending_pods.pending[pod.metadata.uid].pod_info
        assert isinstance(pod_info, PodInfo)
        orders.append(Bind(pod_info, AssignedPod(pod.metadata.uid, pod.key, "n1", assumed=True), {}, {}))
    return orders


@pytest.mark.parametrize("order", ["bind", "evict"])
async def test_the_writes_of_a_large_group_start_in_portions(machine: Machine, make_pod: MakePod, order: str) -> None:
    """The first at once; no iteration of the event loop starts more than a portion, and later ones wait their turn."""
    client, results = _Client(), list[WriteResult]()
    count = 4 * PORTION + 1
    orders = _binds(machine, make_pod, count)
    if order == "evict":
        orders = [Evict(make_pod(f"e{number}"), "HalfGroup") for number in range(count)]
    writes = _writes(machine, client, results)
    client.count()
    first = client.iteration + 1
    for each in orders:
        writes.put(each, 1.0)
    assert len(writes) == count
    await writes.drain(20.0)
    assert min(client.iterations) == first
    assert client.most_at_once() <= PORTION
    assert len(client.iterations) == count
    assert [result.order for result in results] == orders


async def test_the_victims_of_a_large_group_are_written_some_at_a_time() -> None:
    """As by kube-scheduler: no other write waits for hundreds. Thousands of tasks would start in one iteration."""
    client = _Client()
    client.count()
    victims = tuple(AssignedPod(f"u{number}", f"default/p{number}", "n1") for number in range(100))
    order = DeleteVictims(Pod(OwnedMetadata("high")), "n1", victims)
    assert (await delete_victims(client, order, "mooring")).deleted == victims
    assert (len(client.iterations), client.most_at_once()) == (200, 16)
    assert client.most_tasks < 20


async def test_orders_that_wait_count_as_in_progress(machine: Machine, make_pod: MakePod) -> None:
    """The next pods are not decided meanwhile; a loop that ends abnormally starts no more of them."""
    client, results = _Client(), list[WriteResult]()
    writes = _writes(machine, client, results)
    for order in _binds(machine, make_pod, PORTION + 10):
        writes.put(order, 1.0)
    assert writes.reach(PORTION + 10)
    assert not writes.reach(PORTION + 11)
    writes.cancel()
    assert len(writes) == PORTION
    await writes.drain(20.0)
    assert not writes


async def test_an_order_that_cannot_start_stops_no_other_write(machine: Machine, make_pod: MakePod) -> None:
    """A bug in one of them costs nothing that came before it, and later orders start."""
    client = _Client()
    reports = ReportWriter(client, "mooring")
    loop = Loop(machine, ApiClients(client, client), reports, lambda: 1.0)
    loop.lead()
    orders, report = _binds(machine, make_pod, 3), Report(make_pod("r"), "Unschedulable", "no room")
    machine.pending_pods.delete("uid-1", 1.0)
    with pytest.raises(KeyError, match="uid-1"):
        loop._carry_out([orders[0], report, *orders[1:]])
    assert len(loop.writes) == 1
    assert reports._of_pods.get("default", report.pod.metadata.uid) is report
    loop._carry_out([orders[2]])
    assert len(loop.writes) == 2
    await loop.writes.drain(20.0)
    assert len(client.iterations) == 2
