"""`connectivity test`: what is measured, the pods that are made, and what remains of them."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from cli.plugin.connectivity.plan import Plan, PlanError, PodOptions, Said, client_pod, make_plan, read_log, report
from cli.plugin.reports.use import uses
from mooring.annotations.inventory import Pf
from tests.cli.plugin.cluster import Json, Served, as_nodes, as_pods, bound, given, node, pf

# A program in the place of perftest's: it serves once, or counts messages, and gives no rate, as on a busy CPU.
PERFTEST = """#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = -p ] && port=$2; shift; done
case $1 in
  --report_gbits) sleep 0.2 ;;
  *) [ $port != 18516 ] || { echo 'Failed to modify QP to RTR'; exit 1; }
     echo ' 65536  185986  0.00  0.00  0.000000' ;;
esac
"""


def rails(*networks: str, vfs: int = 4, **fields: Any) -> list[Pf]:
    return [pf(number, vfs=vfs, network=network, **fields) for number, network in enumerate(networks)]


def test_the_two_nodes_that_share_most_rails_are_measured_each_rail_with_itself() -> None:
    """Rails are in natural order; a PF that is down, or without a free VF, is none."""
    full = rails("rail10", "rail2", vfs=1)
    nodes = as_nodes(
        node("n1", rails("rail2", up=False)),
        node("n2", full),
        node("n10", rails("rail2", "rail10", "rail1")),
        node("n9", rails("rail10", "rail2")),
        node("n3", rails("rail2", "rail10"), ready=False),
    )
    plan = make_plan(uses(nodes, []), (), ())
    assert plan == Plan(("n2", "n9"), ("rail2", "rail10"), ((0, 0), (1, 1)))
    taken = as_pods(bound("a", "n2", (full[0], 0, 0)))
    assert make_plan(uses(nodes, taken), (), ()) == Plan(("n9", "n10"), ("rail2", "rail10"), ((0, 0), (1, 1)))
    across = make_plan(uses(nodes, []), ("n10", "n2"), ("rail10", "rail2"), across=True)
    assert across == Plan(("n10", "n2"), ("rail10", "rail2"), ((0, 0), (0, 1), (1, 0), (1, 1)))


@pytest.mark.parametrize(
    ("nodes", "networks", "why"),
    [
        (("n1", "n7"), (), "node 'n7' does not exist"),
        (("n1",), (), "--nodes has one node, 'n1': a test needs two"),
        (("n1", "n2"), (), "no two nodes of those named have a free VF on the same networks"),
        ((), ("rail9",), "no two nodes have a free VF of networks rail9 on the same networks"),
    ],
)
def test_what_cannot_be_measured_is_said(nodes: Sequence[str], networks: Sequence[str], why: str) -> None:
    """Nothing is created then."""
    listed = as_nodes(node("n1", rails("rail0")), node("n2", rails("rail1")), node("n3", rails("rail1")))
    with pytest.raises(PlanError) as refused:
        make_plan(uses(listed, []), nodes, networks)
    assert str(refused.value) == why


def test_a_pod_asks_for_one_vf_a_rail_in_order_on_its_node() -> None:
    """The scheduler decides as for any pod; only the node is given."""
    plan = Plan(("n1", "n2"), ("rail1", "rail0"), ((0, 0), (1, 1)))
    made = client_pod(plan, PodOptions("image", 5, "mooring"), "10.0.0.1")
    assert made["metadata"]["annotations"] == {"mooring.dev/interfaces": '[{"network":"rail1"},{"network":"rail0"}]'}
    terms = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert terms == {"nodeSelectorTerms": [{"matchFields": [here]}]}
    environment = {one["name"]: one["value"] for one in made["spec"]["containers"][0]["env"]}
    assert environment == {"PORT": "18515", "SECONDS_EACH": "5", "SERVER": "10.0.0.1", "PAIRS": "0:0 1:1"}


def test_a_pair_without_a_result_makes_the_status_1() -> None:
    """Lines that a program adds to the log are passed over."""
    said = read_log(
        "warning: \tx\nmooring-connectivity\tmeasured\t0:0\t97.51\nmooring-connectivity\tfailed\t1:1\tno way\n"
    )
    assert said == Said(
        is_ready=False, is_done=False, fault="", rates_gbps={(0, 0): 97.51}, failures={(1, 1): "no way"}
    )
    answer = report(Plan(("n1", "n2"), ("a", "b"), ((0, 0), (1, 1), (0, 1))), said)
    assert answer.status == 1
    assert [[cell.text for cell in row] for row in answer.tables[0].rows] == [
        ["a", "a", "97.51", "measured"],
        ["b", "b", "-", "no way"],
        ["a", "b", "-", "not measured"],
    ]
    assert report(Plan(("n1", "n2"), ("a",), ((0, 0),)), said).status == 0


class Kubelet:
    """In the place of scheduler and kubelets: it binds pods and runs their scripts with a stand-in for perftest."""

    def __init__(self, served: Served, folder: Path, devices: str) -> None:
        self._served = served
        self._devices = devices
        self._bin = folder / "bin"
        self._bin.mkdir()
        (self._bin / "ib_write_bw").write_text(PERFTEST)
        (self._bin / "ib_write_bw").chmod(0o755)
        self._folder = folder
        self._running: dict[str, Process] = {}
        self.seen: list[str] = []

    async def run(self) -> None:
        """Start each pod that appears, until cancelled."""
        while True:
            for pod in (await self._pods())["items"]:
                if pod["metadata"]["name"] not in self._running:
                    await self._start(pod)
            await asyncio.sleep(0.05)

    async def _pods(self) -> Json:
        found: Json = msgspec.json.decode(await self._served.client.request("GET", "/api/v1/namespaces/default/pods"))
        return found

    async def _start(self, pod: Json) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        self.seen.append(name)
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (on,) = terms[0]["matchFields"][0]["values"]
        assignment = given(pod["metadata"]["uid"], on, (pf(0), 0, 0), (pf(1), 0, 0))
        about = {"name": name, "annotations": {"mooring.dev/assignment": assignment}}
        path = f"/api/v1/namespaces/default/pods/{name}"
        await self._served.post(f"{path}/binding", {"metadata": about, "target": {"kind": "Node", "name": on}})
        (container,) = spec["containers"]
        environment = {one["name"]: one["value"] for one in container["env"]}
        environment |= {"PATH": f"{self._bin}:{os.environ['PATH']}", "NCCL_IB_HCA": self._devices}
        with (self._folder / name).open("wb") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *container["command"], env=environment, stdout=log, stderr=DEVNULL, start_new_session=True
            )
        await self._served.patch(f"{path}/status", {"status": {"phase": "Running", "podIP": "127.0.0.1"}})

    async def log(self, request: web.Request) -> web.Response:
        """Answer as a kubelet does to the API server."""
        return web.Response(text=(self._folder / request.match_info["pod"]).read_text())

    async def end(self) -> None:
        for one in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            await one.wait()


@asynccontextmanager
async def kubelet(served: Served, folder: Path, devices: str = "=mlx5_0,mlx5_1") -> AsyncIterator[Kubelet]:
    """Serve two nodes with two rails each."""
    running = Kubelet(served, folder, devices)
    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", running.log)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for name in ("n1", "n2"):
        document = node(name, rails("rail0", "rail1"))
        document["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
        document["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": runner.addresses[0][1]}}
        await served.add_node(document)
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        task.cancel()
        # It may be starting a process, which ends with it.
        await asyncio.wait([task])
        await running.end()
        await runner.cleanup()


async def test_two_pods_measure_the_rails_and_are_deleted(served: Served, tmp_path: Path) -> None:
    """One rail is measured, the other one fails: the status is 1, and both pods are being deleted."""
    async with kubelet(served, tmp_path) as running:
        status, out, err = await served.run(
            "connectivity", "test", "--image", "perftest", "--seconds", "1", "-o", "json"
        )
    assert (status, out != "") == (1, True), err
    found = json.loads(out)
    assert (found["kind"], found["nodes"]) == ("MooringConnectivity", ["n1", "n2"])
    assert found["items"] == [
        {"from": "rail0", "to": "rail0", "gbps": 97.51, "fault": ""},
        {"from": "rail1", "to": "rail1", "gbps": None, "fault": "Failed to modify QP to RTR"},
    ]
    assert "measured 2 of 2 pairs of rails" in err
    server, client = running.seen
    assert server.startswith("mooring-connectivity-server-")
    assert client.startswith("mooring-connectivity-client-")
    listed: Json = msgspec.json.decode(await served.client.request("GET", "/api/v1/namespaces/default/pods"))
    assert all(one["metadata"].get("deletionTimestamp") for one in listed["items"])


async def test_a_pod_that_does_not_start_is_named_with_the_reason_and_deleted(served: Served) -> None:
    """Nobody schedules it here."""
    for name in ("n1", "n2"):
        await served.add_node(node(name, rails("rail0")))
    status, out, err = await served.run("connectivity", "test", "--image", "perftest", "--start", "0.5")
    assert (status, out) == (1, "")
    assert "is not ready after 0.5 s: its phase is Pending" in err
    listed: Json = msgspec.json.decode(await served.client.request("GET", "/api/v1/namespaces/default/pods"))
    assert listed["items"] == []


async def test_what_a_pod_says_of_itself_ends_the_test(served: Served, tmp_path: Path) -> None:
    """The pod has no devices: nobody waits until it is late."""
    async with kubelet(served, tmp_path, devices="") as running:
        status, out, err = await served.run("connectivity", "test", "--image", "perftest")
    assert (status, out) == (1, "")
    (server,) = running.seen
    assert f"pod '{server}': NCCL_IB_HCA is empty" in err
