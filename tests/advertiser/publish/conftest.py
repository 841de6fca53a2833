"""What tests of what the advertiser publishes have in common."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from cni.server.extracts import make_folders
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.sysfs import build
from tests.support.simulated_nics import MLX5


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """An API server with the node n1, and a host's tree beside it."""
    build(tmp_path / "sys", MLX5.host(vfs=4))
    make_folders(tmp_path / "run")
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        async with aiohttp.ClientSession(server.url) as session, session.post("/api/v1/nodes", json=node) as answer:
            assert answer.status == 201
        yield server
