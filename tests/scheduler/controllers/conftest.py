"""A control plane with the scheduler and kube-controller-manager, and four nodes with the VFs of one rank each."""

import itertools
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bench.served.apiservers import free_ports
from devcluster.processes import Processes
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.kube.failures import NotFound
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.controllers.player import WHOLE_NODE, Player
from tests.scheduler.server.cluster import PODS, Cluster
from tests.scheduler.server.process import binary
from tests.support.polling import eventually

NODES = ("n1", "n2", "n3", "n4")
POOL = "example.com/pool"
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


class Stage(Player):
    """A player on four nodes, each with the VFs of one rank."""

    @staticmethod
    def nodes_of(pool: str) -> tuple[str, ...]:
        return NODES[:2] if pool == "a" else NODES[2:]

    @asynccontextmanager
    async def one_node_taken(self) -> AsyncIterator[None]:
        """Have a node's VFs taken by another pod."""
        await self.cluster.add_pod("other", WHOLE_NODE)
        await self.cluster.bound("other")
        yield
        await self.cluster.delete("other")

    @asynccontextmanager
    async def start_whole(self, *roles: str, fit: str = "3 of 4", others: Sequence[str] = ()) -> AsyncIterator[None]:
        """Have a node taken while these pods are made: they wait, and run with the others once it is free."""
        async with self.one_node_taken():
            yield
            await self.waits(*roles, message=f"{fit} members fit")
        await self.runs(*roles, *others)

    async def lose_node(self, name: str) -> None:
        """Have a node be unreachable, as its lease has expired."""
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        await self.cluster.patch(f"/api/v1/nodes/{name}", spec={"taints": [taint]})
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        await self.cluster.patch(f"/api/v1/nodes/{name}/status", status=status)

    async def is_empty(self) -> bool:
        """Delete all that a script has made; return whether no pod was left."""
        for kind in ("Job", "StatefulSet", "Pod"):
            await self.cluster.client.request("DELETE", self.path(kind), params={"gracePeriodSeconds": "0"})
        left = (await self.cluster.call("GET", self.path("Pod")))["items"]
        for pod in left:
            with suppress(NotFound):
                await self.patch("Pod", pod["metadata"]["name"], metadata={"finalizers": None})
        return not left

    async def leaves_all_nodes_free(self) -> None:
        """See that no pod lives and no VF of any node is reserved: other pods get all of them."""
        await self.gone()
        others = [f"other-{node}" for node in NODES]
        for name in others:
            await self.cluster.add_pod(name, WHOLE_NODE)
        await self.cluster.bound(*others)
        for name in others:
            await self.cluster.delete(name)


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
