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
from cri_shim.plan.container_devices import UnreadableSpecError, lacking
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
_AT_ONCE = 8
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Findings:
    """The containers that lack devices, by container id, and how many could not be checked."""

    without: Mapping[str, tuple[cri.Container, WithoutDevices]]
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class _Entitled:
    """The PCI addresses of the VFs and GPUs whose devices a container of a pod must have."""

    pod: str
    uid: str
    vfs: tuple[str, ...]
    gpus: tuple[str, ...]


class DeviceMetrics(Protocol):
    """Where the results are counted."""

    def devices_checked(self, without: int, unknown: int) -> None: ...

    def container_stopped(self) -> None: ...


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
        returned = not self.are_recent
        self._last = self._clock()
        return returned


class DeviceCheck:
    """The check of one node, with its ``records`` and the devices below ``roots``; its report is below ``run``."""

    def __init__(self, records: Records, roots: Roots, run: Path, metrics: DeviceMetrics, *, stops: bool) -> None:
        self._records = records
        self._roots = roots
        self._report = run / NAME
        self._metrics = metrics
        self._stops = stops
        self._kubelet = KubeletCalls()
        self._asked = asyncio.Event()
        self._gpus = GpuFolders(roots.sysfs, roots.proc, cdi_folders(roots.cdi))
        self._given: dict[str, frozenset[str]] = {}
        self._told: frozenset[str] = frozenset()
        self._untold: set[str] = set()

    def ask(self) -> None:
        """Make `run` check now."""
        self._asked.set()

    def note(self, method: str) -> None:
        """Record a forwarded call that has ended; the kubelet's first call after a pause starts a check."""
        if self._kubelet.note(method):
            self.ask()

    async def run(self, runtime: Runtime, interval_s: float = INTERVAL_S) -> None:
        """Check now, whenever asked, and every ``interval_s`` seconds; never return."""
        while True:
            self._asked.clear()
            try:
                await self.once(runtime)
            except (grpc.aio.AioRpcError, DecodeError, OSError) as reason:
                _log.warning("cannot check the devices of containers", reason=str(reason))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), interval_s)

    async def once(self, runtime: Runtime) -> None:
        """Check once and report the result; raise AioRpcError, DecodeError or OSError."""
        await self._act(runtime, await self.look(runtime))

    async def look(self, runtime: Runtime) -> Findings:
        """Check every running container of a recorded pod; raise AioRpcError, DecodeError or OSError."""
        uids = await asyncio.to_thread(self._records.pods)
        containers = await self._containers(runtime) if uids else ()
        entitled, unknown = await asyncio.to_thread(self._entitled, uids, containers)
        running = [(container, found) for container, found in entitled if found.vfs or found.gpus]
        ids = {container.id for container, _ in running}
        self._given = {container: given for container, given in self._given.items() if container in ids}
        self._untold &= ids
        without: dict[str, tuple[cri.Container, WithoutDevices]] = {}
        for container, due in running:
            try:
                lacks = await self._lacking(runtime, container, due)
            except (UnreadableSpecError, DeviceError, GpuError, DecodeError, grpc.aio.AioRpcError) as reason:
                self._take_unknown(container, due.pod, reason)
                unknown += 1
                continue
            if lacks:
                vfs, gpus = (tuple(pci for pci in of if pci in lacks) for of in (due.vfs, due.gpus))
                name = container.metadata.name
                without[container.id] = container, WithoutDevices(due.pod, due.uid, name, container.id, vfs, gpus=gpus)
        return Findings(without, unknown)

    async def _containers(self, runtime: Runtime) -> Sequence[tuple[str, cri.Container]]:
        """Return the running containers, each after its pod's uid."""
        uids = await runtime.sandboxes()
        return [(uids.get(each.pod_sandbox_id, ""), each) for each in await runtime.running()]

    def _take_unknown(self, container: cri.Container, pod: str, reason: Exception) -> None:
        """Log once why a container cannot be checked; raise the reason if the runtime is unavailable."""
        if isinstance(reason, grpc.aio.AioRpcError) and reason.code() == grpc.StatusCode.UNAVAILABLE:
            raise reason
        if container.id not in self._untold:
            self._untold.add(container.id)
            _log.warning("cannot check the devices of a container", pod=pod, id=container.id, reason=str(reason))

    def _entitled(
        self, uids: Iterable[str], containers: Sequence[tuple[str, cri.Container]]
    ) -> tuple[list[tuple[cri.Container, _Entitled]], int]:
        """Return what each running container of a recorded pod must have, and the number of unreadable records.

        The shim refuses every container of a pod with an unreadable record. A tenant's record may have 256 KiB, so
        records are not kept in memory, and this thread sleeps half of the time for the event loop.
        """
        of_pod: dict[str, list[cri.Container]] = {}
        for uid, container in containers:
            of_pod.setdefault(uid, []).append(container)
        found: list[tuple[cri.Container, _Entitled]] = []
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
                found += [(each, _entitled(record, gpus, each)) for each in of_pod.get(uid, ())]
            time.sleep(time.monotonic() - began_s)
        return found, unreadable

    async def _lacking(self, runtime: Runtime, container: cri.Container, due: _Entitled) -> tuple[str, ...]:
        numbers = await asyncio.to_thread(self._numbers, due)
        if container.id not in self._given:
            try:
                # The devices of a container never change.
                self._given[container.id] = await runtime.devices_of(container.id)
            except grpc.aio.AioRpcError as failure:
                if failure.code() == grpc.StatusCode.NOT_FOUND:
                    return ()
                raise
        return lacking(numbers, self._given[container.id])

    def _numbers(self, due: _Entitled) -> Mapping[str, str]:
        """Return the device number of each VF (its uverbs device) and GPU (its compute device), by PCI address."""
        of_vfs = {pci: uverbs_number(pci, self._roots) for pci in due.vfs}
        return of_vfs | {pci: node_number(self._roots.dev / self._gpus.node(pci)) for pci in due.gpus}

    async def _act(self, runtime: Runtime, found: Findings) -> None:
        """Report the containers without devices, and stop them if configured and the kubelet calls the shim."""
        stops = self._stops and self._kubelet.are_recent
        each = [(container, replace(without, stopped=stops)) for container, without in found.without.values()]
        self._metrics.devices_checked(len(each), found.unknown)
        for _, without in each:
            if without.id not in self._told:
                _log.warning("container lacks devices of its VFs or GPUs", **_fields(without))
        self._told = frozenset(found.without)
        await asyncio.to_thread(self._write, dump_without_devices([without for _, without in each]))
        if stops:
            turns = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(*(self._stop(runtime, container, without, turns) for container, without in each))

    def _write(self, text: str) -> None:
        try:
            if not is_text_of(self._report, text):
                write_shared(self._report, text)
        except OSError as refused:
            _log.warning("cannot write the report of containers without devices", reason=str(refused))

    async def _stop(
        self, runtime: Runtime, container: cri.Container, without: WithoutDevices, turns: asyncio.Semaphore
    ) -> None:
        async with turns:
            try:
                await runtime.stop(container)
            except grpc.aio.AioRpcError as refused:
                _log.warning("cannot stop the container", reason=str(refused.details()), **_fields(without))
                return
        self._metrics.container_stopped()
        _log.warning("container without devices of its VFs or GPUs stopped", **_fields(without))


def _entitled(record: PodRecord, gpus: GpuAssignment | None, container: cri.Container) -> _Entitled:
    name, assignment = container.metadata.name, record.assignment
    vfs = tuple(vf.pci for vf in entitled_vfs(assignment, name))
    return _Entitled(record.pod, assignment.uid, vfs, gpus.containers.get(name, ()) if gpus is not None else ())


def _fields(without: WithoutDevices) -> Mapping[str, object]:
    return {
        "pod": without.pod,
        "uid": without.uid,
        "container": without.container,
        "id": without.id,
        "vfs": list(without.vfs),
        "gpus": list(without.gpus),
    }
