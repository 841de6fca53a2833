"""The scheduler as a process, beside an API server."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.scheduler.server.cluster import Cluster
from tests.support.polling import until


async def _start(kubeconfig: Path, *flags: str) -> Process:
    arguments = ["-m", "scheduler", "--kubeconfig", str(kubeconfig), "--metrics-addr", "", *flags]
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=PIPE)


@asynccontextmanager
async def running(cluster: Cluster, *flags: str) -> AsyncIterator[Process]:
    """Run a scheduler; it must end by itself after SIGTERM."""
    process = await _start(cluster.kubeconfig, *flags)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            await process.communicate()


ALONE = ("--leader-elect", "false")


class Scheduler:
    """One process, and its log lines."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(json.loads(line))

    def has_said(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.said if one["event"] == event]

    def waited_s(self) -> float:
        """Return how long after it began to lead it bound its first pod, in seconds of its own clock."""
        leading, bound = (self.has_said(event)[0]["ts"] for event in ("leading", "pod bound"))
        return (datetime.fromisoformat(bound) - datetime.fromisoformat(leading)).total_seconds()

    async def saying(self, event: str) -> None:
        """Wait for this log event."""

        await until(lambda: self.has_said(event), event)

    async def end(self) -> int:
        """Wait for its end, all that it has said included."""
        async with asyncio.timeout(90):
            status = await self.process.wait()
            await self._reading
        return status


@asynccontextmanager
async def scheduler(kubeconfig: Path, *flags: str) -> AsyncIterator[Scheduler]:
    """Run a scheduler and read its log."""
    process = await _start(kubeconfig, *flags)
    scheduler = Scheduler(process)
    try:
        yield scheduler
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        await scheduler.end()


@asynccontextmanager
async def replicas(kubeconfig: Path, *flags: str, metrics_addr: str = "") -> AsyncIterator[tuple[Scheduler, Scheduler]]:
    """Run a leader, and a standby that has listed everything and serves metrics."""
    async with scheduler(kubeconfig, *flags) as leader:
        await leader.saying("leading")
        async with scheduler(kubeconfig, *flags, "--metrics-addr", metrics_addr) as standby:
            await standby.saying("listed")
            yield leader, standby
