"""Forward ExecSync calls, which tenants cause with exec probes, as often and with answers as large as they want.

ExecSync calls only delay each other before they are accepted: grpc's core has one queue for each registered method, and
one for all others. Source: RequestMatcher in src/core/server/server.cc of grpc.

At most two answers are read from the runtime at a time. An answer may have 16 MiB (containerd's limit). It is copied
several times, which blocks the event loop for tens of milliseconds. So it is read as a stream of one message: grpc's
core receives only as much of an unread stream as the flow control window allows, and the rest stays in the runtime.
Source: StreamFlowControl in src/core/ext/transport/chttp2/transport/flow_control.cc.
"""

import asyncio
from collections.abc import Callable, Mapping

import grpc

from cri_shim.proxy.proxy import (
    CHANNEL_OPTIONS,
    CRI_PREFIX,
    LARGE_ANSWER_BYTES,
    Context,
    Observe,
    cancel,
    forward_metadata,
    mirror_status,
    send_headers,
)
from mooring.program.large_work import Rest, Turns

RUNTIME_SERVICE = f"{CRI_PREFIX}RuntimeService".removeprefix("/")
# Without the probe the window stays at HTTP/2's 64 KiB; with it the core lets each stream's window grow to megabytes.
EXEC_CHANNEL_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.http2.bdp_probe", 0))
_NAME = "ExecSync"
_METHOD = f"{CRI_PREFIX}RuntimeService/{_NAME}"
# Answers up to this size fit into the window and arrive at once; larger ones block the event loop.
_SMALL_BYTES = 1 << 16
# Answers read at a time. A turn takes as many rounds of the event loop as accepting a call; with one turn, small
# answers would wait.
_PARALLEL_READS = 2
# After this many concurrent calls, freed memory is returned to the system.
_BUSY_CALLS = 100
# Seconds for which a runtime or kubelet that stops in the middle of an answer can delay others.
LONGEST_TURN_S = 1.0
# Number of requests whose large answers are remembered.
_REMEMBERED_REQUESTS = 4096


class ExecSync:
    """Forwards ExecSync through ``channel``, which has `EXEC_CHANNEL_OPTIONS`."""

    def __init__(self, channel: grpc.aio.Channel, observe: Observe) -> None:
        self._send = channel.unary_stream(_METHOD)
        self._observe = observe
        self._turns = Turns(_PARALLEL_READS)
        self._rest = Rest()
        self._under_way = 0
        # Sizes of the last large answers, by the hash of the request.
        self._large: dict[int, int] = {}

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler]:
        """Return the handlers that a server registers for `RUNTIME_SERVICE`."""
        return {_NAME: grpc.unary_unary_rpc_method_handler(self._forward)}

    async def _forward(self, request: bytes, context: Context) -> bytes:
        self._under_way += 1
        _at_the_end(self._end_call)
        async with mirror_status(_METHOD, context, self._observe) as runtime_wait:
            with runtime_wait:
                call = self._send(request, timeout=context.time_remaining(), metadata=forward_metadata(context))
            try:
                with runtime_wait:
                    await send_headers(await call.initial_metadata(), context)
                turn = await self._turn(hash(request))
                with runtime_wait:
                    # Shielded, so that a read completes: otherwise grpc would not free the received data.
                    answer: bytes = await asyncio.shield(asyncio.ensure_future(call.read()))
                    turn.set_size(len(answer))
                    await _trailers(call, context)
            except asyncio.CancelledError:
                cancel(call)
                raise
            return answer
        raise AssertionError("abort returned")

    def _end_call(self, _: object) -> None:
        if self._under_way > _BUSY_CALLS:
            self._rest.begin()
        self._under_way -= 1

    async def _turn(self, request: int) -> "_Turn":
        """Wait for a turn to read an answer; answers that are expected to be small come first."""
        if self._turns.taken_count == _PARALLEL_READS:
            # Other calls are waiting, so the freed memory is returned to the system later.
            self._rest.begin()
        await self._turns.take(self._large.get(request, 0))
        turn = _Turn(self._turns)

        def end_turn(_: object) -> None:
            self._learn(request, turn.answer_bytes)
            turn.end()

        _at_the_end(end_turn)
        return turn

    def _learn(self, request: int, answer_bytes: int) -> None:
        self._large.pop(request, None)
        if answer_bytes > _SMALL_BYTES:
            self._large[request] = answer_bytes
            if len(self._large) > _REMEMBERED_REQUESTS:
                del self._large[next(iter(self._large))]
        if answer_bytes > LARGE_ANSWER_BYTES:
            self._rest.begin()


def _at_the_end(act: Callable[[object], None]) -> None:
    """Call ``act`` once the answer is sent or the call has failed: grpc serves each call in a task.

    The context's own callbacks would keep the call alive in a reference cycle.
    """
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(act)


class _Turn:
    """A turn to read an answer; it ends when a small answer is received or a large one sent, or after LONGEST_TURN_S.

    After a large answer the next turn waits as long as this one took, to give the event loop to other calls.
    """

    def __init__(self, turns: Turns) -> None:
        self.answer_bytes = 0
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._passed_on = False
        self._time_limit = self._loop.call_later(LONGEST_TURN_S, self._pass_on)

    def set_size(self, answer_bytes: int) -> None:
        self.answer_bytes = answer_bytes
        if answer_bytes <= _SMALL_BYTES:
            self._pass_on()

    def end(self) -> None:
        if not self._passed_on and self.answer_bytes > _SMALL_BYTES:
            self._loop.call_later(self._loop.time() - self._began_s, self._pass_on)
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        if not self._passed_on:
            self._passed_on = True
            self._time_limit.cancel()
            self._turns.pass_on()


async def _trailers(call: grpc.aio.UnaryStreamCall, context: Context) -> None:
    if trailers := tuple(await call.trailing_metadata()):
        context.set_trailing_metadata(trailers)
    if await call.code() is not grpc.StatusCode.OK:
        await call.read()  # Raises what the runtime has sent after its answer.
