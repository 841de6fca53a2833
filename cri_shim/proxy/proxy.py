"""Forward CRI calls to the runtime as bytes, with metadata, deadline, cancellation and status.

Known unary methods use grpc's unary path. All other methods, including future ones, are forwarded as streams of
answers; a stream with a single answer is the same on the wire. CRI has no streams of requests.
`cri_shim.proxy.exec_sync` forwards ExecSync.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import lru_cache, partial
from typing import TypeAlias

import grpc

from mooring.program.large_work import Rest

Context: TypeAlias = "grpc.aio.ServicerContext"
Metadata = tuple[tuple[str, str | bytes], ...]
Intercept = Callable[[bytes], AbstractAsyncContextManager[bytes]]
# Called with method, status code, total seconds, and the seconds of these spent waiting for the runtime.
Observe = Callable[[str, grpc.StatusCode, float, float], None]

CRI_PREFIX = "/runtime.v1."
_ALPHA_PREFIX = "/runtime.v1alpha2."
_NO_LIMIT = -1
# Status messages are sent as headers, of which grpc-go accepts 16 MiB, but grpc's core only 16 KiB by default.
_HEADER_BYTES = 16 * 1024 * 1024
_SIZES = (
    ("grpc.max_receive_message_length", _NO_LIMIT),
    ("grpc.max_send_message_length", _NO_LIMIT),
    ("grpc.max_metadata_size", _HEADER_BYTES),
    ("grpc.absolute_max_metadata_size", _HEADER_BYTES),
)
_INT32_MAX = (1 << 31) - 1
# After an answer of this size, freed memory is returned to the system.
LARGE_ANSWER_BYTES = 1 << 20
# By default grpc's core cancels calls of any caller once 1,000 are waiting, and those that have waited for 30 s; the
# runtime's server does not. Source: GRPC_ARG_SERVER_MAX_UNREQUESTED_TIME_IN_SERVER_SECONDS of channel_arg_names.h.
SERVER_OPTIONS = (
    *_SIZES,
    ("grpc.so_reuseport", 0),
    ("grpc.server_max_unrequested_time_in_server", _INT32_MAX),
    ("grpc.server.max_pending_requests", _INT32_MAX),
    ("grpc.server.max_pending_requests_hard_limit", _INT32_MAX),
)
# A runtime restarts within a second; grpc's default back-off would grow to two minutes.
CHANNEL_OPTIONS = (
    *_SIZES,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
)
# Each side's transport sets these itself.
_HOP_BY_HOP = ("user-agent", "grpc-accept-encoding", "grpc-encoding", "grpc-timeout")

_RUNTIME_UNARY = (
    "Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox CreateContainer"
    " StartContainer StopContainer RemoveContainer ListContainers ContainerStatus UpdateContainerResources"
    " ReopenContainerLog ExecSync Exec Attach PortForward ContainerStats ListContainerStats PodSandboxStats"
    " ListPodSandboxStats UpdateRuntimeConfig Status CheckpointContainer ListMetricDescriptors"
    " ListPodSandboxMetrics RuntimeConfig UpdatePodSandboxResources"
)
_IMAGE_UNARY = "ListImages ImageStatus PullImage RemoveImage ImageFsInfo"
# Lists as streams: KEP-5825.
_RUNTIME_STREAMS = (
    "GetContainerEvents StreamPodSandboxes StreamContainers StreamContainerStats StreamPodSandboxStats"
    " StreamPodSandboxMetrics"
)
_IMAGE_STREAMS = "StreamImages"


def _methods(runtime: str, image: str) -> frozenset[str]:
    services = (("RuntimeService", runtime), ("ImageService", image))
    return frozenset(f"{CRI_PREFIX}{service}/{method}" for service, methods in services for method in methods.split())


UNARY = _methods(_RUNTIME_UNARY, _IMAGE_UNARY)
STREAMS = _methods(_RUNTIME_STREAMS, _IMAGE_STREAMS)


class RefusedError(Exception):
    """A request that is not forwarded; the text is the message for its caller."""


class Proxy:
    """Serves runtime.v1 by forwarding it to ``channel``.

    ``intercepts`` maps a unary method to a context manager that gets the request's bytes and yields the bytes to
    forward, or raises `RefusedError`. It stays open until the runtime has answered.
    """

    def __init__(self, channel: grpc.aio.Channel, intercepts: Mapping[str, Intercept], observe: Observe) -> None:
        self._channel = channel
        self._intercepts = intercepts
        self._observe = observe
        self._rest = Rest()
        # The cache is bounded, because callers choose the names.
        self._way = lru_cache(maxsize=256)(self._find_way)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method; None for a method outside of CRI."""
        return self._way(details.method)

    def _find_way(self, method: str) -> grpc.RpcMethodHandler | None:
        if method.startswith(_ALPHA_PREFIX):
            return grpc.unary_unary_rpc_method_handler(_refuse_old)
        if not method.startswith(CRI_PREFIX):
            return None
        if method in UNARY:
            intercept: Intercept = self._intercepts.get(method, nullcontext)
            upstream = self._channel.unary_unary(method)
            return grpc.unary_unary_rpc_method_handler(partial(self._forward_unary, method, upstream, intercept))
        return grpc.unary_stream_rpc_method_handler(
            partial(self._forward_stream, method, self._channel.unary_stream(method))
        )

    async def _forward_unary(
        self,
        method: str,
        upstream: grpc.aio.UnaryUnaryMultiCallable,
        intercept: Intercept,
        request: bytes,
        context: Context,
    ) -> bytes:
        async with (
            mirror_status(method, context, self._observe) as runtime_wait,
            intercept(request) as upstream_request,
        ):
            with runtime_wait:
                call = upstream(upstream_request, timeout=context.time_remaining(), metadata=forward_metadata(context))
                return await self._answer(call, context)
        raise AssertionError("abort returned")

    async def _answer(self, call: grpc.aio.UnaryUnaryCall, context: Context) -> bytes:
        try:
            answer: bytes = await asyncio.shield(asyncio.ensure_future(call))
        except asyncio.CancelledError:
            cancel(call)
            raise
        except grpc.aio.AioRpcError as failure:
            await send_headers(failure.initial_metadata(), context)
            raise
        await send_headers(await call.initial_metadata(), context)
        if trailers := tuple(await call.trailing_metadata()):
            context.set_trailing_metadata(trailers)
        if len(answer) > LARGE_ANSWER_BYTES:
            self._rest.begin()
        return answer

    async def _forward_stream(
        self, method: str, upstream: grpc.aio.UnaryStreamMultiCallable, request: bytes, context: Context
    ) -> None:
        async with mirror_status(method, context, self._observe) as runtime_wait:
            with runtime_wait:
                call = upstream(request, timeout=context.time_remaining(), metadata=forward_metadata(context))
                try:
                    await context.send_initial_metadata(tuple(await call.initial_metadata()))
                    while (message := await call.read()) is not grpc.aio.EOF:
                        await context.write(message)  # Waits until the client can receive more.
                    context.set_trailing_metadata(tuple(await call.trailing_metadata()))
                finally:
                    call.cancel()  # If the client disconnected, the runtime would continue without a reader.


class RuntimeWait:
    """Measures the seconds that a call waits for the runtime: the time within the context."""

    __slots__ = ("_began_s", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._began_s


@asynccontextmanager
async def mirror_status(method: str, context: Context, observe: Observe) -> AsyncIterator[RuntimeWait]:
    """End a call with the status of the block's error, and observe it; the yielded context measures waiting."""
    code = grpc.StatusCode.OK
    started_s, runtime_wait = time.monotonic(), RuntimeWait()
    try:
        yield runtime_wait
    except RefusedError as refusal:
        code = grpc.StatusCode.FAILED_PRECONDITION
        await context.abort(code, str(refusal))
    except grpc.aio.AioRpcError as failure:
        code = failure.code()
        # The runtime's own status; grpc-status-details-bin is one of the trailers.
        await context.abort(code, failure.details() or "", tuple(failure.trailing_metadata()))
    except asyncio.CancelledError:
        code = grpc.StatusCode.CANCELLED
        raise
    finally:
        observe(method, code, time.monotonic() - started_s, runtime_wait.seconds)


def cancel(call: grpc.aio.Call) -> None:
    """Cancel a call without ending its task, which must free the 1 KiB that grpc's core holds for the call.

    ``call.cancel()`` would end the task before that. Source: https://github.com/grpc/grpc/issues/43360.
    """
    call._cython_call.cancel("")


def forward_metadata(context: Context) -> Metadata:
    return tuple((key, value) for key, value in context.invocation_metadata() or () if key not in _HOP_BY_HOP)


async def send_headers(metadata: Iterable[tuple[str, str | bytes]], context: Context) -> None:
    if headers := tuple(metadata):
        await context.send_initial_metadata(headers)


async def _refuse_old(_request: bytes, context: Context) -> None:
    await context.abort(
        grpc.StatusCode.UNIMPLEMENTED,
        "mooring-cri-shim forwards CRI runtime.v1 only; runtime.v1alpha2 ended with Kubernetes 1.26",
    )
