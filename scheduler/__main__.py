"""The scheduler: `mooring-scheduler`, or `python -m scheduler`."""

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from mooring import log, names
from mooring.config import ConfigError, load, option
from mooring.kube.access import Access, AccessError, load_access
from mooring.kube.client import Client
from scheduler import metrics
from scheduler.health import serve
from scheduler.leader import Election
from scheduler.loop import Loop
from scheduler.machine import Machine
from scheduler.writer import Writer

_log = structlog.get_logger()
# A Binding that an earlier leader sent may still arrive for as long as its requests last, in seconds.
_REQUEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Config:
    """Choose the node and the exact VFs for pods that name this scheduler."""

    kubeconfig: str = option("", "kubeconfig file; without it KUBECONFIG, in-cluster, then ~/.kube/config")
    scheduler_name: str = option(names.SCHEDULER_NAME, "pods with this schedulerName are ours")
    leader_elect: bool = option(True, "hold a Lease before deciding anything, so that several may run")
    lease_namespace: str = option("kube-system", "namespace of the Lease")
    metrics_addr: str = option("127.0.0.1:10259", "host:port of /metrics, /healthz, /livez and /readyz, empty for none")


def main(argv: Sequence[str] | None = None) -> int:
    """Schedule until SIGTERM or SIGINT; return the exit status."""
    log.set_up("scheduler")
    try:
        _, config = load(Config, "scheduler", sys.argv[1:] if argv is None else argv, os.environ)
        access = load_access(config.kubeconfig or None)
        asyncio.run(_run(config, access))
    except ConfigError as wrong:
        _log.error("cannot start", reason=str(wrong))
        return 2
    except (AccessError, OSError, ExceptionGroup) as failed:
        _log.error("ended", reason=_reason(failed))
        return 1
    return 0


def _reason(failed: BaseException) -> str:
    return "; ".join(_reason(one) for one in failed.exceptions) if isinstance(failed, ExceptionGroup) else str(failed)


async def _run(config: Config, access: Access) -> None:
    machine = Machine(config.scheduler_name)
    metrics.expose(machine)
    async with Client(access, connections=32, timeout_s=_REQUEST_S) as client:
        loop = Loop(machine, client, Writer(client, config.scheduler_name), time.time)
        async with serve(config.metrics_addr, loop.not_ready):
            work = asyncio.create_task(_lead(config, client, loop) if config.leader_elect else loop.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, _stop, loop, work)
            try:
                await work
            except asyncio.CancelledError:
                _log.info("stopped before it led")


def _stop(loop: Loop, work: "asyncio.Task[None]") -> None:
    """End cleanly: binds that are under way are waited for; one that only waits for the lease just ends."""
    if loop.is_running:
        loop.stop()
    else:
        work.cancel()


async def _lead(config: Config, client: Client, loop: Loop) -> None:
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    election = Election(client, identity, f"{config.scheduler_name}-scheduler", config.lease_namespace)
    if await election.acquire():
        loop.not_before = time.monotonic() + _REQUEST_S
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(election.keep())
        await loop.run()
        keeping.cancel()
    await election.release()


if __name__ == "__main__":
    sys.exit(main())
