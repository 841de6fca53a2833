"""Load for a CRI socket: callers in turn, at a steady rate, or saturating; each call's latency is kept.

`SHIM_ENVIRONMENT` is what the shim's unit sets.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from devcluster.systemd.units import parse

SERVICE = "/runtime.v1.RuntimeService/"
_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_ANSWER_S = 30.0
_UNIT = Path(__file__).parents[2] / "cli/node/units/mooring-cri-shim.service"
SHIM_ENVIRONMENT = parse(_UNIT.name, [_UNIT.read_text()]).environment
Call = Callable[[], Awaitable[bytes]]


def one_caller(socket: str, method: str, calls: int) -> list[float]:
    """Make so many calls one after the other; return the milliseconds of each."""

    async def load(call: Call) -> list[float]:
        return [await _timed(call) for _ in range(calls)]

    return asyncio.run(_with_channel(socket, method, load))


def steady(socket: str, method: str, rate: float, seconds: float) -> list[float]:
    """Start ``rate`` calls a second whether or not earlier ones have ended; latency counts from the planned moment."""

    async def planned(call: Call, at: float) -> float:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        await call()
        return (time.perf_counter() - at) * 1000

    async def load(call: Call) -> list[float]:
        start = time.perf_counter() + 0.1
        moments = [start + number / rate for number in range(int(rate * seconds))]
        return list(await asyncio.gather(*(planned(call, moment) for moment in moments)))

    return asyncio.run(_with_channel(socket, method, load))


def saturating(socket: str, method: str, callers: int, seconds: float) -> int:
    """Let so many callers call without a pause; return how many calls ended in that time."""

    async def load(call: Call) -> list[float]:
        end = time.perf_counter() + seconds

        async def caller() -> list[float]:
            took = []
            while time.perf_counter() < end:
                took.append(await _timed(call))
            return took

        return [took for one in await asyncio.gather(*(caller() for _ in range(callers))) for took in one]

    return len(asyncio.run(_with_channel(socket, method, load)))


async def _timed(call: Call) -> float:
    start = time.perf_counter()
    await call()
    return (time.perf_counter() - start) * 1000


async def _with_channel(socket: str, method: str, load: Callable[[Call], Awaitable[list[float]]]) -> list[float]:
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=_UNLIMITED) as channel:
        send = channel.unary_unary(SERVICE + method)

        async def call() -> bytes:
            answer: bytes = await send(b"", timeout=_ANSWER_S)
            return answer

        for _ in range(20):
            await call()
        return await load(call)
