"""The scheduler: `mooring-scheduler`, or `python -m scheduler`."""

import asyncio
import gc
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from uvloop import new_event_loop

from mooring import names
from mooring.kube.access import Access, AccessError, load_access
from mooring.kube.client import Client
from mooring.program import log
from mooring.program.config import ConfigError, load, option
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.server import metrics
from scheduler.server.http.extender_handlers import ExtenderHandlers
from scheduler.server.http.extender_server import serve as extend
from scheduler.server.http.extender_server import server_tls
from scheduler.server.http.health import serve
from scheduler.server.leader import Election
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.server.startup import PolicyCheck, installed_kinds, load_signing_key
from scheduler.state.machine import Machine
from scheduler.state.vfs.lost_vfs import LostVfOptions

_log = structlog.get_logger()
PROGRAM = "mooring-scheduler"
# Seconds after which a Binding's request is given up; a new leader waits as long before its first Binding.
_REQUEST_S = 5.0
_READ_S = 15.0
_CANCEL_AGAIN_S = 1.0
# Allocations net of frees before the youngest generation is collected (some ms), and collections of one generation
# before the next older one: almost never, because the older ones hold the whole cluster. With Python's own thresholds
# (700, 10, 10) garbage collection takes a tenth of all CPU.
_ALLOCATIONS, _YOUNG, _MIDDLE = 20_000, 1_000, 1_000
# Connections for lists and the lease, for conditions and events, and for Bindings, so that none delays another. The
# more Bindings arrive at once, the less CPU an API server and etcd spend on each: 995 µs at 32, 870 at 64, 775 at 128
# (1.36.2, two cores). A server processes 200 writes at once by default (kube-apiserver,
# --max-mutating-requests-inflight).
_READ_CONNECTIONS = 16
_REPORT_CONNECTIONS = 17
_WRITES = 128


@dataclass(frozen=True, slots=True)
class Config:
    """Choose the node and the exact VFs for pods that name this scheduler."""

    kubeconfig: str = option(
        "", "path to a kubeconfig file; if empty, KUBECONFIG, then the in-cluster configuration, then ~/.kube/config"
    )
    scheduler_name: str = option(names.SCHEDULER_NAME, "schedule the pods with this schedulerName")
    leader_elect: bool = option(True, "acquire a Lease before scheduling, so that several replicas can run")
    lease_namespace: str = option("kube-system", "namespace of the Lease")
    evict_never_started: bool = option(
        True,
        "evict a pod that never started if its node has contradicted its assignment for 5 min and a controller owns it",
    )
    metrics_addr: str = option(
        "127.0.0.1:10259", "host:port to serve /metrics, /healthz, /livez and /readyz; not served if empty"
    )
    pod_name: str = option(
        "",
        "name of this scheduler's own pod in the Lease's namespace; it gets a condition about the admission policies",
    )
    extender_addr: str = option("", "host:port to serve the extender of a stock kube-scheduler; not served if empty")
    extender_tls_cert: str = option("", "certificate file of the extender, for HTTPS; reloaded when it changes")
    extender_tls_key: str = option("", "key file of the extender's certificate")
    signing_key: str = option(
        "",
        "PEM file of an ed25519 private key that signs each assignment, for nodes that require it; off if empty",
    )
    group_hold: float = option(
        0.0,
        "seconds after which resources that become free are kept for the oldest waiting group of the highest priority; "
        "off if 0, because kept resources stay idle until the group starts",
    )
    backfill: bool = option(
        False,
        "reserve room for the oldest waiting group of the highest priority from when pods end by their declared run "
        "times; others start before only if they end by then or do not touch it",
    )
    end_half_groups: float = option(
        0.0,
        "seconds after which the members of a group are evicted if fewer than it needs are placed while others wait; "
        "off if 0",
    )
    evict_lost_vfs: float = option(
        0.0,
        "seconds after which running pods with lost VFs, or with a PF that is down, are evicted, groups as a whole; "
        "off if 0",
    )
    evict_lost_vfs_per_minute: int = option(
        5, "maximum number of these pods or groups to evict per minute, so that a failed switch cannot empty a cluster"
    )
    evict_lost_vfs_dry_run: bool = option(
        False, "do not evict these pods; report by an event which ones would be evicted"
    )
    extender_client_ca: str = option("", "CA file; the extender accepts only clients with a certificate of this CA")


def main(argv: Sequence[str] | None = None) -> int:
    """Schedule until SIGTERM or SIGINT; return the exit status."""
    log.set_up(PROGRAM)
    spare_collections()
    try:
        _, config = load(Config, PROGRAM, sys.argv[1:] if argv is None else argv, os.environ)
        access = load_access(config.kubeconfig or None)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run(config, access))
    except ConfigError as error:
        _log.error("cannot start", reason=str(error))
        return 2
    except (AccessError, OSError, ExceptionGroup) as error:
        _log.error("ended", reason=_reason(error))
        return 1
    return 0


def spare_collections() -> None:
    """Collect garbage rarely: a pass over a large cluster's objects would stop everything for seconds.

    Listed objects are frozen, so the collector skips them, and changed objects are freed by reference counts. Almost
    nothing is in cycles.
    """
    gc.set_threshold(_ALLOCATIONS, _YOUNG, _MIDDLE)


def _reason(error: BaseException) -> str:
    return "; ".join(map(_reason, error.exceptions)) if isinstance(error, ExceptionGroup) else str(error)


async def _run(config: Config, access: Access) -> None:
    tls = server_tls(config.extender_tls_cert, config.extender_tls_key, config.extender_client_ca)
    sign = load_signing_key(config.signing_key)
    machine = Machine(
        config.scheduler_name,
        evict_never_started=config.evict_never_started,
        kinds=installed_kinds(),
        group_options=GroupOptions(config.group_hold, config.end_half_groups, config.backfill),
        lost_vf_options=LostVfOptions(
            config.evict_lost_vfs, config.evict_lost_vfs_per_minute, config.evict_lost_vfs_dry_run
        ),
        sign=sign,
        sign_rates=sign.rates if sign is not None else None,
    )
    metrics.expose(machine)
    async with (
        Client(access, connections=_READ_CONNECTIONS, timeout_s=_READ_S) as api,
        Client(access, connections=_REPORT_CONNECTIONS, timeout_s=_READ_S) as reporting_client,
    ):
        identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
        election = Election(api, identity, f"{config.scheduler_name}-scheduler", config.lease_namespace)
        guard = election.check if config.leader_elect else (lambda: None)
        async with Client(access, connections=_WRITES, timeout_s=_REQUEST_S, guard=guard) as leaders:
            may_decide = (lambda: election.leads) if config.leader_elect else (lambda: True)
            writer = ReportWriter(reporting_client, config.scheduler_name)
            clients = ApiClients(api, leaders)
            loop = Loop(machine, clients, writer, time.monotonic, may_decide, gc.freeze)
            handlers = ExtenderHandlers(machine.extender_pods, loop, clients, time.monotonic)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, loop.stop)
            own_pod = f"{config.lease_namespace}/{config.pod_name}" if config.pod_name else ""
            policies = PolicyCheck(reporting_client, own_pod)
            async with (
                serve(config.metrics_addr, loop.reflectors.not_ready),
                extend(config.extender_addr, handlers, tls),
                _beside(policies.run()),
            ):
                if config.leader_elect:
                    await _stand(election, loop)
                else:
                    loop.lead()
                    await loop.run()


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run background work meanwhile; when the block ends, the work has ended too, and its clients may close."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        # The HTTP client mistakes a cancellation that coincides with a request's timeout for that timeout.
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("bug: the check of the admission policies failed", reason=repr(error))


async def _stand(election: Election, loop: Loop) -> None:
    """Follow the cluster; lead once the lease is ours, and release it when all Bindings have ended."""
    async with asyncio.TaskGroup() as group:
        candidacy = group.create_task(_lead(election, loop))
        is_drained = await loop.run()
        candidacy.cancel()
    if is_drained:
        await election.release()


async def _lead(election: Election, loop: Loop) -> None:
    # A scheduler that is ready has the state of the cluster: it leads at once, and its second list finds little that is
    # new.
    await loop.reflectors.ready.wait()
    took_over = await election.acquire()
    # A Binding that an earlier leader sent may still arrive for as long as its requests last.
    loop.lead(time.monotonic() + _REQUEST_S if took_over else 0.0)
    await election.keep()


if __name__ == "__main__":
    sys.exit(main())
