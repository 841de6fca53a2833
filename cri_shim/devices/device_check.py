"""Find running containers of recorded pods without the devices of their VFs or GPUs, report them, and stop them.

The shim adds devices to a container when it is created. If the kubelet creates a container on the runtime's own socket,
in a sandbox that has VFs, the container has the netdevs but no devices and no GPUs. The shim does not see that call. So
it checks at its start, when the kubelet calls again after a pause, on SIGHUP, and every ten minutes. While no shim
serves, mooring-shim-bypass runs `python -m cri_shim.devices`.

Containers are stopped only if configured, and only while the kubelet calls the shim. Otherwise the kubelet would start
them again without devices.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from cri_shim.devices.device_nodes import DeviceError, Roots, node_number, uverbs_number
from cri_shim.devices.gpus import GpuFolders
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.container_devices import UnreadableSpecError, missing_devices
from cri_shim.plan.gpus import GpuError
from cri_shim.plan.inject import entitled_vfs
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.errors import AnnotationError, RecordError
from mooring.files import is_text_of, write_shared
from mooring.gpu.assignment import GpuAssignment, assigned_gpus
from mooring.gpu.cdi_folders import cdi_folders
from mooring.records.kubelet_call import STATUS
from mooring.records.pod_record import PodRecord
from mooring.records.without_devices import NAME, WithoutDevices, dump_without_devices

INTERVAL_S = 600.0
_GONE_S = 30.0
_PARALLEL_STOPS = 8
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Findings:
    """The containers that lack devices, by container id, and how many could not be checked."""

    without: Mapping[str, tuple[cri.Container, WithoutDevices]]
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class _Entitlement:
    """The PCI addresses of the VFs and GPUs whose devices a container of a pod must have."""

    pod: str
    uid: str
    vfs: tuple[str, ...]
    gpus: tuple[str, ...]


class DeviceMetrics(Protocol):
    """Where the results are counted."""

    def set_device_check(self, without: int, unknown: int) -> None: ...

    def count_stop(self) -> None: ...


class KubeletCalls:
    """Records whether the kubelet calls the shim, by its Status calls; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = float("-inf")

    @property
    def are_recent(self) -> bool:
        return self._clock() - self._last < _GONE_S

    def note(self, method: str) -> bool:
        """Record a finished call; return whether it is the kubelet's first Status call after a pause."""
        if method != STATUS:
            return False
        is_first = not self.are_recent
        self._last = self._clock()
        return is_first


class DeviceCheck:
    """The check of one node, with its ``records`` and the devices below ``roots``; its report is below ``run``."""

    def __init__(self, records: Records, roots: Roots, run: Path, metrics: DeviceMetrics, *, stops: bool) -> None:
        self._records = records
        self._roots = roots
        self._report = run / NAME
        self._metrics = metrics
        self._stops = stops
        self._kubelet = KubeletCalls()
        self._request = asyncio.Event()
        self._gpus = GpuFolders(roots.sysfs, roots.proc, cdi_folders(roots.cdi))
        self._device_numbers: dict[str, frozenset[str]] = {}
        self._reported_ids: frozenset[str] = frozenset()
        self._unreadable_ids: set[str] = set()

    def ask(self) -> None:
        """Make `run` check now."""
        self._request.set()

    def note(self, method: str) -> None:
        """Record a forwarded call that has ended; the kubelet's first call after a pause starts a check."""
        if self._kubelet.note(method):
            self.ask()

    async def run(self, runtime: Runtime, interval_s: float = INTERVAL_S) -> None:
        """Check now, whenever asked, and every ``interval_s`` seconds; never return."""
        while True:
            self._request.clear()
            try:
                await self.check_containers(runtime)
            except (grpc.aio.AioRpcError, DecodeError, OSError) as reason:
                _log.warning("cannot check the devices of containers", reason=str(reason))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._request.wait(), interval_s)

    async def check_containers(self, runtime: Runtime) -> None:
        """Check once and report the result; raise AioRpcError, DecodeError or OSError."""
        await self._act(runtime, await self.look(runtime))

    async def look(self, runtime: Runtime) -> Findings:
        """Check every running container of a recorded pod; raise AioRpcError, DecodeError or OSError."""
        uids = await asyncio.to_thread(self._records.pods)
        containers = await self._containers(runtime) if uids else ()
        entitlements, unknown = await asyncio.to_thread(self._entitlements, uids, containers)
        candidates = [
            (container, entitlement) for container, entitlement in entitlements if entitlement.vfs or entitlement.gpus
        ]
        ids = {container.id for container, _ in candidates}
        self._device_numbers = {
            container: numbers for container, numbers in self._device_numbers.items() if container in ids
        }
        self._unreadable_ids &= ids
        without: dict[str, tuple[cri.Container, WithoutDevices]] = {}
        for container, entitlement in candidates:
            try:
                absent = await self._missing_devices(runtime, container, entitlement)
            except (UnreadableSpecError, DeviceError, GpuError, DecodeError, grpc.aio.AioRpcError) as reason:
                self._take_unknown(container, entitlement.pod, reason)
                unknown += 1
                continue
            if absent:
                vfs, gpus = (
                    tuple(pci for pci in pcis if pci in absent) for pcis in (entitlement.vfs, entitlement.gpus)
                )
                name = container.metadata.name
                without[container.id] = (
                    container,
                    WithoutDevices(entitlement.pod, entitlement.uid, name, container.id, vfs, gpus=gpus),
                )
        return Findings(without, unknown)

    async def _containers(self, runtime: Runtime) -> Sequence[tuple[str, cri.Container]]:
        """Return the running containers, each after its pod's uid."""
        uids = await runtime.sandbox_uids()
        return [(uids.get(container.pod_sandbox_id, ""), container) for container in await runtime.running_containers()]

    def _take_unknown(self, container: cri.Container, pod: str, reason: Exception) -> None:
        """Log once why a container cannot be checked; raise the reason if the runtime is unavailable."""
        if isinstance(reason, grpc.aio.AioRpcError) and reason.code() == grpc.StatusCode.UNAVAILABLE:
            raise reason
        if container.id not in self._unreadable_ids:
            self._unreadable_ids.add(container.id)
            _log.warning("cannot check the devices of a container", pod=pod, id=container.id, reason=str(reason))

    def _entitlements(
        self, uids: Iterable[str], containers: Sequence[tuple[str, cri.Container]]
    ) -> tuple[list[tuple[cri.Container, _Entitlement]], int]:
        """Return what each running container of a recorded pod must have, and the number of unreadable records.

        The shim refuses every container of a pod with an unreadable record. A tenant's record may have 256 KiB, so
        records are not kept in memory, and this thread sleeps half of the time for the event loop.
        """
        of_pod: dict[str, list[cri.Container]] = {}
        for uid, container in containers:
            of_pod.setdefault(uid, []).append(container)
        entitlements: list[tuple[cri.Container, _Entitlement]] = []
        unreadable = 0
        for uid in uids:
            began_s = time.monotonic()
            try:
                record = self._records.pod(uid)
                gpus = assigned_gpus(record.assignment) if record is not None else None
            except (RecordError, AnnotationError, OSError):
                unreadable += 1
                continue
            if record is not None:
                entitlements += [
                    (container, _entitlement(record, gpus, container)) for container in of_pod.get(uid, ())
                ]
            time.sleep(time.monotonic() - began_s)
        return entitlements, unreadable

    async def _missing_devices(
        self, runtime: Runtime, container: cri.Container, entitlement: _Entitlement
    ) -> tuple[str, ...]:
        numbers = await asyncio.to_thread(self._numbers, entitlement)
        if container.id not in self._device_numbers:
            try:
                # The devices of a container never change.
                self._device_numbers[container.id] = await runtime.devices_of(container.id)
            except grpc.aio.AioRpcError as failure:
                if failure.code() == grpc.StatusCode.NOT_FOUND:
                    return ()
                raise
        return missing_devices(numbers, self._device_numbers[container.id])

    def _numbers(self, entitlement: _Entitlement) -> Mapping[str, str]:
        """Return the device number of each VF (its uverbs device) and GPU (its compute device), by PCI address."""
        of_vfs = {pci: uverbs_number(pci, self._roots) for pci in entitlement.vfs}
        return of_vfs | {pci: node_number(self._roots.dev / self._gpus.node(pci)) for pci in entitlement.gpus}

    async def _act(self, runtime: Runtime, findings: Findings) -> None:
        """Report the containers without devices, and stop them if configured and the kubelet calls the shim."""
        stops = self._stops and self._kubelet.are_recent
        reports = [(container, replace(without, stopped=stops)) for container, without in findings.without.values()]
        self._metrics.set_device_check(len(reports), findings.unknown)
        for _, without in reports:
            if without.id not in self._reported_ids:
                _log.warning("container lacks devices of its VFs or GPUs", **_fields(without))
        self._reported_ids = frozenset(findings.without)
        await asyncio.to_thread(self._write, dump_without_devices([without for _, without in reports]))
        if stops:
            turns = asyncio.Semaphore(_PARALLEL_STOPS)
            await asyncio.gather(*(self._stop(runtime, container, without, turns) for container, without in reports))

    def _write(self, text: str) -> None:
        try:
            if not is_text_of(self._report, text):
                write_shared(self._report, text)
        except OSError as error:
            _log.warning("cannot write the report of containers without devices", reason=str(error))

    async def _stop(
        self, runtime: Runtime, container: cri.Container, without: WithoutDevices, turns: asyncio.Semaphore
    ) -> None:
        async with turns:
            try:
                await runtime.stop(container)
            except grpc.aio.AioRpcError as error:
                _log.warning("cannot stop the container", reason=str(error.details()), **_fields(without))
                return
        self._metrics.count_stop()
        _log.warning("container without devices of its VFs or GPUs stopped", **_fields(without))


def _entitlement(record: PodRecord, gpus: GpuAssignment | None, container: cri.Container) -> _Entitlement:
    name, assignment = container.metadata.name, record.assignment
    vfs = tuple(vf.pci for vf in entitled_vfs(assignment, name))
    return _Entitlement(record.pod, assignment.uid, vfs, gpus.containers.get(name, ()) if gpus is not None else ())


def _fields(without: WithoutDevices) -> Mapping[str, object]:
    return {
        "pod": without.pod,
        "uid": without.uid,
        "container": without.container,
        "id": without.id,
        "vfs": list(without.vfs),
        "gpus": list(without.gpus),
    }
