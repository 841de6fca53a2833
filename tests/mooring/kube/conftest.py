"""An API server on loopback, and a client for it."""

from collections.abc import AsyncIterator

import pytest

from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access
from mooring.kube.client import Client


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Serve a Kubernetes API."""
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    """Talk to the server; a request is given up after two seconds."""
    async with Client(Access(server.url), timeout_s=2.0) as client:
        yield client
