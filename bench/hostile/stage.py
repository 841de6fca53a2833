"""The cluster that is attacked: devcluster's API server, and Mooring's own programs as processes.

The admission policies are not there: what they refuse must do no harm either.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec

from bench.advertiser import cpu_s
from bench.hostile.flood import connected
from bench.hostile.node_programs import PROGRAMS, NodePrograms
from bench.loads.scheduler_load import Json
from bench.served.served_cluster import few_at_once
from bench.shim import rss_mib
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.processes import Processes, free_ports
from mooring.kube.access import load_access
from mooring.kube.client import JSON, MERGE_PATCH, Client

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
# The node whose advertiser runs here.
HOST = "host-0"
_PYTHON = (sys.executable, "-m")
# Seconds until a connection that the server has closed is opened again.
_REOPEN_S = 2.0
# A process that takes less than this share of a core is at rest.
_REST_SHARE, _REST_S, _LONGEST_S = 0.03, 1.0, 120.0
_FOLDERS = (("sysfs", "sys"), ("state", "state"), ("run", "run"))


class Stage:
    """The running programs, and how an attacker reaches them."""

    def __init__(self, root: Path, nodes: int) -> None:
        self.root = root
        self.nodes = nodes
        self.kubeconfig = root / "kubeconfig"
        self.metrics_port, self.extender_port, self.getpfs_port = free_ports(3)
        self.processes = Processes(root / "logs")
        self.node = NodePrograms(root, self.processes)
        self.api: Client
        # What attackers have got that is another tenant's, in words.
        self.reached: list[str] = []
        self._floods = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        """Start the API server, the scheduler and one node's advertiser."""
        async with AsyncExitStack() as stack:
            stack.callback(self.processes.stop)
            stack.callback(self.node.stop)
            module = (*_PYTHON, "bench.hostile.apiserver", str(self.kubeconfig), str(self.nodes))
            self.processes.start("apiserver", module)
            self.processes.await_ready("apiserver", self.kubeconfig.exists)
            self.api = await stack.enter_async_context(Client(load_access(str(self.kubeconfig))))
            await self.create(NODES, {"metadata": {"name": HOST}})
            build(self.root / "sys", describe_host(HOST, 1, vfs=8))
            self.processes.start("advertiser", self._advertiser())
            self.processes.start("scheduler", self._scheduler())
            await self.answering()
            yield self

    def _scheduler(self) -> tuple[str, ...]:
        addresses = (
            "--metrics-addr",
            f"127.0.0.1:{self.metrics_port}",
            "--extender-addr",
            f"127.0.0.1:{self.extender_port}",
        )
        return (*_PYTHON, "scheduler", "--kubeconfig", str(self.kubeconfig), "--leader-elect", "false", *addresses)

    def _advertiser(self) -> tuple[str, ...]:
        folders = [f"--{flag}={self.root / folder}" for flag, folder in _FOLDERS]
        addresses = ("--getpfs-addr", f"127.0.0.1:{self.getpfs_port}")
        flags = ("--kubeconfig", str(self.kubeconfig), "--node-name", HOST)
        return (*_PYTHON, "advertiser", "serve", *flags, *folders, *addresses)

    async def restart(self, program: str) -> None:
        """Start a program again, so that nothing of an earlier attack is in its memory."""
        if program in PROGRAMS:
            await asyncio.to_thread(self.node.restart, program)
            return
        self.processes.kill(program)
        self.processes.restart(program)
        await self.answering()

    async def answering(self) -> None:
        """Wait until the programs are ready."""
        async with aiohttp.ClientSession() as session:
            for port in (self.metrics_port, self.getpfs_port):
                deadline = time.monotonic() + _LONGEST_S
                while not await _ready(session, f"http://127.0.0.1:{port}/readyz"):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"port {port} is not ready after {_LONGEST_S:.0f} s")
                    await asyncio.sleep(0.05)

    def rss_mib(self, program: str) -> float:
        return rss_mib(self.processes.pid(program))

    async def at_rest(self, program: str) -> None:
        """Wait until a program does nothing; raise TimeoutError if it never rests."""
        pid, deadline = self.processes.pid(program), time.monotonic() + _LONGEST_S
        before_s = cpu_s(pid)
        while True:
            await asyncio.sleep(_REST_S)
            now_s = cpu_s(pid)
            if now_s - before_s < _REST_SHARE * _REST_S:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{program} is not at rest after {_LONGEST_S:.0f} s")
            before_s = now_s

    async def create(self, path: str, document: Json) -> None:
        await self.api.request("POST", path, msgspec.json.encode(document), JSON)

    async def patch(self, path: str, document: Json) -> None:
        await self.api.request("PATCH", path, msgspec.json.encode(document), MERGE_PATCH)

    async def delete(self, *paths: str) -> None:
        now = {"gracePeriodSeconds": "0"}
        await few_at_once(self._delete(path, now) for path in paths)

    async def _delete(self, path: str, now: dict[str, str]) -> None:
        await self.api.request("DELETE", path, params=now)

    @asynccontextmanager
    async def pods(self, *documents: Json) -> AsyncIterator[None]:
        """Create pods, and delete them at the end."""
        await few_at_once(self.create(PODS, document) for document in documents)
        try:
            yield
        finally:
            await self.delete(*(f"{PODS}/{document['metadata']['name']}" for document in documents))

    async def placed(self, selector: str, count: int) -> None:
        """Wait until so many pods that match a label selector have a node."""
        async with asyncio.timeout(_LONGEST_S):
            while True:
                page = msgspec.json.decode(await self.api.request("GET", PODS, params={"labelSelector": selector}))
                if sum(bool(pod["spec"].get("nodeName")) for pod in page["items"]) >= count:
                    return
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def held(self, port: int, count: int, begun: bytes) -> AsyncIterator[None]:
        """Hold connections on which a request has begun, and open those again that the server closes."""

        async def hold() -> None:
            while True:
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection(sock=await connected(port))
                    try:
                        writer.write(begun)
                        await writer.drain()
                        await reader.read()
                    finally:
                        writer.transport.abort()
                # What opens more is a flood, and takes this process from those who are measured.
                await asyncio.sleep(_REOPEN_S)

        holding = [asyncio.create_task(hold()) for _ in range(count)]
        try:
            yield
        finally:
            for one in holding:
                one.cancel()
            await asyncio.gather(*holding, return_exceptions=True)

    @asynccontextmanager
    async def flooded(self, port: int, connections: int, request: bytes) -> AsyncIterator[None]:
        """Let another process send a request again and again, as fast as it is answered; an empty one only connects."""
        self._floods += 1
        file, name = self.root / f"request-{self._floods}", f"flood-{self._floods}"
        file.write_bytes(request)
        self.processes.start(name, (*_PYTHON, "bench.hostile.flood", str(port), str(connections), str(file)))
        try:
            yield
        finally:
            self.processes.kill(name)


async def _ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def http(method: str, path: str, body: bytes = b"") -> bytes:
    """Return an HTTP request."""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
