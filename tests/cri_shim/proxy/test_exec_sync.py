"""ExecSync, which a tenant's probes make as often as he wants, with answers as long as he wants."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from cri_shim.proxy.exec_sync import LONGEST_TURN_S
from tests.cri_shim.served import OPTIONS, Shim, stubs
from tests.support.heap import heap_bytes
from tests.support.polling import until

_LARGE = 4 << 20
_DETAILS = (("grpc-status-details-bin", b"\x08\x05\xff"), ("trailer", "last"))


class Probed:
    """A runtime that does what the command of an ExecSync says, and answers anything else with nothing."""

    def __init__(self) -> None:
        self.begun = self.sent = 0
        self.metadata: tuple[tuple[str, Any], ...] = ()

    async def start(self, path: Path) -> None:
        self._server: Any = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix://{path}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def service(self, details: Any) -> Any:
        if not details.method.endswith("/ExecSync"):
            return grpc.unary_unary_rpc_method_handler(_nothing)
        return grpc.unary_stream_rpc_method_handler(self._exec)

    async def _exec(self, raw: bytes, context: Any) -> None:
        request = cri.ExecSyncRequest.FromString(raw)
        self.begun += 1
        self.metadata = tuple(context.invocation_metadata())
        await context.send_initial_metadata((("header", "first"),))
        command, *rest = request.cmd
        if command == "hang":
            await asyncio.Event().wait()
        if command != "fail":
            await context.write(answer(request.container_id, int(rest[0])).SerializeToString())
            self.sent += 1
        context.set_trailing_metadata((("trailer", "last"),))
        if command != "print":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container", _DETAILS)


async def _nothing(_request: bytes, _context: Any) -> bytes:
    return b""


def answer(container: str, size: int) -> cri.ExecSyncResponse:
    """Return what a container's command prints: another one for each."""
    return cri.ExecSyncResponse(stdout=(container.encode() * (size // len(container) + 1))[:size], exit_code=3)


def exec_sync(channel: Any, container: str, *command: str, **options: Any) -> Any:
    runtime, _ = stubs(channel)
    return runtime.ExecSync(cri.ExecSyncRequest(container_id=container, cmd=command), **options)


@pytest.fixture
def fake_runtime() -> Probed:
    return Probed()


@pytest.fixture
async def hung(shim: Shim, channel: Any) -> AsyncIterator[list[Any]]:
    """Calls that have all turns: the runtime began to answer them, and does not go on."""
    calls = await _hang(shim, channel)
    yield calls
    for call in calls:
        call.cancel()


async def _hang(shim: Shim, channel: Any) -> list[Any]:
    begun = shim.runtime.begun
    calls = [asyncio.ensure_future(exec_sync(channel, "hung", "hang")) for _ in range(2)]
    await until(lambda: shim.runtime.begun == begun + 2)
    return calls


async def test_answers_of_all_sizes_pass_unchanged_with_headers_and_trailers(shim: Shim, channel: Any) -> None:
    """Also an empty one, and as much as containerd keeps, for a kubelet whose call has metadata."""
    assert cri.ExecSyncResponse().SerializeToString() == b""
    for size in (0, 1, (1 << 16) - 16, 1 << 16, 16 << 20):
        call = exec_sync(channel, f"c{size}", "print", str(size), metadata=(("traceparent", "00-1"),))
        assert await call == answer(f"c{size}", size)
        assert ("header", "first") in tuple(await call.initial_metadata())
        assert ("trailer", "last") in tuple(await call.trailing_metadata())
        assert ("traceparent", "00-1") in shim.runtime.metadata
    await until(lambda: shim.count("ExecSync", "OK") == 5)


@pytest.mark.parametrize("command", [("fail",), ("print and fail", "10")])
async def test_an_error_passes_with_its_details(channel: Any, command: tuple[str, ...]) -> None:
    """In place of the answer or after it; the headers before it, too."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await exec_sync(channel, "c", *command)
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.NOT_FOUND, "no such container")
    assert set(_DETAILS) <= set(error.value.trailing_metadata())
    assert ("header", "first") in tuple(error.value.initial_metadata())


async def test_large_answers_come_a_few_at_a_time(shim: Shim, channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others stay with the runtime until those are the kubelet's, which does not read: then all of them come.

    Without the probe its window stays at 64 KiB; it could grow to hold an answer that nobody reads.
    """
    monkeypatch.setattr("cri_shim.proxy.exec_sync.LONGEST_TURN_S", 60.0)
    runtime, _ = stubs(channel)
    names = [f"c{number}" for number in range(16)]
    requests = (cri.ExecSyncRequest(container_id=name, cmd=("print", str(_LARGE))) for name in names)
    async with grpc.aio.insecure_channel(
        f"unix://{shim.socket}", options=(*OPTIONS, ("grpc.http2.bdp_probe", 0))
    ) as kubelet:
        method = kubelet.unary_stream("/runtime.v1.RuntimeService/ExecSync")
        calls = [method(request.SerializeToString()) for request in requests]
        await until(lambda: shim.runtime.begun == 16 and shim.runtime.sent == 2)
        for _ in range(100):
            await runtime.Version(cri.VersionRequest())
        assert shim.runtime.sent == 2
        received = await asyncio.gather(*(call.read() for call in calls))
    assert [cri.ExecSyncResponse.FromString(raw) for raw in received] == [answer(name, _LARGE) for name in names]


async def test_other_calls_do_not_wait_behind_thousands(channel: Any) -> None:
    """Calls of ExecSync wait to be accepted behind their own kind only."""
    answered = 0

    async def ask() -> None:
        nonlocal answered
        await exec_sync(channel, "c", "print", "1")
        answered += 1

    flood = [asyncio.create_task(ask()) for _ in range(3000)]
    await until(lambda: answered > 0)
    before = answered
    runtime, _ = stubs(channel)
    await runtime.Version(cri.VersionRequest())
    assert answered - before < 600
    await asyncio.gather(*flood)


async def test_an_answer_that_stops_holds_up_others_for_a_second(hung: list[Any], channel: Any) -> None:
    """A runtime that hangs costs only its own calls."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await exec_sync(channel, "c", "print", "1", timeout=60) == answer("c", 1)
    assert loop.time() - began_s > LONGEST_TURN_S / 2
    assert not any(call.done() for call in hung)


async def test_small_answers_come_before_those_that_were_large(
    shim: Shim, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that prints a word does not wait for all those of a tenant that print megabytes."""
    monkeypatch.setattr("cri_shim.proxy.exec_sync.LONGEST_TURN_S", 60.0)
    for number in range(4):
        await exec_sync(channel, f"large{number}", "print", str(_LARGE))
    order = list[str]()

    async def ask(container: str, size: int) -> None:
        await exec_sync(channel, container, "print", str(size))
        order.append(container)

    hung = await _hang(shim, channel)
    begun = shim.runtime.begun
    waiting = [asyncio.create_task(ask(f"large{number}", _LARGE)) for number in range(4)]
    await until(lambda: shim.runtime.begun == begun + 4)
    waiting.append(asyncio.create_task(ask("small", 1)))
    await until(lambda: shim.runtime.begun == begun + 5)
    for call in hung:
        call.cancel()
    await asyncio.gather(*waiting)
    assert order[0] == "small"


async def test_callers_that_leave_pass_their_turns_on_and_leave_no_memory(channel: Any) -> None:
    """Before their turn has come, while their answer is on its way, and in between."""

    async def leave(after_s: float) -> None:
        with suppress(grpc.aio.AioRpcError):
            await exec_sync(channel, "c", "print", str(_LARGE), timeout=after_s)

    async def leave_together() -> None:
        await asyncio.gather(*(leave(0.004 * number) for number in range(20)))
        await exec_sync(channel, "c", "print", "1", timeout=60)

    def used_bytes() -> int:
        gc.collect()
        return heap_bytes()

    for _ in range(2):
        await leave_together()
        await asyncio.sleep(0.5)
    before = used_bytes()
    for _ in range(3):
        await leave_together()
    # grpc's core frees what it has for a call some time after the call's end, and tells nobody; a leak stays.
    await until(lambda: used_bytes() - before < _LARGE, "the calls' memory is freed")


async def test_a_call_that_has_ended_is_freed_without_the_garbage_collector(channel: Any) -> None:
    """A cycle would keep all that grpc has for it, tens of kilobytes, until some later collection."""

    def held() -> int:
        return sum(type(one).__name__ == "RPCState" for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = held()
        for _ in range(100):
            await exec_sync(channel, "c", "print", "1")
        await until(lambda: held() < before + 50)
    finally:
        gc.enable()
