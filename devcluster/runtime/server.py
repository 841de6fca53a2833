"""Serve the fake runtime as CRI v1 on a unix socket; missing methods answer UNIMPLEMENTED."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri

from devcluster.runtime import images, mounts
from devcluster.runtime.chain import Chain
from devcluster.runtime.fake import FakeRuntime, answer

_STOP_GRACE_S = 1.0
_RUNTIME_METHODS = (
    *("Version", "Status", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus"),
    *("ListPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "ContainerStatus"),
    *("ListContainers", "ExecSync"),
)
_IMAGE_METHODS = ("ImageStatus", "ListImages", "PullImage")
_Calls = set["asyncio.Task[Any]"]


@contextlib.asynccontextmanager
async def serving(socket: Path, folder: Path, chain: Chain, further_images: Sequence[str]) -> AsyncIterator[None]:
    """Serve a fake runtime that keeps its files in ``folder``; its pods are taken down at the end of the block."""
    mounts.unmount_below(folder)
    root = images.write_root(folder / "root")
    names = {images.BUSYBOX, images.PAUSE, *map(images.full_name, further_images)}
    runtime = FakeRuntime(folder, chain, root, names)
    calls: _Calls = set()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            _methods("runtime.v1.RuntimeService", _RUNTIME_METHODS, runtime, calls),
            _methods("runtime.v1.ImageService", _IMAGE_METHODS, runtime, calls),
        )
    )
    socket.parent.mkdir(parents=True, exist_ok=True)
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(_STOP_GRACE_S)
        await _end(calls)
        await asyncio.shield(runtime.stop_all())


async def _end(calls: _Calls) -> None:
    """Wait for calls whose clients have gone: they still give back what they took, which `stop_all` does not see.

    What lasts longer than the grace time is cancelled, and so is what it begins then.
    """
    while calls:
        _, late = await asyncio.wait(calls, timeout=_STOP_GRACE_S)
        for call in late:
            call.cancel()


def _methods(service: str, names: Sequence[str], runtime: FakeRuntime, calls: _Calls) -> grpc.GenericRpcHandler:
    """Return the handler of one service; CRI names a method's messages after the method."""
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            _method(getattr(runtime, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()), calls),
            request_deserializer=getattr(cri, f"{name}Request").FromString,
            response_serializer=getattr(cri, f"{name}Response").SerializeToString,
        )
        for name in names
    }
    return grpc.method_handlers_generic_handler(service, methods)


def _method(method: Callable[[Any], Awaitable[Any]], calls: _Calls) -> Callable[[Any, Any], Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        running = asyncio.current_task()
        assert running is not None, "grpc runs each call in a task"
        calls.add(running)
        running.add_done_callback(calls.discard)
        return await answer(method(request), context)

    return call
