"""The scheduler's own program with a constraint installed beside it: from a pod's annotation to its binding."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.kube.client import Client
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.reference.messages import refusal
from tests.scheduler.server.cluster import Cluster


@pytest.fixture
async def cluster(server: ApiServer, client: Client, tmp_path: Path) -> Cluster:
    """Give an empty cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig_text())
    return Cluster(client, kubeconfig)


@asynccontextmanager
async def _scheduler(cluster: Cluster, site: Path) -> AsyncIterator[None]:
    """Run the program with what is installed in a folder."""
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--metrics-addr", "", "--leader-elect", "false"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "scheduler", *flags, env=environment)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            await process.wait()


async def test_pods_get_units_and_vfs_from_the_running_scheduler(
    cluster: Cluster, toy: Path, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Found by its entry point; a pod that requests an unknown kind, or more than there is, gets a message."""
    having = {"mooring.dev/inventory.licence": '{"v":1,"cad":1}'}
    asking = {"mooring.dev/request.licence": '{"name":"cad","count":1}'}
    await cluster.add_node(make_node("n1", (make_pf(),), annotations=having))
    await cluster.add_pod("first", "[{}]", annotations=asking)
    async with _scheduler(cluster, toy):
        pod = (await cluster.bound("first"))["first"]
        assignment = read_assignment(pod.annotations[names.ASSIGNMENT])
        assert [vf.pf for vf in assignment.vfs] == ["pf0"]
        assert assignment.ext == {"licence": {"units": ["cad/0"]}}
        await cluster.add_pod("second", annotations=asking)
        assert refusal(await cluster.message_of("second")) == "0/1 nodes are available: 1 not enough free cad licences."
        await cluster.add_pod("third", annotations={"mooring.dev/request.fpga": "1"})
        assert "no constraint 'fpga' is installed" in await cluster.message_of("third")
