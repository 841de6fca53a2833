"""An API server on loopback, a client for it, and a certificate for servers of other kinds."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    crt, key = folder / "crt", folder / "key"
    made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
    files = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(crt))
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)
    return crt, key
