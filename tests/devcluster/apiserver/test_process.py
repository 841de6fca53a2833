"""The server as a process: its kubeconfig, its end, and other network namespaces."""

import asyncio
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from devcluster.apiserver.serve import ApiServer, Options
from tests.support.polling import until


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the server's process and end it by SIGTERM."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "devcluster.apiserver", *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 90)


async def appears(path: Path) -> None:
    """Wait for a file."""
    await until(path.exists, str(path))


async def test_the_kubeconfig_appears_once_the_server_answers(tmp_path: Path) -> None:
    """A client that waits for the file can connect; SIGTERM ends the process with status 0, open watches included."""
    path = tmp_path / "kubeconfig"
    async with running("--kubeconfig", str(path)) as process, aiohttp.ClientSession() as session:
        await appears(path)
        server = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        async with session.get(f"{server}/readyz") as response:
            assert (response.status, await response.text()) == (200, "ok")
        async with session.get(f"{server}/api/v1/pods?watch=1") as watch:
            process.send_signal(signal.SIGTERM)
            assert await watch.read() == b""
        assert await asyncio.wait_for(process.wait(), 90) == 0


async def test_a_port_that_is_taken_is_said(devserver: ApiServer) -> None:
    """The exit status is 1, with one line and no traceback."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "devcluster.apiserver", "--port", str(devserver.port)), stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    assert err.decode().count("\n") == 1
    assert "address already in use" in err.decode().lower()


@pytest.fixture
def netns() -> Iterator[str]:
    """Make a network namespace with its loopback up."""
    name = f"mooring-api-{secrets.token_hex(3)}"
    ip = shutil.which("ip")
    assert ip is not None
    subprocess.run([ip, "netns", "add", name], check=True)
    try:
        subprocess.run([ip, "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run([ip, "netns", "del", name], check=True)


@pytest.mark.root
async def test_the_same_url_answers_inside_other_network_namespaces(netns: str, tmp_path: Path) -> None:
    """A program in a simulated host's namespace reaches the server at the very same address."""
    path = tmp_path / "kubeconfig"
    ip = shutil.which("ip")
    assert ip is not None
    code = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1] + '/readyz', timeout=60).read().decode())"
    async with running("--kubeconfig", str(path), "--listen-netns", netns):
        await appears(path)
        server = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        inside = await asyncio.create_subprocess_exec(
            *(ip, "netns", "exec", netns, sys.executable, "-c", code, server), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(inside.communicate(), 90)
    assert out.decode().strip() == "ok"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_https_is_served_with_a_certificate(tmp_path: Path) -> None:
    """The kubeconfig has an https address and the authority."""
    files = (str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    openssl = shutil.which("openssl")
    assert openssl is not None
    names = ["-subj", "/CN=devcluster", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    await asyncio.to_thread(
        subprocess.run, [*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True
    )
    async with ApiServer(Options(tls=files)) as server, aiohttp.ClientSession() as session:
        cluster = yaml.safe_load(server.kubeconfig_text())["clusters"][0]["cluster"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        async with session.get(f"{cluster['server']}/healthz", ssl=context) as response:
            assert response.status == 200
    assert cluster["server"].startswith("https://127.0.0.1:")
