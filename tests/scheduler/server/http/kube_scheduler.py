"""A real kube-scheduler with our extender."""

import asyncio
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def running(program: str, arguments: Sequence[str]) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(program, *arguments, stderr=DEVNULL, stdout=DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            await process.wait()
