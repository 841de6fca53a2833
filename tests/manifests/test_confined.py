"""The programs in what the manifests leave them: nothing writable but what is mounted so, and no capability."""

import asyncio
import contextlib
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bench.apiservers import free_ports
from devcluster.apiserver.serve import ApiServer
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from tests.support.polling import eventually

pytestmark = [pytest.mark.root]
_NO_CAPABILITY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


@asynccontextmanager
async def confined(writable: Path, *program: str) -> AsyncIterator[None]:
    """Run a program with a root filesystem that is read-only but for one folder; it must end cleanly."""
    folder = shlex.quote(str(writable))
    read_only = f"mount --bind {folder} {folder}\nmount -o remount,bind,ro /\n"
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-e", "-c")
    run = f"{read_only}exec {shlex.join([*_NO_CAPABILITY, *program])}"
    process = await asyncio.create_subprocess_exec(*command, run, stderr=PIPE)
    said = asyncio.create_task(process.communicate())
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        _, log = await asyncio.wait_for(said, 90)
    assert process.returncode == 0, log.decode()
    assert b"Read-only file system" not in log, log.decode()


async def _answers(url: str, holds: Callable[[int], bool]) -> str:
    """Return a page as soon as its status is as expected."""

    async def page() -> str | None:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with session.get(url) as answer:
                return await answer.text() if holds(answer.status) else None
        return None

    async with aiohttp.ClientSession() as session:
        return await eventually(page)


async def test_the_scheduler_gets_ready_and_leads(tmp_path: Path) -> None:
    """Probes and metrics answer; it needs no file of its own."""
    (port,) = free_ports(1)
    (empty := tmp_path / "empty").mkdir()
    async with ApiServer() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        flags = ("--kubeconfig", str(tmp_path / "kubeconfig"), f"--metrics-addr=127.0.0.1:{port}")
        async with confined(empty, sys.executable, "-m", "scheduler", *flags):
            assert await _answers(f"http://127.0.0.1:{port}/readyz", lambda status: status == 200) == "ok"
            assert await _answers(f"http://127.0.0.1:{port}/livez", lambda status: status == 200) == "ok"


async def test_the_advertiser_publishes(tmp_path: Path) -> None:
    """The ledger is read, the host's links are listed, and only /run is written."""
    (port,) = free_ports(1)
    build(tmp_path / "sys", describe_host("n1", 1, vfs=4))
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as session:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        async with session.post("/api/v1/nodes", json={"metadata": {"name": "n1"}}) as answer:
            assert answer.status == 201
        folders = [
            f"--{flag}={tmp_path / name}" for flag, name in (("sysfs", "sys"), ("state", "state"), ("run", "run"))
        ]
        flags = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--node-name=n1", f"--getpfs-addr=127.0.0.1:{port}")
        async with confined(tmp_path / "run", sys.executable, "-m", "advertiser", "serve", *flags, *folders):
            assert '"published": true' in await _answers(
                f"http://127.0.0.1:{port}/readyz", lambda status: status == 200
            )
            await _answers(f"http://127.0.0.1:{port}/getpfs", lambda status: status == 200)
