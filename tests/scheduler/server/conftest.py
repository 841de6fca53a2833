"""A cluster of its own for each test, and a loop beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access, load_access
from mooring.kube.client import Client
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import Cluster
from tests.scheduler.server.process import RealCluster
from tests.scheduler.server.stage import ExtenderStage, Stage
from tests.support.relay import Relay


@pytest.fixture(autouse=True)
def makers(monkeypatch: pytest.MonkeyPatch, make_node: MakeNode, make_pf: MakePf) -> None:
    """Let every cluster make nodes."""
    monkeypatch.setattr(Cluster, "make_node", staticmethod(make_node), raising=False)
    monkeypatch.setattr(Cluster, "make_pf", staticmethod(make_pf), raising=False)


@pytest.fixture
def stage(server: ApiServer, client: Client) -> Stage:
    return Stage(server, client)


@pytest.fixture
def extender(server: ApiServer, client: Client) -> ExtenderStage:
    return ExtenderStage(server, client)


@pytest.fixture
async def cluster(server: ApiServer, client: Client, tmp_path: Path) -> Cluster:
    """Give an empty cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig_text())
    cluster = Cluster(client, kubeconfig)
    cluster.server = server
    return cluster


@pytest.fixture
async def real_cluster(own_server: Path, tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Give a real API server, emptied."""
    async with Relay(load_access(str(own_server))) as relay:
        await relay.empty()
        async with Client(Access(relay.url), timeout_s=10.0) as client:
            yield RealCluster(client, own_server, tmp_path)
