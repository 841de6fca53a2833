"""Forward ExecSync, which a tenant has made as often as he wants, for answers as long as he wants: by exec probes.

A call waits to be accepted behind others of ExecSync only. grpc's core has a queue for each method that is registered,
and one for all others. Source: RequestMatcher in src/core/server/server.cc of grpc.

Answers come from the runtime two at a time. One of 16 MiB, which is what containerd keeps, is copied several times on
its way, and the event loop does nothing else for tens of milliseconds. So it is read as a stream, of one message. Of a
stream that nobody reads, grpc's core takes what the window of its flow control has room for; the rest stays with the
runtime. Source: StreamFlowControl in src/core/ext/transport/chttp2/transport/flow_control.cc.
"""

import asyncio
from collections.abc import Callable, Mapping

import grpc

from cri_shim.proxy.proxy import (
    CHANNEL_OPTIONS,
    LARGE_ANSWER_BYTES,
    SERVED,
    Context,
    Observe,
    cancel,
    ended_alike,
    send_headers,
    sent_on,
)
from mooring.program.large_work import Rest, Turns

RUNTIME_SERVICE = f"{SERVED}RuntimeService".removeprefix("/")
# Without the probe the window stays at HTTP/2's 64 KiB; with it the core lets it grow to megabytes, for each stream.
EXEC_CHANNEL_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.http2.bdp_probe", 0))
_NAME = "ExecSync"
_METHOD = f"{SERVED}RuntimeService/{_NAME}"
# What comes at once, as it fits the window; one that is larger keeps the event loop.
_SMALL_BYTES = 1 << 16
# A turn takes about as many rounds of the event loop as it takes to accept a call: with one, small answers would wait.
_AT_ONCE = 2
# What so many calls at once leave in the heap is worth giving back.
_MANY = 100
# A runtime or a kubelet that stops in the middle of an answer holds up others for so long.
LONGEST_TURN_S = 1.0
# Of so many requests it is known that their answers were large.
_KNOWN = 4096


class ExecSync:
    """ExecSync by ``channel``, which has `EXEC_CHANNEL_OPTIONS`."""

    def __init__(self, channel: grpc.aio.Channel, observe: Observe) -> None:
        self._send = channel.unary_stream(_METHOD)
        self._observe = observe
        self._turns = Turns(_AT_ONCE)
        self._rest = Rest()
        self._under_way = 0
        # The size of the last answer to a request by its hash, where it was large.
        self._large: dict[int, int] = {}

    def handlers(self) -> Mapping[str, grpc.RpcMethodHandler]:
        """Return what a server registers for `RUNTIME_SERVICE`."""
        return {_NAME: grpc.unary_unary_rpc_method_handler(self._once)}

    async def _once(self, request: bytes, context: Context) -> bytes:
        self._under_way += 1
        _at_the_end(self._gone)
        async with ended_alike(_METHOD, context, self._observe) as waited:
            with waited:
                call = self._send(request, timeout=context.time_remaining(), metadata=sent_on(context))
            try:
                with waited:
                    await send_headers(await call.initial_metadata(), context)
                turn = await self._turn(hash(request))
                with waited:
                    # A read that has begun completes: grpc would not free what it has received.
                    answer: bytes = await asyncio.shield(asyncio.ensure_future(call.read()))
                    turn.received(len(answer))
                    await _trailers(call, context)
            except asyncio.CancelledError:
                cancel(call)
                raise
            return answer
        raise AssertionError("abort returned")

    def _gone(self, _: object) -> None:
        if self._under_way > _MANY:
            self._rest.begin()
        self._under_way -= 1

    async def _turn(self, request: int) -> "_Turn":
        """Return when an answer may be read. Small ones come first, as far as is known, then the smallest."""
        if self._turns.taken == _AT_ONCE:
            # Others wait to be accepted, and they leave as much.
            self._rest.begin()
        await self._turns.take(self._large.get(request, 0))
        turn = _Turn(self._turns)

        def over(_: object) -> None:
            self._learn(request, turn.answer_bytes)
            turn.end()

        _at_the_end(over)
        return turn

    def _learn(self, request: int, answer_bytes: int) -> None:
        self._large.pop(request, None)
        if answer_bytes > _SMALL_BYTES:
            self._large[request] = answer_bytes
            if len(self._large) > _KNOWN:
                del self._large[next(iter(self._large))]
        if answer_bytes > LARGE_ANSWER_BYTES:
            self._rest.begin()


def _at_the_end(act: Callable[[object], None]) -> None:
    """Act once the answer is sent, or the call has failed: grpc serves each call in a task.

    The context's own callbacks would keep the call, in a cycle, until the garbage is collected.
    """
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(act)


class _Turn:
    """A turn that is passed on once a small answer is received, or a large one sent; at the latest when it is too long.

    After a large answer the event loop is for others as long as it was for this one.
    """

    def __init__(self, turns: Turns) -> None:
        self.answer_bytes = 0
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._passed_on = False
        self._too_long = self._loop.call_later(LONGEST_TURN_S, self._pass_on)

    def received(self, answer_bytes: int) -> None:
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
            self._too_long.cancel()
            self._turns.pass_on()


async def _trailers(call: grpc.aio.UnaryStreamCall, context: Context) -> None:
    if trailers := tuple(await call.trailing_metadata()):
        context.set_trailing_metadata(trailers)
    if await call.code() is not grpc.StatusCode.OK:
        await call.read()  # Raises what the runtime has sent after its answer.
