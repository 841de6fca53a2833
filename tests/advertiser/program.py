"""The advertiser as a process, and what a test may wait for: a scan of the host, and not some time."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from devcluster.processes import free_ports
from tests.support.polling import eventually


def arguments(command: str, folder: Path) -> list[str]:
    flags = ["--kubeconfig", str(folder / "kubeconfig"), "--node-name", "n1", "--sysfs", str(folder / "sys")]
    return [
        "-m",
        "advertiser",
        command,
        *flags,
        "--state",
        str(folder / "state"),
        "--run",
        str(folder / "run"),
        "--getpfs-addr",
        "",
    ]


@dataclass(frozen=True, slots=True)
class Advertiser:
    """The program itself, serving its own pages at ``port``."""

    port: int

    async def page(self, path: str) -> tuple[int, str]:
        """Return a page's status and text, 0 where nothing answers."""
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as session, session.get(path) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def scanned(self) -> None:
        """Return when it has scanned the host, from beginning to end, and the node carries what that gave."""
        # One scan may have begun before: the one that follows it has not.
        await self._scanned_since()
        await self._scanned_since()
        await eventually(self._has_published)

    async def _has_published(self) -> bool:
        return bool(json.loads((await self.page("/readyz"))[1])["published"])

    async def _scanned_since(self) -> None:
        since = time.time()

        async def scanned() -> bool:
            return await self.metric("mooring_inventory_last_scan_timestamp_seconds") > since

        await eventually(scanned)

    async def metric(self, name: str) -> float:
        """Return a metric's value."""
        _, text = await self.page("/metrics")
        (value,) = (line.split()[1] for line in text.splitlines() if line.startswith(f"{name} "))
        return float(value)


@asynccontextmanager
async def advertising(folder: Path, *more: str) -> AsyncIterator[Advertiser]:
    """Run the program; at the end it ends by SIGTERM with status 0."""
    (port,) = free_ports(1)
    flags = (*arguments("serve", folder), "--getpfs-addr", f"127.0.0.1:{port}", *more)
    process = await asyncio.create_subprocess_exec(sys.executable, *flags)
    found = Advertiser(port)

    async def answers_or_ended() -> bool:
        return (await found.page("/healthz"))[0] == 200 or process.returncode is not None

    try:
        # Before that it is still being imported, and SIGTERM would kill it.
        await eventually(answers_or_ended)
        yield found
    finally:
        if process.returncode is None:
            process.terminate()
        assert await process.wait() == 0
