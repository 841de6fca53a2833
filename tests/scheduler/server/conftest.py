"""A loop beside an API server."""

from pathlib import Path

import pytest

from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import Client
from tests.scheduler.server.process import Cluster
from tests.scheduler.server.stage import Stage


@pytest.fixture
def stage(server: ApiServer, client: Client) -> Stage:
    return Stage(server, client)


@pytest.fixture
async def cluster(server: ApiServer, client: Client, tmp_path: Path) -> Cluster:
    """Give an empty cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig_text())
    return Cluster(client, kubeconfig)
