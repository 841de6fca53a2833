"""Look for running containers of recorded pods that lack their VFs' devices, say so, and stop them where wanted.

The shim gives a container its devices when it is created. One that the kubelet creates on the runtime's own socket, in
a sandbox that has its VFs, runs with the netdevs and without the devices. Nothing else tells that: its calls never come
here. So the shim looks when it starts, when the kubelet calls again after a while, when it is asked (SIGHUP), and every
ten minutes.

A container is stopped only while the kubelet calls the shim: it would start it again on the same wrong way.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from cri_shim.devices import DeviceError, Roots, uverbs_number
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.container_devices import UnreadableSpecError, lacking
from cri_shim.plan.inject import entitled_vfs
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.errors import RecordError
from mooring.files import read_file, write_shared
from mooring.podrecord import PodRecord
from mooring.without_devices import NAME, WithoutDevices, dump_without_devices

INTERVAL_S = 600.0
# The kubelet asks for Status every 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go of Kubernetes).
_STATUS = "/runtime.v1.RuntimeService/Status"
_GONE_S = 30.0
_AT_ONCE = 8
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Findings:
    """The containers that lack devices, by the runtime's description, and how many could not be judged."""

    without: Mapping[str, tuple[cri.Container, WithoutDevices]]
    unknown: int = 0


class DeviceMetrics(Protocol):
    """Where the results are counted."""

    def devices_checked(self, without: int, unknown: int) -> None: ...

    def container_stopped(self) -> None: ...


class KubeletCalls:
    """Whether the kubelet calls here, by its calls of Status; ``clock`` is in monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = float("-inf")

    @property
    def are_recent(self) -> bool:
        return self._clock() - self._last < _GONE_S

    def note(self, method: str) -> bool:
        """Take a call that has ended; return whether it is the kubelet's first one after a while without."""
        if method != _STATUS:
            return False
        returned = not self.are_recent
        self._last = self._clock()
        return returned


class DeviceCheck:
    """The check of one node: records, devices below ``roots``, the report below ``run``."""

    def __init__(self, records: Records, roots: Roots, run: Path, metrics: DeviceMetrics, *, stops: bool) -> None:
        self._records = records
        self._roots = roots
        self._report = run / NAME
        self._metrics = metrics
        self._stops = stops
        self._kubelet = KubeletCalls()
        self._asked = asyncio.Event()
        self._given: dict[str, frozenset[str]] = {}
        self._told: frozenset[str] = frozenset()
        self._untold: set[str] = set()

    def ask(self) -> None:
        """Let `run` look now."""
        self._asked.set()

    def note(self, method: str) -> None:
        """Take a forwarded call that has ended."""
        if self._kubelet.note(method):
            self.ask()

    async def run(self, runtime: Runtime, interval_s: float = INTERVAL_S) -> None:
        """Look at once, whenever asked, and every ``interval_s`` seconds; never return."""
        while True:
            self._asked.clear()
            try:
                await self._act(runtime, await self.look(runtime))
            except (grpc.aio.AioRpcError, DecodeError, OSError) as reason:
                _log.warning("devices of containers not checked", reason=str(reason))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), interval_s)

    async def look(self, runtime: Runtime) -> Findings:
        """Judge every running container of a recorded pod; raise AioRpcError, DecodeError or OSError."""
        records, unknown = await asyncio.to_thread(self._read_records)
        running = await self._running(runtime, records) if records else ()
        ids = {container.id for container, _ in running}
        self._given = {container: given for container, given in self._given.items() if container in ids}
        self._untold &= ids
        without: dict[str, tuple[cri.Container, WithoutDevices]] = {}
        for container, record in running:
            try:
                vfs = await self._lacking(runtime, container, record)
            except (UnreadableSpecError, DeviceError, DecodeError, grpc.aio.AioRpcError) as reason:
                self._take_unknown(container, record, reason)
                unknown += 1
                continue
            if vfs:
                name, uid = container.metadata.name, record.assignment.uid
                without[container.id] = container, WithoutDevices(record.pod, uid, name, container.id, vfs)
        return Findings(without, unknown)

    async def _running(
        self, runtime: Runtime, records: Mapping[str, PodRecord]
    ) -> Sequence[tuple[cri.Container, PodRecord]]:
        uids = await runtime.sandboxes()
        containers = [(each, records.get(uids.get(each.pod_sandbox_id, ""))) for each in await runtime.running()]
        return [(container, record) for container, record in containers if record is not None]

    def _take_unknown(self, container: cri.Container, record: PodRecord, reason: Exception) -> None:
        """Log once why a container cannot be judged; raise the reason if the runtime is gone."""
        if isinstance(reason, grpc.aio.AioRpcError) and reason.code() == grpc.StatusCode.UNAVAILABLE:
            raise reason
        if container.id not in self._untold:
            self._untold.add(container.id)
            _log.warning("devices of a container not checked", pod=record.pod, id=container.id, reason=str(reason))

    def _read_records(self) -> tuple[Mapping[str, PodRecord], int]:
        """Return the records of pods with VFs, and how many cannot be read: these refuse every container.

        Of each only the VFs are kept, and half of the time is the event loop's: a tenant may have 256 KiB in each.
        """
        found: dict[str, PodRecord] = {}
        unreadable = 0
        for uid in self._records.pods():
            began_s = time.monotonic()
            try:
                record = self._records.pod(uid)
            except RecordError:
                unreadable += 1
                continue
            if record is not None and record.assignment.vfs:
                found[uid] = replace(record, assignment=replace(record.assignment, ext={}))
            time.sleep(time.monotonic() - began_s)
        return found, unreadable

    async def _lacking(self, runtime: Runtime, container: cri.Container, record: PodRecord) -> tuple[str, ...]:
        entitled = entitled_vfs(record.assignment, container.metadata.name)
        if not entitled:
            return ()
        numbers = await asyncio.to_thread(self._numbers, [vf.pci for vf in entitled])
        if container.id not in self._given:
            try:
                # They never change while the container lives.
                self._given[container.id] = await runtime.devices_of(container.id)
            except grpc.aio.AioRpcError as failure:
                if failure.code() == grpc.StatusCode.NOT_FOUND:
                    return ()
                raise
        return lacking(entitled, numbers, self._given[container.id])

    def _numbers(self, pcis: Sequence[str]) -> Mapping[str, str]:
        return {pci: uverbs_number(pci, self._roots) for pci in pcis}

    async def _act(self, runtime: Runtime, found: Findings) -> None:
        """Say what was found, then stop those containers if that is wanted and the kubelet would start them here."""
        stops = self._stops and self._kubelet.are_recent
        each = [(container, replace(without, stopped=stops)) for container, without in found.without.values()]
        self._metrics.devices_checked(len(each), found.unknown)
        for _, without in each:
            if without.id not in self._told:
                _log.warning("container lacks the devices of its VFs", **_fields(without))
        self._told = frozenset(found.without)
        await asyncio.to_thread(self._write, dump_without_devices([without for _, without in each]))
        if stops:
            turns = asyncio.Semaphore(_AT_ONCE)
            await asyncio.gather(*(self._stop(runtime, container, without, turns) for container, without in each))

    def _write(self, text: str) -> None:
        if read_file(self._report) != text:
            write_shared(self._report, text)

    async def _stop(
        self, runtime: Runtime, container: cri.Container, without: WithoutDevices, turns: asyncio.Semaphore
    ) -> None:
        async with turns:
            try:
                await runtime.stop(container)
            except grpc.aio.AioRpcError as refused:
                _log.warning("container not stopped", reason=str(refused.details()), **_fields(without))
                return
        self._metrics.container_stopped()
        _log.warning("container stopped, it lacked the devices of its VFs", **_fields(without))


def _fields(without: WithoutDevices) -> Mapping[str, object]:
    return {
        "pod": without.pod,
        "uid": without.uid,
        "container": without.container,
        "id": without.id,
        "vfs": list(without.vfs),
    }
