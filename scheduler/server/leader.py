"""Leader election by a coordination Lease, as in client-go.

A lease lasts 15 s without renewal. The leader tries to renew it every 2 s and gives up after 10 s. It therefore stops
before another may start, whatever their clocks show, because each measures the other's silence by its own monotonic
clock. A leader that was stopped (SIGSTOP, a frozen machine) finds its lease expired when it continues, before it sends
anything. `check` precedes every write that only a leader may make.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import NoReturn

import msgspec
import structlog

from mooring.kube.answers import decode_object, incomplete_answer
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound, Status, Throttled
from scheduler.kube.objects import Struct
from scheduler.server import metrics

_log = structlog.get_logger()
LEASE_S = 15
RENEW_WITHIN_S = 10
RETRY_S = 2


class LeadershipLoss(Exception):  # noqa: N818 - a reason to end, not a fault
    """The lease could not be renewed in time, or another process holds it."""


class LeaseUnsure(Throttled):
    """The lease is not certainly ours at this moment, so nothing was sent.

    Either a late renewal succeeds, or this process ends. The writer retries until then: in a leader that continues, a
    reservation must not exist without its write.
    """


class _Metadata(Struct, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class LeaseSpec(Struct, omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct):
    metadata: _Metadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Election:
    """Candidate ``identity`` for the lease ``namespace/name``."""

    def __init__(self, client: Client, identity: str, name: str, namespace: str = "kube-system") -> None:
        self._client, self._identity = client, identity
        self._name, self._namespace = name, namespace
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        # A lease of another holder as it last changed, and when we received that, on our monotonic clock.
        self._spec = LeaseSpec()
        self._spec_time_s = float("-inf")
        self._renewal_s = float("-inf")
        self._was_taken_over = False

    @property
    def leads(self) -> bool:
        """Return whether the lease is certainly ours at this moment."""
        return time.monotonic() < self._renewal_s + RENEW_WITHIN_S

    def check(self) -> None:
        """Raise LeaseUnsure unless the lease is certainly ours at this moment."""
        if not self.leads:
            reason = f"lease {self._name!r}: not renewed within {RENEW_WITHIN_S} s"
            raise LeaseUnsure(Status(0, message=reason), RETRY_S)

    async def acquire(self) -> bool:
        """Wait until the lease is ours; return whether it was taken from a holder that had not released it."""
        while True:
            try:
                if await self._try():
                    metrics.LEADER.labels(self._name).set(1)
                    _log.info("leading", lease=self._name, identity=self._identity, took_over=self._was_taken_over)
                    return self._was_taken_over
            except KubeError as error:
                _log.info("lease not acquired", reason=str(error))
            await asyncio.sleep(RETRY_S)

    async def keep(self) -> None:
        """Renew without end; raise LeadershipLoss.

        A process that was stopped for so long that its lease expired does not renew it, even if no other process took
        it. Its state of the cluster is just as old, and a new leader lists before its first decision.
        """
        while True:
            await asyncio.sleep(RETRY_S)
            if not self.leads:
                self._lose(f"not renewed within {RENEW_WITHIN_S} s")
            try:
                async with asyncio.timeout(self._renewal_s + RENEW_WITHIN_S - time.monotonic()):
                    if not await self._try():
                        self._lose("another scheduler holds the lease")
            except (KubeError, TimeoutError) as error:
                # A conflict only shows that another process wrote to the lease; the next read shows who holds it.
                if not self.leads:
                    self._lose(str(error) or "no answer in time")

    def _lose(self, reason: str) -> NoReturn:
        self._step_down()
        raise LeadershipLoss(f"lease {self._name!r}: {reason}")

    def _step_down(self) -> None:
        self._renewal_s = float("-inf")
        metrics.LEADER.labels(self._name).set(0)

    async def release(self) -> None:
        """Release the lease if it is ours, so that the next leader need not wait; write nothing after that."""
        self._step_down()
        try:
            lease = await self._get()
            if lease.spec.holder_identity == self._identity:
                lease.spec.holder_identity = ""
                lease.spec.lease_duration_seconds = 1
                await self._put(lease)
        except KubeError as error:
            _log.info("lease not released", reason=str(error))

    async def _try(self) -> bool:
        """Take or renew the lease; return False if another holds it, raise Conflict if it was written meanwhile."""
        # Time counts from before the request; other candidates count from when they receive it, which is later.
        start_s = time.monotonic()
        try:
            lease = await self._get()
        except NotFound:
            await self._create()
        else:
            if not await self._take(lease):
                return False
        self._renewal_s = start_s
        return True

    async def _take(self, lease: Lease) -> bool:
        spec, now = lease.spec, _now()
        holder = spec.holder_identity or ""
        if holder not in ("", self._identity) and not self._is_over(spec):
            return False
        if holder != self._identity:
            # Stored, so that the lease counts as ours even if the answer to the write is lost.
            self._was_taken_over = holder != ""
            spec.acquire_time = now
            spec.lease_transitions = (spec.lease_transitions or 0) + 1
        spec.holder_identity, spec.renew_time, spec.lease_duration_seconds = self._identity, now, LEASE_S
        await self._put(lease)
        return True

    def _is_over(self, spec: LeaseSpec) -> bool:
        now = time.monotonic()
        if self._spec != spec:
            self._spec, self._spec_time_s = spec, now
        return now - self._spec_time_s > (spec.lease_duration_seconds or LEASE_S)

    async def _create(self) -> None:
        now = _now()
        lease = Lease(_Metadata(self._name, self._namespace), LeaseSpec(self._identity, LEASE_S, now, now, 0))
        decode_object(Lease, await self._client.request("POST", self._folder, msgspec.json.encode(lease)))

    async def _get(self) -> Lease:
        return decode_object(Lease, await self._client.request("GET", f"{self._folder}/{self._name}"))

    async def _put(self, lease: Lease) -> None:
        """Write the lease; raise Unknown for an answer without its holder, which would be taken from its leader."""
        answer = await self._client.request("PUT", f"{self._folder}/{self._name}", msgspec.json.encode(lease))
        if (holder := decode_object(Lease, answer).spec.holder_identity or "") != (lease.spec.holder_identity or ""):
            raise incomplete_answer(f"Lease {self._name!r} has holder {holder!r}, not the one that was written")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
