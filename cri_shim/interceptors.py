"""Check RunPodSandbox and CreateContainer requests against the node's records, and maintain those records.

`Interceptors.run_pod_sandbox` and `Interceptors.create_container` get the bytes of a request and yield the bytes to
forward. They raise `RefusedError` with the pod's name and the reason. Requests that cannot be decoded are forwarded, so
that the runtime reports its own error.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from cri_shim.devices.device_nodes import DeviceError, Roots, resolve
from cri_shim.devices.gpus import GpuFolders, gpu_refusal
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.gpus import NVIDIA_VOID, GpuError, gpu_environment
from cri_shim.plan.inject import (
    Addition,
    Inject,
    Pass,
    Record,
    Refuse,
    Rules,
    add_to_container,
    can_change_vfs,
    decide_container,
    decide_sandbox,
    devices,
    environment,
    ledger_mismatch,
    pod_name,
)
from cri_shim.plan.record_gc import find_stale_records
from cri_shim.proxy.proxy import CRI_PREFIX, RefusedError
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.errors import AnnotationError, RecordError
from mooring.gpu.cdi_folders import cdi_folders
from mooring.program.large_work import LARGE_BYTES, LargeWork
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord

RUN_POD_SANDBOX = f"{CRI_PREFIX}RuntimeService/RunPodSandbox"
CREATE_CONTAINER = f"{CRI_PREFIX}RuntimeService/CreateContainer"
STOP_POD_SANDBOX = f"{CRI_PREFIX}RuntimeService/StopPodSandbox"

_log = structlog.get_logger()
_Request = TypeVar("_Request", bound=Message)


@dataclass(slots=True)
class _RecordUse:
    """The RunPodSandbox calls and the garbage collection that use one pod's record; ``turn`` admits one at a time."""

    calls: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class _CreateResult:
    """The result for a CreateContainer: the bytes to forward, and the request if the pod has VFs or GPUs."""

    raw: bytes
    request: cri.CreateContainerRequest | None = None
    units: tuple[str, ...] = ()
    log_fields: Mapping[str, object] = field(default_factory=dict)


class Interceptors:
    """Applies the decisions of `cri_shim.plan.inject`, with the node's ``records`` and the devices below ``roots``."""

    def __init__(self, rules: Rules, records: Records, roots: Roots) -> None:
        self._rules = rules
        self._records = records
        self._roots = roots
        self._gpus = GpuFolders(roots.sysfs, roots.proc, cdi_folders(roots.cdi))
        self._runtime: Runtime | None = None
        self._uses: dict[str, _RecordUse] = {}
        self._missing_since_s: dict[str, float] = {}
        self._large = LargeWork()
        # Pod uids by sandbox id.
        self._sandboxes: dict[str, str] = {}

    @asynccontextmanager
    async def run_pod_sandbox(self, raw: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes to forward once the pod's assignment is recorded, and mark the call of such a pod."""
        request = await self._large.run(len(raw), _decode, cri.RunPodSandboxRequest, raw)
        if request is None:
            yield raw
            return
        uid = request.config.metadata.uid
        with self._in_use(uid), ExitStack() as mark:
            with _refusals(request.config, "RunPodSandbox"):
                # Shielded, so that a write completes even if the caller disconnects.
                if await asyncio.shield(self._settle_record(raw, request)):
                    mark.enter_context(self._records.mark_call(uid))
            yield raw

    @asynccontextmanager
    async def create_container(self, raw: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes to forward, with the devices and variables for the pod's VFs and GPUs."""
        result = await self._create_result(raw)
        request = result.request
        if request is not None:
            with _refusals(request.sandbox_config, "CreateContainer", container=request.config.metadata.name):
                uid = request.sandbox_config.metadata.uid
                if result.units:
                    await self._refuse_gpus_in_use(uid, result.units)
                if can_change_vfs(request.config):
                    # The fsync may take long. Shielded, so that it completes even if the caller disconnects.
                    await asyncio.shield(asyncio.to_thread(self._records.remove_unprivileged_note, uid))
        if result.log_fields:
            _log.info("devices injected", **result.log_fields)
        yield result.raw

    def ask(self, runtime: Runtime) -> None:
        """Set the runtime to ask which pods have GPUs; before that, no container gets any."""
        self._runtime = runtime

    async def _refuse_gpus_in_use(self, uid: str, units: tuple[str, ...]) -> None:
        if self._runtime is None:
            raise RefusedError("mooring-cri-shim cannot ask the runtime which pods have GPUs")
        if reason := await gpu_refusal(uid, units, self._runtime, self._records, self._roots.cdi.split(":")):
            raise RefusedError(reason)

    def begin(self) -> None:
        """Record that calls are marked from now on; raise OSError."""
        self._records.begin()

    def show_handlers(self) -> None:
        """Write which runtime handlers' pods get VFs; raise OSError."""
        self._records.show_handlers(self._rules.runtime_handlers)

    @asynccontextmanager
    async def stop_pod_sandbox(self, raw: bytes) -> AsyncIterator[bytes]:
        """Yield the bytes unchanged; remove the extract of the pod whose VFs the sandbox holds: the pod ends."""
        request = _decode(cri.StopPodSandboxRequest, raw)
        uid = self._sandboxes.get(request.pod_sandbox_id) if request is not None else None
        if request is not None and uid is not None:
            await asyncio.to_thread(self._hide, uid, request.pod_sandbox_id)
        yield raw

    def _hide(self, uid: str, sandbox: str) -> None:
        """Remove the extract of a pod if this sandbox holds its VFs; an older sandbox of a running pod does not."""
        try:
            record = self._records.pod(uid)
            entries = [self._records.vf(vf.pci) for vf in record.assignment.vfs] if record is not None else []
            if any(entry is not None and entry.container == sandbox for entry in entries):
                self._records.hide_pod(uid)
        except (RecordError, OSError) as reason:
            _log.warning("cannot mark the pod as ended", uid=uid, sandbox=sandbox, reason=str(reason))

    def update_sandboxes(self, uid_of_sandbox: Mapping[str, str]) -> None:
        """Update the pod uids of sandboxes; ``uid_of_sandbox`` has those of all sandboxes in the runtime's list, by id.

        Sandboxes that are not listed are forgotten, unless their pods have a record.
        """
        records = self._records.pods()
        with_record = {sandbox: uid for sandbox, uid in self._sandboxes.items() if uid in records}
        self._sandboxes = {**uid_of_sandbox, **with_record}

    async def collect_records(self, sandbox_uids: frozenset[str], time_s: float | None = None) -> frozenset[str]:
        """Remove the records of deleted pods and return their uids.

        ``sandbox_uids`` has the pod uids of all sandboxes in the runtime's list; ``time_s`` is in monotonic seconds.
        """
        now_s = time.monotonic() if time_s is None else time_s
        stale = find_stale_records(self._records.pods(), sandbox_uids, self._uses.keys(), self._missing_since_s, now_s)
        self._missing_since_s = dict(stale.missing_since_s)
        return frozenset([uid for uid in stale.uids if await self._remove_record(uid)])

    async def _create_result(self, raw: bytes) -> _CreateResult:
        """Return the result for a CreateContainer; raise RefusedError."""
        # A small request is decoded at once, to know the size of its pod's record.
        small = _decode(cri.CreateContainerRequest, raw) if len(raw) <= LARGE_BYTES else None
        size = len(raw) if small is None else self._records.size(small.sandbox_config.metadata.uid)
        outcome = await self._large.run(size, self._decide_container, raw)
        if outcome is None:
            return _CreateResult(raw)
        request, record, decision = outcome
        if record is not None:
            self._sandboxes[request.pod_sandbox_id] = record.assignment.uid
        with _refusals(request.sandbox_config, "CreateContainer", container=request.config.metadata.name):
            if isinstance(decision, Refuse):
                raise RefusedError(decision.reason)
            if isinstance(decision, Inject):
                # In a thread: reading devices blocks while a driver is rebound, and CDI specifications are large.
                return await asyncio.to_thread(self._inject, raw, request, decision)
            return _CreateResult(raw)

    def _decide_container(
        self, raw: bytes
    ) -> tuple[cri.CreateContainerRequest, PodRecord | None, Pass | Inject | Refuse] | None:
        """Decode a CreateContainer and decide about it in one step: the decoded form has five times the size."""
        request = _decode(cri.CreateContainerRequest, raw)
        if request is None:
            return None
        with _refusals(request.sandbox_config, "CreateContainer", container=request.config.metadata.name):
            record = self._records.pod(request.sandbox_config.metadata.uid)
            return request, record, decide_container(request, record, self._rules)

    def _decide_sandbox(self, request: cri.RunPodSandboxRequest) -> tuple[PodRecord | None, Pass | Record | Refuse]:
        """Read the pod's record and decide about a RunPodSandbox; with a refusal the record is not returned."""
        record = self._records.pod(request.config.metadata.uid)
        decision = decide_sandbox(request, record, self._rules)
        return None if isinstance(decision, Refuse) else record, decision

    async def _remove_record(self, uid: str) -> bool:
        """Remove a record unless its pod has a sandbox again; return whether it was removed."""
        with self._in_use(uid) as use:
            async with use.turn:
                if use.calls > 1:
                    return False
                try:
                    if not await asyncio.to_thread(self._records.remove_pod, uid):
                        return False
                except OSError as reason:
                    # Continue with the records of other pods.
                    _log.warning("cannot remove the pod record", uid=uid, reason=str(reason))
                    return False
        _log.info("pod record removed", uid=uid, reason="the pod has no sandbox")
        return True

    async def _settle_record(self, raw: bytes, request: cri.RunPodSandboxRequest) -> bool:
        """Record the pod's assignment unless it is recorded; return whether the pod has a record."""
        uid = request.config.metadata.uid
        with self._in_use(uid) as use:
            async with use.turn:
                while True:
                    size = max(len(raw), self._records.size(uid))
                    record, decision = await self._large.run(size, self._decide_sandbox, request)
                    if isinstance(decision, Refuse):
                        raise RefusedError(decision.reason)
                    if not isinstance(decision, Record):
                        break
                    # In a thread, because its fsyncs may take long.
                    if await asyncio.to_thread(self._records.write_pod, decision.record):
                        _log.info("assignment recorded", pod=decision.record.pod, uid=uid)
                        return True
                if record is not None:
                    await asyncio.to_thread(self._records.show_pod, record)
                return record is not None

    def _inject(self, raw: bytes, request: cri.CreateContainerRequest, decision: Inject) -> _CreateResult:
        ledger = {vf.pci: self._records.vf(vf.pci) for vf in decision.assignment.vfs}
        if reason := ledger_mismatch(decision.assignment, request.pod_sandbox_id, ledger):
            raise RefusedError(reason)
        vf_entries = [(vf, entry) for vf in decision.vfs if (entry := ledger[vf.pci]) is not None]
        container_vfs = [(vf, entry, resolve(vf.pci, self._roots)) for vf, entry in vf_entries]
        if not container_vfs and decision.gpus is None:
            return _CreateResult(raw, request)
        cri_devices = devices([nodes for _, _, nodes in container_vfs])
        variables = environment(container_vfs) if container_vfs else {}
        addition = Addition(cri_devices, variables)
        if decision.gpus is not None:
            names = self._gpus.names(decision.gpus, decision.units)
            gpu_variables = gpu_environment(decision.gpus, decision.units) if names else {}
            addition = Addition(cri_devices, variables | gpu_variables, NVIDIA_VOID, names)
        log_fields = _log_fields(request, [entry for _, entry, _ in container_vfs], addition)
        return _CreateResult(add_to_container(raw, request, addition), request, decision.units, log_fields)

    @contextmanager
    def _in_use(self, uid: str) -> Iterator[_RecordUse]:
        use = self._uses.setdefault(uid, _RecordUse())
        use.calls += 1
        self._missing_since_s.pop(uid, None)
        try:
            yield use
        finally:
            use.calls -= 1
            if not use.calls:
                del self._uses[uid]


def _decode(kind: type[_Request], raw: bytes) -> _Request | None:
    try:
        return kind.FromString(raw)
    except DecodeError:
        return None


@contextmanager
def _refusals(config: cri.PodSandboxConfig, call: str, **fields: str) -> Iterator[None]:
    """Turn errors about a request into one RefusedError that names the pod, and log it."""
    try:
        yield
    except (RefusedError, RecordError, DeviceError, GpuError, AnnotationError, OSError) as reason:
        pod, uid = pod_name(config), config.metadata.uid
        _log.warning("refused", call=call, pod=pod, uid=uid, reason=str(reason), **fields)
        raise RefusedError(f"mooring: pod {pod}: {reason}") from reason


def _log_fields(
    request: cri.CreateContainerRequest, entries: list[LedgerEntry], addition: Addition
) -> Mapping[str, object]:
    """Return the log fields for a container that gets devices."""
    return {
        "pod": pod_name(request.sandbox_config),
        "uid": request.sandbox_config.metadata.uid,
        "container": request.config.metadata.name,
        "sandbox": request.pod_sandbox_id,
        "vfs": [entry.pci for entry in entries],
        "devices": [device.host_path for device in addition.devices],
        **({"cdi": list(addition.cdi)} if addition.cdi else {}),
    }
