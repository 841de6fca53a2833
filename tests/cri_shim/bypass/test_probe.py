"""The call with the standard library alone, at gRPC's own server and at sockets that are none."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import grpc

from cri_shim.bypass.probe import Probe, call_version
from tests.support.listener import listening_at


async def probed(path: Path, limit_s: float = 60.0) -> Probe:
    return await asyncio.to_thread(call_version, path, limit_s)


async def test_a_runtime_that_answers(tmp_path: Path, fake_runtime: Any) -> None:
    """The answer comes with headers and trailers of the runtime's; the pid is the server's."""
    await fake_runtime.start(tmp_path / "runtime.sock")
    assert await probed(tmp_path / "runtime.sock") == Probe("answers", os.getpid())
    assert fake_runtime.seen.raw == [("Version", b"")]
    await fake_runtime.stop()


async def test_a_server_that_answers_with_an_error_fails(tmp_path: Path) -> None:
    """As a shim whose runtime is down does, and one that forwards nothing any more."""

    class Unavailable(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
        def service(self, _: Any) -> Any:
            async def refuse(_: bytes, context: Any) -> None:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "no runtime")

            return grpc.unary_unary_rpc_method_handler(refuse)

    for handlers in ((Unavailable(),), ()):
        server, path = grpc.aio.server(), tmp_path / "shim.sock"
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix://{path}")
        await server.start()
        assert (await probed(path)).outcome == "fails"
        await server.stop(None)


async def test_a_server_that_accepts_and_says_nothing_hangs(tmp_path: Path) -> None:
    """A process that is stopped accepts nothing, and the kernel connects callers all the same."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "shim.sock"))
        listener.listen()
        assert await probed(tmp_path / "shim.sock", limit_s=0.2) == Probe("hangs", os.getpid())


async def test_no_socket_a_dead_one_and_a_file_fail(tmp_path: Path) -> None:
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    (tmp_path / "file").touch()
    for path in (dead, tmp_path / "file", tmp_path / "missing"):
        assert await probed(path) == Probe("fails")


async def test_a_server_that_speaks_otherwise_fails(tmp_path: Path) -> None:
    """One that ends the connection, also in the middle of a frame."""
    for words in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0"):

        async def answer(_: Any, writer: asyncio.StreamWriter, words: bytes = words) -> None:
            writer.write(words)
            await writer.drain()

        async with listening_at(tmp_path / f"{len(words)}.sock", answer):
            assert (await probed(tmp_path / f"{len(words)}.sock")).outcome == "fails"
