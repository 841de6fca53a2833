"""Run the shim: the proxy on its socket, the garbage collection of stale pod records, the check for devices."""

import asyncio
from dataclasses import dataclass

import grpc
import structlog
from google.protobuf.message import DecodeError

from cri_shim.device_check import DeviceCheck
from cri_shim.interceptors import CREATE_CONTAINER, RUN_POD_SANDBOX, STOP_POD_SANDBOX, Interceptors
from cri_shim.listen import bind, owned, socket_path
from cri_shim.notify import notify
from cri_shim.plan.record_gc import LIST_INTERVAL_S
from cri_shim.proxy import CHANNEL_OPTIONS, SERVER_OPTIONS, Observe, Proxy
from cri_shim.runtime import Runtime

_log = structlog.get_logger()
_GRACE_S = 3.0  # Calls in progress may end; a stream of events never would.


@dataclass(frozen=True, slots=True)
class Systemd:
    """How systemd is notified: $NOTIFY_SOCKET, and how often a sign of life is due."""

    socket: str | None = None
    watchdog_s: float | None = None


async def serve(
    listen: str,
    runtime: str,
    interceptors: Interceptors,
    check: DeviceCheck,
    observe: Observe,
    stop: asyncio.Event,
    systemd: Systemd,
    list_interval_s: float = LIST_INTERVAL_S,
) -> None:
    """Serve until ``stop`` is set; raise ListenError if the socket is another server's, OSError if /run is full."""
    path = socket_path(listen)
    with owned(path):
        interceptors.begin()
        async with grpc.aio.insecure_channel(runtime, options=CHANNEL_OPTIONS) as channel:
            interceptors.ask(Runtime(channel))
            server = grpc.aio.server(options=SERVER_OPTIONS)
            intercepts = {
                RUN_POD_SANDBOX: interceptors.run_pod_sandbox,
                CREATE_CONTAINER: interceptors.create_container,
                STOP_POD_SANDBOX: interceptors.stop_pod_sandbox,
            }

            def note(method: str, code: grpc.StatusCode, total_s: float, waited_s: float) -> None:
                observe(method, code, total_s, waited_s)
                check.note(method)

            server.add_generic_rpc_handlers((Proxy(channel, intercepts, note),))
            bind(server, path)
            await server.start()
            background = [
                asyncio.create_task(_collect_records(Runtime(channel), interceptors, list_interval_s)),
                asyncio.create_task(check.run(Runtime(channel))),
                asyncio.create_task(_live(systemd)),
            ]
            notify(systemd.socket, "READY=1")
            _log.info("serving", listen=listen, runtime=runtime)
            await stop.wait()
            notify(systemd.socket, "STOPPING=1")
            for task in background:
                task.cancel()
            await server.stop(_GRACE_S)
            path.unlink(missing_ok=True)


async def _collect_records(runtime: Runtime, interceptors: Interceptors, list_interval_s: float) -> None:
    """List the runtime's sandboxes periodically; a list that fails counts as none."""
    while True:
        try:
            listed = await runtime.sandboxes()
            interceptors.know_sandboxes(listed)
            await interceptors.collect_records(frozenset(listed.values()))
        except (grpc.aio.AioRpcError, DecodeError, OSError) as reason:
            _log.warning("sandboxes not listed", reason=str(reason))
        await asyncio.sleep(list_interval_s)


async def _live(systemd: Systemd) -> None:
    while systemd.watchdog_s is not None:
        notify(systemd.socket, "WATCHDOG=1")
        await asyncio.sleep(systemd.watchdog_s)
