"""What a CRI client notices while the shim is replaced: calls at a steady rate, an ExecSync and an event stream open.

The client reconnects as the kubelet does (minConnectionTimeout, baseBackoffDelay and maxBackoffDelay in
staging/src/k8s.io/cri-client/pkg of Kubernetes: 5 s, 0.1 s, 3 s). As in grpc-go, a call that was not sent on a
connection that ends is sent on the next: that is grpc's transparent retry, on unless a channel turns retries off.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri

SERVICE = "/runtime.v1.RuntimeService/"
_AS_THE_KUBELET = (
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
)
_ANSWER_S = 30.0
_EVENT_S = 0.02
_LOOK_S = 0.01
# A kubelet polls every 5 s.
_POLL_S = 1.0
_WHY = 100


@dataclass(slots=True)
class Notices:
    """What was noticed: ``failing_s`` from the first failed call to the last, ``unserved_s`` while nobody listened."""

    calls: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    failing_s: float = 0.0
    slowest_s: float = 0.0
    unserved_s: float = 0.0
    exec_sync: str = ""
    stream: str = ""
    events: int = 0
    events_lost: int = 0


class _Runtime(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """A runtime that answers at once, but for ``ExecSync``, which lasts its second word, and events without an end."""

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]
        if method == "GetContainerEvents":
            return grpc.unary_stream_rpc_method_handler(self._events)
        return grpc.unary_unary_rpc_method_handler(self._exec_sync if method == "ExecSync" else self._once)

    async def _once(self, _request: bytes, _context: Any) -> bytes:
        return bytes(cri.VersionResponse(runtime_name="bench", runtime_version="1").SerializeToString())

    async def _exec_sync(self, request: bytes, _context: Any) -> bytes:
        await asyncio.sleep(float(cri.ExecSyncRequest.FromString(request).cmd[1]))
        return bytes(cri.ExecSyncResponse(stdout=b"done").SerializeToString())

    async def _events(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        number = 0
        while True:
            yield cri.ContainerEventResponse(container_id=str(number)).SerializeToString()
            number += 1
            await asyncio.sleep(_EVENT_S)


async def start_runtime(path: str) -> grpc.aio.Server:
    """Serve the runtime at a socket."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Runtime(),))
    server.add_insecure_port(f"unix://{path}")
    await server.start()
    return server


async def serve_runtime(path: str) -> None:
    """Serve the runtime at a socket, until cancelled."""
    await (await start_runtime(path)).wait_for_termination()


async def poll_status(path: str) -> None:
    """Request the runtime's Status at a socket again and again as a kubelet does, answered or not, until cancelled."""
    async with grpc.aio.insecure_channel(f"unix://{path}", options=_AS_THE_KUBELET) as channel:
        status = channel.unary_unary(f"{SERVICE}Status")
        while True:
            with suppress(grpc.aio.AioRpcError):
                await status(b"", timeout=_ANSWER_S)
            await asyncio.sleep(_POLL_S)


async def notice(path: str, rate: float, seconds: float, begun: Callable[[], None]) -> Notices:
    """Call at ``rate`` for so many seconds once ``begun`` was called; the ExecSync lasts as long."""
    notices, failures = Notices(), list[float]()
    async with grpc.aio.insecure_channel(f"unix://{path}", options=_AS_THE_KUBELET) as channel:
        version = channel.unary_unary(f"{SERVICE}Version")
        await version(b"", timeout=_ANSWER_S, wait_for_ready=True)
        beside = [
            asyncio.create_task(_exec_sync(channel, seconds, notices)),
            asyncio.create_task(_stream(channel, notices)),
            asyncio.create_task(_look(path, notices)),
        ]
        begun()
        start = time.perf_counter() + 0.1

        async def call(at: float) -> None:
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            began = time.perf_counter()
            try:
                await version(b"", timeout=_ANSWER_S)
            except grpc.aio.AioRpcError as failure:
                failures.append(time.perf_counter())
                why = f"{failure.code().name}: {(failure.details() or '')[:_WHY]}"
                notices.failed[why] = notices.failed.get(why, 0) + 1
            notices.slowest_s = max(notices.slowest_s, time.perf_counter() - began)

        calls = [call(start + number / rate) for number in range(int(rate * seconds))]
        await asyncio.gather(*calls)
        await beside[0]
        for task in beside[1:]:
            task.cancel()
    notices.calls = len(calls)
    notices.failing_s = round(max(failures) - min(failures), 3) if failures else 0.0
    return notices


async def _exec_sync(channel: Any, seconds: float, notices: Notices) -> None:
    request = cri.ExecSyncRequest(cmd=["sleep", str(seconds)])
    try:
        await channel.unary_unary(f"{SERVICE}ExecSync")(request.SerializeToString(), timeout=seconds + _ANSWER_S)
        notices.exec_sync = "answered"
    except grpc.aio.AioRpcError as failure:
        notices.exec_sync = f"failed: {failure.code().name}"


async def _stream(channel: Any, notices: Notices) -> None:
    """Read events until the stream ends: a kubelet would count that as one of the five failures that it allows."""
    notices.stream = "open"
    following = 0
    try:
        async for raw in channel.unary_stream(f"{SERVICE}GetContainerEvents")(b""):
            number = int(cri.ContainerEventResponse.FromString(raw).container_id)
            notices.events_lost += number - following
            following, notices.events = number + 1, notices.events + 1
        notices.stream = "ended"
    except grpc.aio.AioRpcError as failure:
        notices.stream = f"failed: {failure.code().name}"


async def _look(path: str, notices: Notices) -> None:
    """Connect again and again; add up for how long nobody listens."""
    last = time.perf_counter()
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.connect(path)
            except OSError:
                notices.unserved_s += time.perf_counter() - last
        last = time.perf_counter()
        await asyncio.sleep(_LOOK_S)
