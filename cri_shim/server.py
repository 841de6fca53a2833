"""Run the shim: the proxy at its socket, the garbage collection of pod records, and the check for devices."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO

import grpc
import structlog
from google.protobuf.message import DecodeError

from cri_shim.devices.device_check import DeviceCheck
from cri_shim.handover.calls import Calls
from cri_shim.handover.give import give, listen_for_successor
from cri_shim.handover.take import Predecessor
from cri_shim.interceptors import CREATE_CONTAINER, RUN_POD_SANDBOX, STOP_POD_SANDBOX, Interceptors
from cri_shim.listen import SCHEME, ListenError, OwnSocket, lock, socket_path
from cri_shim.notify import Systemd as Systemd
from cri_shim.notify import notify
from cri_shim.plan.bypass_rule import STEADY_S
from cri_shim.plan.record_gc import LIST_INTERVAL_S
from cri_shim.proxy.exec_sync import EXEC_CHANNEL_OPTIONS, RUNTIME_SERVICE, ExecSync
from cri_shim.proxy.proxy import CHANNEL_OPTIONS, CRI_PREFIX, SERVER_OPTIONS, Observe, Proxy
from cri_shim.runtime import Runtime

_log = structlog.get_logger()
_GRACE_S = 3.0  # Time for calls in progress to end; streams of events never end.
# The server asks clients to replace a connection of this age (GOAWAY); it ends with its last call. A server that stops
# without this fails calls that are on their way. grpc varies the age by a tenth (GRPC_ARG_MAX_CONNECTION_AGE_MS).
_CONNECTION_AGE_S = 10.0
_CONNECTIONS_GONE_S = _CONNECTION_AGE_S * 1.1 + 1.0
_ANSWER_S = 10.0
_LOOK_S = 1.0  # Seconds between checks of the socket's path.


@dataclass(frozen=True, slots=True)
class Succession:
    """The process to take over from (None: none), and functions to call when this process gets and loses the socket."""

    predecessor: Predecessor | None = None
    in_charge: Callable[[], None] = lambda: None
    let_go: Callable[[], None] = lambda: None


async def serve(
    listen: str,
    runtime: str,
    interceptors: Interceptors,
    check: DeviceCheck,
    observe: Observe,
    stop: asyncio.Event,
    systemd: Systemd,
    list_interval_s: float = LIST_INTERVAL_S,
    succession: Succession | None = None,
) -> None:
    """Serve until ``stop`` is set, or until another process has taken over and the last call here has ended.

    Raise ListenError if another server has the socket or does not hand it over, or OSError, for example if /run is
    full.
    """
    path, handover = socket_path(listen), succession or Succession()
    with _lock_of(path, handover.predecessor) as lock_file:
        async with (
            grpc.aio.insecure_channel(runtime, options=CHANNEL_OPTIONS) as channel,
            grpc.aio.insecure_channel(runtime, options=EXEC_CHANNEL_OPTIONS) as exec_channel,
        ):
            interceptors.ask(Runtime(channel))
            note = _call_observer(check, observe)
            calls = Calls(_proxy(channel, interceptors, note))
            server, own_socket = _server(calls, ExecSync(exec_channel, note)), OwnSocket(path)
            try:
                own_socket.bind(server)
                await server.start()
                await _take_charge(own_socket, runtime, handover.predecessor)
                _begin(interceptors)
                with listen_for_successor(path) as listener:
                    own_socket.place()
                    _log.info("serving", listen=listen, runtime=runtime)
                    intervals = _list_intervals(list_interval_s, taken_over=handover.predecessor is not None)
                    background = (
                        _collect_records(Runtime(channel), interceptors, intervals),
                        check.run(Runtime(channel)),
                        _keep_path(own_socket),
                        _live(systemd),
                    )
                    handover.in_charge()
                    give_socket = partial(give, listener, lock_file, systemd)
                    taken_over = await _work(background, give_socket, stop, systemd, handover.let_go)
                if taken_over:
                    await _first(stop.wait(), _last_call(calls))
            finally:
                await server.stop(_GRACE_S)
                own_socket.remove()


@contextmanager
def _lock_of(path: Path, predecessor: Predecessor | None) -> Iterator[BinaryIO]:
    with lock(path) if predecessor is None else predecessor.lock as lock_file:
        try:
            yield lock_file
        finally:
            if predecessor is not None:
                predecessor.leave()


def _server(calls: Calls, exec_sync: ExecSync) -> grpc.aio.Server:
    age = ("grpc.max_connection_age_ms", round(_CONNECTION_AGE_S * 1000))
    server = grpc.aio.server(options=(*SERVER_OPTIONS, age))
    server.add_generic_rpc_handlers((calls,))
    server.add_registered_method_handlers(RUNTIME_SERVICE, calls.count_calls(exec_sync.handlers()))
    return server


def _call_observer(check: DeviceCheck, observe: Observe) -> Observe:
    def note(method: str, code: grpc.StatusCode, total_s: float, waited_s: float) -> None:
        observe(method, code, total_s, waited_s)
        check.note(method)

    return note


def _proxy(channel: grpc.aio.Channel, interceptors: Interceptors, note: Observe) -> Proxy:
    intercepts = {
        RUN_POD_SANDBOX: interceptors.run_pod_sandbox,
        CREATE_CONTAINER: interceptors.create_container,
        STOP_POD_SANDBOX: interceptors.stop_pod_sandbox,
    }
    return Proxy(channel, intercepts, note)


async def _take_charge(own_socket: OwnSocket, runtime: str, predecessor: Predecessor | None) -> None:
    """Take over from the predecessor once the runtime has answered through this process; raise ListenError.

    Without a predecessor, return at once. During a bypass, first wait until this process serves steadily.
    """
    if predecessor is None:
        if own_socket.is_bypassed:
            await _serve_steadily(own_socket)
        return
    try:
        async with grpc.aio.insecure_channel(f"{SCHEME}{own_socket.name}") as channel:
            await _call_version(channel)
    except grpc.aio.AioRpcError as failure:
        raise ListenError(f"runtime {runtime!r} does not answer through this process: {failure.details()}") from failure
    await asyncio.to_thread(predecessor.take_charge)


async def _call_version(channel: grpc.aio.Channel) -> None:
    await channel.unary_unary(f"{CRI_PREFIX}RuntimeService/Version")(b"", timeout=_ANSWER_S)


async def _serve_steadily(own_socket: OwnSocket) -> None:
    """Wait until the runtime has answered through this process' own socket for STEADY_S without a failure."""
    now_s = asyncio.get_running_loop().time
    since_s = now_s()
    _log.warning("socket is bypassed: testing this shim before it takes the socket back", path=str(own_socket.path))
    async with grpc.aio.insecure_channel(f"{SCHEME}{own_socket.name}", options=CHANNEL_OPTIONS) as channel:
        while now_s() - since_s < STEADY_S:
            try:
                await _call_version(channel)
            except grpc.aio.AioRpcError:
                since_s = now_s()
            await asyncio.sleep(_LOOK_S)


async def _keep_path(own_socket: OwnSocket) -> None:
    """Restore the socket whenever something else is at its path."""
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            if own_socket.is_at_path:
                continue
            if own_socket.is_bypassed:
                await _serve_steadily(own_socket)
            own_socket.place()
            _log.warning("socket restored at its path", path=str(own_socket.path))
        except OSError as error:
            _log.warning("cannot restore the socket at its path", path=str(own_socket.path), reason=str(error))


def _begin(interceptors: Interceptors) -> None:
    """Record that calls are marked from now on; log a failure.

    Pods without VFs do not need the record. Without it the node offers no VFs.
    """
    try:
        interceptors.begin()
    except OSError as error:
        _log.error("cannot write the version of this process", reason=str(error))


async def _work(
    background: Sequence[Awaitable[None]],
    give_socket: Callable[[Callable[[int], None]], Awaitable[None]],
    stop: asyncio.Event,
    systemd: Systemd,
    let_go: Callable[[], None],
) -> bool:
    """Run the work of the socket's owner until ``stop`` is set; return True if another process took over before."""
    tasks = [asyncio.ensure_future(work) for work in background]

    def end(successor: int) -> None:
        notify(systemd.socket, f"MAINPID={successor}")
        # From now on systemd accepts watchdog messages only from the other process (NotifyAccess=main).
        for task in tasks:
            task.cancel()
        let_go()
        _log.info("handed over", to=successor)

    notify(systemd.socket, "READY=1")
    handover = asyncio.ensure_future(give_socket(end))
    await _first(handover, stop.wait())
    if not (taken_over := handover.done()):
        notify(systemd.socket, "STOPPING=1")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return taken_over


async def _first(*awaitables: Awaitable[object]) -> None:
    """Wait until one of the awaitables has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _last_call(calls: Calls) -> None:
    """Wait until clients have moved to the other process, and their last call here has ended."""
    await asyncio.sleep(_CONNECTIONS_GONE_S)
    await calls.wait_for_last()


def _list_intervals(list_interval_s: float, *, taken_over: bool) -> Iterable[float]:
    """Return the pauses between lists in seconds; after a takeover the second list follows soon.

    It then includes the sandboxes from the last calls of the previous process.
    """
    return chain([min(2 * _CONNECTIONS_GONE_S, list_interval_s)] * taken_over, repeat(list_interval_s))


async def _collect_records(runtime: Runtime, interceptors: Interceptors, intervals: Iterable[float]) -> None:
    """List the runtime's sandboxes periodically and remove stale records; a failed list is ignored."""
    for interval_s in intervals:
        try:
            uid_of_sandbox = await runtime.sandbox_uids()
            interceptors.update_sandboxes(uid_of_sandbox)
            await asyncio.to_thread(interceptors.show_handlers)
            await interceptors.collect_records(frozenset(uid_of_sandbox.values()))
        except (grpc.aio.AioRpcError, DecodeError, OSError) as reason:
            _log.warning("cannot list the sandboxes", reason=str(reason))
        await asyncio.sleep(interval_s)


async def _live(systemd: Systemd) -> None:
    while systemd.watchdog_s is not None:
        notify(systemd.socket, "WATCHDOG=1")
        await asyncio.sleep(systemd.watchdog_s)
