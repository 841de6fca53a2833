"""The programs in what the manifests leave them: nothing writable but what is mounted so, and no capability."""

import asyncio
import contextlib
import shlex
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from cni.server.extracts import make_folders
from cni.vf.ledger import Ledger
from devcluster.apiserver.serve import ApiServer
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.processes import free_ports
from mooring.records.ledger import LedgerEntry, Netns, Original, ledger_name
from mooring.records.run_folder import ADVERTISER, ADVERTISER_VERSION, READERS
from tests.manifests.rendering import raw
from tests.support.polling import eventually

pytestmark = [pytest.mark.root]
_AS_READER = ("setpriv", f"--reuid={READERS}", f"--regid={READERS}", "--clear-groups", "--no-new-privs")
HELD = LedgerEntry(
    "0000:04:00.3", "enp4s0f0", 1, "held", "b", "gone", "default/gone", "c", "net1", Netns("/n", 1), Original()
)
_NO_CAPABILITY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


@asynccontextmanager
async def confined(writable: Path, *program: str, user: Sequence[str] = _NO_CAPABILITY) -> AsyncIterator[None]:
    """Run a program with a root filesystem that is read-only but for one folder; it must end cleanly."""
    folder = shlex.quote(str(writable))
    read_only = f"mount --bind {folder} {folder}\nmount -o remount,bind,ro /\n"
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-e", "-c")
    run = f"{read_only}exec {shlex.join([*user, *program])}"
    process = await asyncio.create_subprocess_exec(*command, run, stderr=PIPE)
    said = asyncio.create_task(process.communicate())
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        _, log = await asyncio.wait_for(said, 90)
        # Shown where the test fails before that.
        sys.stderr.write(log.decode())
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


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user may enter; pytest closes the one above its own when another run of it begins."""
    with tempfile.TemporaryDirectory(prefix="mooring-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


async def test_the_advertiser_publishes_as_the_user_of_its_pod(open_folder: Path) -> None:
    """It reads the extracts of records that it may not read itself, and opens no socket of the node's programs."""
    (port,) = free_ports(1)
    run = open_folder / "run"
    build(open_folder / "sys", describe_host("n1", 1, vfs=4))
    make_folders(run)
    Ledger(open_folder / "state", run).write(HELD)
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as session:
        (open_folder / "kubeconfig").write_text(server.kubeconfig_text())
        async with session.post("/api/v1/nodes", json={"metadata": {"name": "n1"}}) as answer:
            assert answer.status == 201
        folders = [
            f"--{flag}={open_folder / name}" for flag, name in (("sysfs", "sys"), ("state", "state"), ("run", "run"))
        ]
        flags = ("--kubeconfig", str(open_folder / "kubeconfig"), "--node-name=n1", f"--getpfs-addr=127.0.0.1:{port}")
        program = (sys.executable, "-m", "advertiser", "serve", *flags, *folders)
        async with confined(run / ADVERTISER, *program, user=_AS_READER):
            page = f"http://127.0.0.1:{port}/readyz"
            assert '"published": true' in await _answers(page, lambda status: status == 200)
            await _answers(f"http://127.0.0.1:{port}/getpfs", lambda status: status == 200)
        async with session.get("/api/v1/nodes/n1") as answer:
            inventory = (await answer.json())["metadata"]["annotations"]["mooring.dev/inventory"]
    assert '"why":"held by pod gone"' in inventory
    assert (run / ADVERTISER_VERSION).exists()
    refused = subprocess.run(
        [*_AS_READER, "cat", str(open_folder / "state" / ledger_name(HELD.pci))], capture_output=True, check=False
    )
    assert b"Permission denied" in refused.stderr


def test_no_container_of_the_advertiser_sees_the_sockets_and_the_one_that_serves_is_not_root() -> None:
    """Uid 0 without any capability connects to a root's socket of mode 0600: the runtime's is a way to the host."""
    (document,) = raw("base/advertiser/daemonset.yaml")
    spec = document["spec"]["template"]["spec"]
    sources = {volume["name"]: Path(volume["hostPath"]["path"]) for volume in spec["volumes"] if "hostPath" in volume}
    sockets = [Path("/run/mooring/cri.sock"), Path("/run/mooring/cni.sock"), Path("/run/mooring/run/crio/crio.sock")]
    for container in (*spec["initContainers"], *spec["containers"]):
        mounted = [sources[one["name"]] for one in container["volumeMounts"] if one["name"] in sources]
        assert not [path for path in mounted for socket in sockets if path in socket.parents]
    (serving,) = spec["containers"]
    security = serving["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"]) == (True, READERS, READERS)
    assert security["capabilities"] == {"drop": ["ALL"]}
    written = {one["mountPath"] for one in serving["volumeMounts"] if not one.get("readOnly")}
    assert written == {f"/run/mooring/{ADVERTISER}"}
