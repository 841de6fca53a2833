"""The scheduler's own program with a constraint installed beside it: from a pod's annotation to its binding."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.assignment import read_assignment
from mooring.inventory import Pf
from mooring.kube.client import Client
from scheduler.objects import Node
from tests.scheduler.test_process import Cluster

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]


@pytest.fixture
async def cluster(server: ApiServer, client: Client, tmp_path: Path) -> Cluster:
    """Give an empty cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig_text())
    return Cluster(client, kubeconfig)


async def test_pods_get_units_and_vfs_from_the_running_scheduler(
    cluster: Cluster, toy: Path, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Found by its entry point; who asks for what nobody installed, or for more than there is, is told."""
    await cluster.add_node(
        make_node("n1", (make_pf(),), annotations={"mooring.dev/inventory.licence": '{"v":1,"cad":1}'})
    )
    asking = {"mooring.dev/request.licence": '{"name":"cad","count":1}'}
    await cluster.add_pod("first", "[{}]", annotations=asking)
    arguments = [
        "-m",
        "scheduler",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--metrics-addr",
        "",
        "--leader-elect",
        "false",
    ]
    environment = {**os.environ, "PYTHONPATH": str(toy)}
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environment)
    try:
        pod = (await cluster.bound("first"))["first"]
        assignment = read_assignment(pod.annotations[names.ASSIGNMENT])
        assert [vf.pf for vf in assignment.vfs] == ["pf0"]
        assert assignment.ext == {"licence": {"units": ["cad/0"]}}
        assert json.loads(pod.annotations[names.ASSIGNMENT])["ext"] == {"licence": {"units": ["cad/0"]}}
        await cluster.add_pod("second", annotations=asking)
        assert await cluster.told("second") == "0/1 nodes are available: 1 not enough free cad licences."
        await cluster.add_pod("third", annotations={"mooring.dev/request.fpga": "1"})
        assert "no constraint 'fpga' is installed" in await cluster.told("third")
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await process.wait()
