"""A control plane with the scheduler and kube-controller-manager, and four nodes with the VFs of one rank each."""

import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from devcluster.processes import Processes, free_ports
from mooring.kube.access import load_access
from mooring.kube.client import Client
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.controllers.player import NODES, POOL, Stage
from tests.scheduler.server.cluster import PODS, Cluster
from tests.scheduler.server.process import binary
from tests.support.polling import eventually

_fresh = itertools.count(1)
_CONTROLLERS = "job-controller,statefulset-controller,garbage-collector-controller"


@pytest.fixture(scope="package")
def controlled(own_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the scheduler and the controllers of the control plane; give a kubeconfig."""
    controller_manager = binary("kube-controller-manager")
    (port,) = free_ports(1)
    processes = Processes(folder := tmp_path_factory.mktemp("controllers"))
    own = ("--kubeconfig", str(own_server), "--leader-elect", "false", "--metrics-addr", "")
    flags = (f"--kubeconfig={own_server}", "--leader-elect=false", f"--controllers={_CONTROLLERS}")
    served = ("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder}")
    try:
        processes.start("scheduler", (sys.executable, "-m", "scheduler", *own))
        processes.start("kube-controller-manager", (controller_manager, *flags, *served, "--kube-api-qps=500"))
        yield own_server
    finally:
        processes.stop()


@pytest.fixture
async def stage(controlled: Path, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Stage]:
    """Give a stage, and leave nothing of a test."""
    namespace = f"play-{next(_fresh)}"
    async with Client(load_access(str(controlled))) as client:
        cluster = Cluster(client, controlled)
        for name in NODES:
            labels = {POOL: "a" if name in Stage.nodes_of("a") else "b"}
            pfs = tuple(make_pf(index, vfs=1, network=f"rail{index}") for index in range(2))
            await cluster.add_node(make_node(name, pfs, labels=labels))
        await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        stage = Stage(cluster, namespace)
        try:
            async with stage.following():
                yield stage
        finally:
            await eventually(stage.is_empty)
            for path in (PODS, "/api/v1/nodes"):
                await client.request("DELETE", path, params={"gracePeriodSeconds": "0"})
