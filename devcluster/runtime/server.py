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


@contextlib.asynccontextmanager
async def serving(socket: Path, folder: Path, chain: Chain, further_images: Sequence[str]) -> AsyncIterator[None]:
    """Serve a fake runtime that keeps its files in ``folder``; its pods are taken down at the end of the block."""
    mounts.unmount_below(folder)
    root = images.write_root(folder / "root")
    names = {images.BUSYBOX, images.PAUSE, *map(images.full_name, further_images)}
    runtime = FakeRuntime(folder, chain, root, names)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            _methods("runtime.v1.RuntimeService", _RUNTIME_METHODS, runtime),
            _methods("runtime.v1.ImageService", _IMAGE_METHODS, runtime),
        )
    )
    socket.parent.mkdir(parents=True, exist_ok=True)
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(_STOP_GRACE_S)
        await asyncio.shield(runtime.stop_all())


def _methods(service: str, names: Sequence[str], runtime: FakeRuntime) -> grpc.GenericRpcHandler:
    """Return the handler of one service; CRI names a method's messages after the method."""
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            _method(getattr(runtime, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())),
            request_deserializer=getattr(cri, f"{name}Request").FromString,
            response_serializer=getattr(cri, f"{name}Response").SerializeToString,
        )
        for name in names
    }
    return grpc.method_handlers_generic_handler(service, methods)


def _method(method: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        return await answer(method(request), context)

    return call
