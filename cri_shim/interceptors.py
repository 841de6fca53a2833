"""Check the two requests that concern VFs against the node's records, and keep those records.

`Interceptors.run_pod_sandbox` and `Interceptors.create_container` get a request's bytes and yield those to forward;
they raise `RefusedError` with the pod's name and the reason. Requests that cannot be decoded are forwarded: the runtime
reports its own error.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from cri_shim.devices import DeviceError, Roots, resolve
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.inject import (
    Inject,
    Record,
    Refuse,
    Rules,
    VfDevices,
    add_to_container,
    can_change_vfs,
    decide_container,
    decide_sandbox,
    devices,
    environment,
    not_held,
    pod_name,
)
from cri_shim.plan.record_gc import find_stale_records
from cri_shim.proxy import SERVED, RefusedError
from cri_shim.records import Records
from mooring.errors import RecordError
from mooring.ledger import LedgerEntry

RUN_POD_SANDBOX = f"{SERVED}RuntimeService/RunPodSandbox"
CREATE_CONTAINER = f"{SERVED}RuntimeService/CreateContainer"
STOP_POD_SANDBOX = f"{SERVED}RuntimeService/StopPodSandbox"

# A request of this size takes a few milliseconds; a usual one has some kilobytes.
_LARGE_BYTES = 1 << 18

_log = structlog.get_logger()
_Request = TypeVar("_Request", bound=Message)
_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


@dataclass(slots=True)
class _RecordUse:
    """The users of one pod's record, RunPodSandbox calls and garbage collection; they access it one at a time."""

    calls: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Interceptors:
    """The decisions of `cri_shim.plan.inject`, with the records below ``records`` and the devices below ``roots``."""

    def __init__(self, rules: Rules, records: Records, roots: Roots) -> None:
        self._rules = rules
        self._records = records
        self._roots = roots
        self._uses: dict[str, _RecordUse] = {}
        self._missing: dict[str, float] = {}
        # The pod uids of sandboxes, by id.
        self._sandboxes: dict[str, str] = {}

    @asynccontextmanager
    async def run_pod_sandbox(self, raw: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes to forward, once the pod's assignment is recorded; the call of such a pod is marked."""
        request = await _apart(raw, _decode, cri.RunPodSandboxRequest, raw)
        if request is None:
            yield raw
            return
        uid = request.config.metadata.uid
        with self._in_use(uid), ExitStack() as mark:
            with _refusals(request.config, "RunPodSandbox"):
                # A write that has begun completes, even if its caller has left by then.
                if await asyncio.shield(self._settle_record(raw, request)):
                    mark.enter_context(self._records.marked(uid))
            yield raw

    @asynccontextmanager
    async def create_container(self, raw: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes to forward, with the devices of the pod's VFs where the container is entitled to some."""
        forwarded, noted = await _apart(raw, self._equip, raw)
        if noted is not None:
            with _refusals(noted.sandbox_config, "CreateContainer", container=noted.config.metadata.name):
                # Its fsync may take long; one that has begun completes, even if its caller has left by then.
                uid = noted.sandbox_config.metadata.uid
                await asyncio.shield(asyncio.to_thread(self._records.note_privileged, uid))
        yield forwarded

    def begin(self) -> None:
        """Say that calls are marked from now on; raise OSError."""
        self._records.begin()

    @asynccontextmanager
    async def stop_pod_sandbox(self, raw: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes as they are; hide a pod whose VFs this sandbox has: it is to run here no more."""
        request = _decode(cri.StopPodSandboxRequest, raw)
        uid = self._sandboxes.get(request.pod_sandbox_id) if request is not None else None
        if request is not None and uid is not None:
            await asyncio.to_thread(self._hide, uid, request.pod_sandbox_id)
        yield raw

    def _hide(self, uid: str, sandbox: str) -> None:
        """Hide a pod whose VFs this sandbox holds: an older sandbox of it is stopped, too, while it runs in another."""
        try:
            record = self._records.pod(uid)
            entries = [self._records.vf(vf.pci) for vf in record.assignment.vfs] if record is not None else []
            if any(entry is not None and entry.container == sandbox for entry in entries):
                self._records.hide_pod(uid)
        except (RecordError, OSError) as reason:
            _log.warning("pod is still shown as running", uid=uid, sandbox=sandbox, reason=str(reason))

    def know_sandboxes(self, listed: Mapping[str, str]) -> None:
        """Take the uids of all sandboxes listed, by id; forget those that are gone and whose pods have no record."""
        records = self._records.pods()
        newer = {sandbox: uid for sandbox, uid in self._sandboxes.items() if uid in records}
        self._sandboxes = {**listed, **newer}

    async def collect_records(self, listed: frozenset[str], now: float | None = None) -> frozenset[str]:
        """Remove the records of deleted pods, given the uids of all sandboxes listed; return their uids."""
        at = time.monotonic() if now is None else now
        judged = find_stale_records(self._records.pods(), listed, self._uses.keys(), self._missing, at)
        self._missing = dict(judged.missing)
        return frozenset([uid for uid in judged.remove if await self._remove_record(uid)])

    def _equip(self, raw: bytes) -> tuple[bytes, cri.CreateContainerRequest | None]:
        """Return a CreateContainer's bytes to forward, and the request if its container can change the pod's VFs.

        Raise RefusedError.
        """
        request = _decode(cri.CreateContainerRequest, raw)
        if request is None:
            return raw, None
        with _refusals(request.sandbox_config, "CreateContainer", container=request.config.metadata.name):
            found = self._records.pod(request.sandbox_config.metadata.uid)
            if found is not None:
                self._sandboxes[request.pod_sandbox_id] = found.assignment.uid
            decision = decide_container(request, found, self._rules)
            if isinstance(decision, Refuse):
                raise RefusedError(decision.reason)
            if isinstance(decision, Inject):
                forwarded = self._inject(raw, request, decision)
                return forwarded, request if can_change_vfs(request.config) else None
            return raw, None

    async def _remove_record(self, uid: str) -> bool:
        """Remove a record unless its pod has a sandbox again; return whether it was removed."""
        with self._in_use(uid) as use:
            async with use.turn:
                if use.calls > 1:
                    return False
                await asyncio.to_thread(self._records.remove_pod, uid)
        _log.info("pod record removed", uid=uid, reason="no sandbox of that pod is left")
        return True

    async def _settle_record(self, raw: bytes, request: cri.RunPodSandboxRequest) -> bool:
        """Record the pod's assignment unless it is recorded; return whether the pod has a record."""
        uid = request.config.metadata.uid
        with self._in_use(uid) as use:
            async with use.turn:
                found = self._records.pod(uid)
                decision = await _apart(raw, decide_sandbox, request, found, self._rules)
                if isinstance(decision, Refuse):
                    raise RefusedError(decision.reason)
                if isinstance(decision, Record):
                    # Its fsyncs may take long; other calls go on meanwhile.
                    await asyncio.to_thread(self._records.write_pod, decision.record)
                    _log.info("assignment recorded", pod=decision.record.pod, uid=uid)
                elif found is not None:
                    await asyncio.to_thread(self._records.show_pod, found)
                return found is not None or isinstance(decision, Record)

    def _inject(self, raw: bytes, request: cri.CreateContainerRequest, decision: Inject) -> bytes:
        ledger = {vf.pci: self._records.vf(vf.pci) for vf in decision.assignment.vfs}
        if reason := not_held(decision.assignment, request.pod_sandbox_id, ledger):
            raise RefusedError(reason)
        entitled = [(vf, entry) for vf in decision.entitled if (entry := ledger[vf.pci]) is not None]
        given = [(vf, entry, resolve(vf.pci, self._roots)) for vf, entry in entitled]
        if not given:
            return raw
        added = devices([found for _, _, found in given])
        _log_injection(request, [(entry, found) for _, entry, found in given], added)
        return add_to_container(raw, request, added, environment(given))

    @contextmanager
    def _in_use(self, uid: str) -> Iterator[_RecordUse]:
        use = self._uses.setdefault(uid, _RecordUse())
        use.calls += 1
        self._missing.pop(uid, None)
        try:
            yield use
        finally:
            use.calls -= 1
            if not use.calls:
                del self._uses[uid]


async def _apart(raw: bytes, act: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs) -> _Result:
    """Do what a request needs; for a large one beside the event loop: a container may have a million variables."""
    return await asyncio.to_thread(act, *given, **named) if len(raw) > _LARGE_BYTES else act(*given, **named)


def _decode(kind: type[_Request], raw: bytes) -> _Request | None:
    try:
        return kind.FromString(raw)
    except DecodeError:
        return None


@contextmanager
def _refusals(config: cri.PodSandboxConfig, call: str, **fields: str) -> Iterator[None]:
    """Turn any error about a request into one refusal that names the pod, logged once."""
    try:
        yield
    except (RefusedError, RecordError, DeviceError, OSError) as reason:
        pod, uid = pod_name(config), config.metadata.uid
        _log.warning("refused", call=call, pod=pod, uid=uid, reason=str(reason), **fields)
        raise RefusedError(f"mooring: pod {pod}: {reason}") from reason


def _log_injection(
    request: cri.CreateContainerRequest, given: list[tuple[LedgerEntry, VfDevices]], added: list[cri.Device]
) -> None:
    _log.info(
        "devices injected",
        pod=pod_name(request.sandbox_config),
        uid=request.sandbox_config.metadata.uid,
        container=request.config.metadata.name,
        sandbox=request.pod_sandbox_id,
        vfs=[entry.pci for entry, _ in given],
        devices=[device.host_path for device in added],
    )
