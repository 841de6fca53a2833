"""Measure what the advertisers of many nodes that reboot at once cost a real API server.

    KUBEBUILDER_ASSETS=DIR python -m bench.inventories_at_reboot [--nodes 5000] [--seconds 120] [--late-links]

First one advertiser runs on a simulated host with 4 PFs of 32 VFs against devcluster's API server, which has its node
with the inventory of an earlier boot. What it sends in its first 20 s is recorded. Then each node of kube-apiserver has
the same bytes sent, over TLS connections of its own, with its own name, from a random moment of ``--seconds`` on; its
watches stay open. With ``--late-links`` the ports come up one after another meanwhile, a second apart.

CPU is that of kube-apiserver less what it used at rest. A watch of all nodes counts what one scheduler reads. Not
counted are the kubelets' own requests. The advertisers use a static token, so no service account's token is verified
and no admission policy of Mooring is evaluated. 5,000 nodes take seven minutes on two busy cores.
"""

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.loads import scheduler_load as load
from bench.served import apiservers, served_cluster
from cni.server.extracts import make_folders
from devcluster.apiserver.serve import ApiServer
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring import names
from mooring.kube.access import Access, load_access
from mooring.kube.client import MERGE_PATCH, Client

_PFS, _VFS, _RECORD_S, _REST_S = 4, 32, 20.0, 20.0
_NODES = "/api/v1/nodes"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_OLD_BOOT = "00000000-0000-4000-8000-000000000000"
# As many images as a kubelet reports at most: --node-status-max-images.
_IMAGES = 50


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it was sent: when, in seconds since the first one, and its bytes."""

    at_s: float
    head: bytes
    body: bytes

    @property
    def line(self) -> str:
        method, target, _ = self.head.split(b"\r\n", 1)[0].decode().split()
        kind = " (watch)" if "watch=" in target else " (dry run)" if "dryRun=" in target else ""
        return f"{method} {urlsplit(target).path}{kind}"

    @property
    def is_watch(self) -> bool:
        return self.line.endswith("(watch)")


@dataclass(slots=True)
class Recorder:
    """A relay in front of an API server without TLS; it keeps the requests of each connection."""

    port: int
    connections: list[list[Request]] = field(default_factory=list)
    _began: float | None = None

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        answers, requests = await asyncio.open_connection("127.0.0.1", self.port)
        sent = list[Request]()
        self.connections.append(sent)
        back = asyncio.create_task(_copy(answers, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                now = time.monotonic()
                self._began = self._began or now
                sent.append(Request(now - self._began, head, body))
                requests.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            requests.close()
        finally:
            back.cancel()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while some := await reader.read(1 << 16):
        writer.write(some)


async def record(folder: Path, *, late_links: bool) -> list[list[Request]]:
    """Return what an advertiser sends after a reboot, by connection."""
    node = load.node_name(0)
    build(folder / "sys", describe_host(node, 1, pfs=_PFS, vfs=_VFS), admin_macs=True)
    make_folders(folder / "run")
    async with ApiServer() as server, Client(Access(server.url)) as client:
        recorder = Recorder(server.port)
        relay = await asyncio.start_server(recorder.relay, "127.0.0.1", 0, limit=1 << 22)
        port = relay.sockets[0].getsockname()[1]
        direct, recorded = folder / "direct", folder / "recorded"
        direct.write_text(server.kubeconfig_text())
        recorded.write_text(server.kubeconfig_text().replace(str(server.port), str(port)))
        await client.request("POST", _NODES, msgspec.json.encode({"metadata": {"name": node}}))
        await _advertise(folder, node, "once", direct)
        await _reboot(client, node)
        links = [folder / f"sys/class/net/enp4s0f{index}/operstate" for index in range(_PFS)]
        for link in links if late_links else ():
            link.write_text("down\n")
        serving = asyncio.create_task(_advertise(folder, node, "serve", recorded))
        began = time.monotonic()
        for index, link in enumerate(links if late_links else ()):
            await asyncio.sleep(max(began + 5.0 + index - time.monotonic(), 0.0))
            link.write_text("up\n")
            # In place of the kernel's event.
            (folder / "run/extract/wake").write_text("")
        await asyncio.sleep(began + _RECORD_S - time.monotonic())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        relay.close()
    return [requests for requests in recorder.connections if requests]


async def _advertise(folder: Path, node: str, command: str, kubeconfig: Path) -> None:
    roots = ("--sysfs", str(folder / "sys"), "--state", str(folder / "state"), "--run", str(folder / "run"))
    flags = ("--kubeconfig", str(kubeconfig), "--node-name", node, "--getpfs-addr", "", *roots)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "advertiser", command, *flags)
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _reboot(client: Client, node: str) -> None:
    """Have the node's inventory be of an earlier boot."""
    path = f"{_NODES}/{node}"
    metadata = msgspec.json.decode(await client.request("GET", path))["metadata"]
    inventory = msgspec.json.decode(metadata["annotations"][names.INVENTORY]) | {"boot": _OLD_BOOT}
    annotations = {names.INVENTORY: msgspec.json.encode(inventory).decode()}
    await client.request("PATCH", path, msgspec.json.encode({"metadata": {"annotations": annotations}}), MERGE_PATCH)


@dataclass(slots=True)
class Replay:
    """Sends the recorded requests of an advertiser for other nodes."""

    access: Access
    requests: int = 0
    sent_bytes: int = 0
    read_bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    async def all_nodes(self, connections: list[list[Request]], options: argparse.Namespace) -> int:
        """Be the advertisers of all nodes; return how many failed."""
        chance = random.Random(1)
        moments = [chance.uniform(0.0, options.seconds) for _ in range(options.nodes)]
        tasks = [asyncio.create_task(self._node(number, connections, at)) for number, at in enumerate(moments)]
        await asyncio.wait(tasks, timeout=options.seconds + _RECORD_S + 10.0)
        for task in tasks:
            task.cancel()
        return sum(isinstance(one, Exception) for one in await asyncio.gather(*tasks, return_exceptions=True))

    async def _node(self, number: int, connections: list[list[Request]], after_s: float) -> None:
        """Be one node's advertiser; its watch stays open until this is cancelled."""
        await asyncio.sleep(after_s)
        async with asyncio.TaskGroup() as group:
            for requests in connections:
                group.create_task(self._connection(number, requests, time.monotonic()))

    async def _connection(self, number: int, requests: list[Request], began: float) -> None:
        server, version = urlsplit(self.access.server), b"0"
        await asyncio.sleep(max(began + requests[0].at_s - time.monotonic(), 0.0))
        reader, writer = await asyncio.open_connection(server.hostname, server.port, ssl=self.access.tls, limit=1 << 22)
        for request in requests:
            await asyncio.sleep(max(began + request.at_s - time.monotonic(), 0.0))
            raw = self._own(number, request, version)
            writer.write(raw)
            self.requests += 1
            self.sent_bytes += len(raw)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 2"):
                self.errors[f"{request.line}: {head[:12].decode()}"] += 1
            body = b"" if request.is_watch else await _body(reader, head)
            self.read_bytes += len(head) + len(body)
            version = found[1] if (found := _VERSION.search(body)) else version
        while some := await reader.read(1 << 16):
            self.read_bytes += len(some)

    def _own(self, number: int, request: Request, version: bytes) -> bytes:
        line, rest = request.head.split(b"\r\n", 1)
        line = re.sub(rb"resourceVersion=\d+", b"resourceVersion=" + version, line)
        token = "".join(f"{name}: {value}\r\n" for name, value in self.access.headers().items()).encode()
        raw = line + b"\r\n" + token + rest + request.body
        return raw.replace(load.node_name(0).encode(), load.node_name(number).encode())


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Return the body of an answer that ends."""
    if length := _LENGTH.search(head):
        return await reader.readexactly(int(length[1]))
    pieces = list[bytes]()
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(pieces)


@asynccontextmanager
async def watching(client: Client) -> AsyncIterator[Counter[str]]:
    """Read all nodes' events as a scheduler does; count them and their bytes."""
    seen = Counter[str]()
    page = msgspec.json.decode(await client.request("GET", _NODES, params={"limit": "1"}))
    since = {"watch": "true", "resourceVersion": str(page["metadata"]["resourceVersion"])}

    async def follow() -> None:
        async with client.stream(_NODES, since, 3600.0) as batches:
            async for lines in batches:
                seen.update(events=len(lines), bytes=sum(map(len, lines)))

    task = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        task.cancel()


async def _use(client: Client) -> tuple[float, float]:
    """Return kube-apiserver's seconds of CPU and its memory in MiB."""
    lines = (await client.request("GET", "/metrics")).decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("process_"))
    return float(found["process_cpu_seconds_total"]), float(found["process_resident_memory_bytes"]) / 2**20


def _node(number: int) -> load.Json:
    node = load.node(number)
    image = {"names": [f"registry.example/some/image@sha256:{'0' * 64}", "registry.example/some/image:v1.2.3"]}
    node["status"]["images"] = [image | {"sizeBytes": 10**8}] * _IMAGES
    inventory = msgspec.json.decode(node["metadata"]["annotations"][names.INVENTORY]) | {"boot": _OLD_BOOT}
    node["metadata"]["annotations"][names.INVENTORY] = msgspec.json.encode(inventory).decode()
    return node


async def measure(kubeconfig: Path, etcd: Path, sent: list[list[Request]], options: argparse.Namespace) -> None:
    """Print what the advertisers of all nodes cost."""
    access = load_access(str(kubeconfig))
    async with Client(access, connections=64) as client:
        await served_cluster.add_nodes(client, map(_node, range(options.nodes)))
        await asyncio.sleep(_REST_S)
        (idle_s, _), began = await _use(client), time.monotonic()
        await asyncio.sleep(_REST_S)
        before_s, before_mib = await _use(client)
        rest = (before_s - idle_s) / (time.monotonic() - began)
        stored, replay = _size(etcd), Replay(access)
        async with watching(client) as seen:
            began = time.monotonic()
            failed = await replay.all_nodes(sent, options)
            (after_s, after_mib), lasted_s = await _use(client), time.monotonic() - began
        cpu_s = after_s - before_s - rest * lasted_s
    print(f"  sent: {replay.requests} requests, {_mb(replay.sent_bytes)}; answers {_mb(replay.read_bytes)}")
    print(f"  kube-apiserver: {cpu_s:.1f} s of CPU, {cpu_s / options.nodes * 1e3:.1f} ms a node, in {lasted_s:.0f} s")
    print(f"    besides {rest:.3f} s a second at rest; memory {before_mib:.0f} to {after_mib:.0f} MiB")
    print(f"  etcd: its file grew by {_mb(_size(etcd) - stored)}")
    print(f"  one scheduler's watch: {seen['events']} events, {_mb(seen['bytes'])}")
    print(f"  failed: {failed} nodes; {dict(replay.errors)}", flush=True)


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _size(etcd: Path) -> int:
    return (etcd / "member/snap/db").stat().st_size


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes that reboot (default 5000)")
    parser.add_argument("--seconds", type=int, default=120, help="the advertisers start within so many (default 120)")
    parser.add_argument("--late-links", action="store_true", help="ports come up while the advertiser runs")
    options = parser.parse_args()
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; {options.nodes} nodes")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sent = asyncio.run(record(folder / "host", late_links=options.late_links))
        print("an advertiser sends, over", len(sent), "connections:")
        for request in sorted((one for each in sent for one in each), key=lambda one: one.at_s):
            print(f"  {request.at_s:5.1f} s {request.line}: {len(request.head)} + {len(request.body)} bytes")
        with apiservers.real(assets, folder / "real") as kubeconfig:
            print(f"{apiservers.version(assets)}, load {os.getloadavg()[0]:.1f}", flush=True)
            asyncio.run(measure(kubeconfig, folder / "real/etcd", sent, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
