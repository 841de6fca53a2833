"""Find a GPU on this host by its PCI address, and check with the runtime that no other pod has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.protobuf.message import DecodeError

from cri_shim.plan.gpus import (
    GpuError,
    HostGpu,
    cdi_fault,
    cdi_name,
    folder_mismatch,
    holder_conflict,
    live_pods,
    require_nodes,
)
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.gpu.assignment import GpuAssignment, assigned_gpus
from mooring.gpu.cdi_folders import CdiFolders
from mooring.gpu.identity import (
    NVIDIA_GPUS,
    PCI_VENDORS,
    NvidiaFile,
    amd_uuid,
    device_nodes,
    read_hexadecimal,
    read_nvidia_file,
)
from mooring.gpu.inventory import is_uuid


@dataclass(frozen=True, slots=True)
class GpuFolders:
    """The folders that describe the host's GPUs and the CDI devices that contain them."""

    sysfs: Path
    proc: Path
    cdi: CdiFolders

    def names(self, gpus: GpuAssignment, units: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of each unit's CDI device at this moment; raise GpuError."""
        devices = self.cdi.devices() if units else ()
        return tuple(cdi_name(pci, gpus.uuid_of(pci), self._host_gpu(pci), devices) for pci in units)

    def node(self, pci: str) -> str:
        """Return a GPU's compute device node, relative to /dev; raise GpuError."""
        return require_nodes(pci, self._host_gpu(pci))[0]

    def _host_gpu(self, pci: str) -> HostGpu:
        function = self.sysfs / "bus/pci/devices" / pci
        vendor = PCI_VENDORS.get(_text(function / "vendor"))
        if vendor is None:
            raise GpuError(f"GPU {pci}: the host has no GPU there")
        drm = tuple(entry.name for entry in _entries(function / "drm") if entry.name.startswith(("card", "renderD")))
        nvidia = self._nvidia_file(pci) if vendor == "nvidia" else NvidiaFile()
        uuid = nvidia.uuid if vendor == "nvidia" else amd_uuid(read_hexadecimal(_text(function / "unique_id")))
        return HostGpu(uuid if uuid is not None and is_uuid(uuid) else None, device_nodes(vendor, drm, nvidia.minor))

    def _nvidia_file(self, pci: str) -> NvidiaFile:
        # The driver writes addresses in lower case, as sysfs does; older drivers use upper case.
        folders = (self.proc / NVIDIA_GPUS / name for name in (pci, pci.upper()))
        return read_nvidia_file(next(filter(None, (_text(folder / "information") for folder in folders)), ""))


async def gpu_refusal(uid: str, units: tuple[str, ...], runtime: Runtime, records: Records, cdi: Sequence[str]) -> str:
    """Return why a container of the pod ``uid`` must not be given these GPUs now; empty if it may.

    ``cdi`` are the folders in which the shim reads CDI specifications. Raise RecordError or OSError.
    """
    try:
        status = await runtime.verbose_status()
        if reason := cdi_fault(await runtime.version(), status) or folder_mismatch(status, cdi):
            return reason
        live = live_pods(await runtime.sandboxes(), await runtime.running_containers())
    except grpc.aio.AioRpcError as error:
        return f"the runtime does not report which pods have GPUs: {error.details()}"
    except DecodeError as error:
        return f"the runtime does not report which pods have GPUs: {error}"
    gpus_of_pod: dict[str, GpuAssignment] = {}
    for other_uid in sorted(live & records.pods() - {uid}):
        record = records.pod(other_uid)
        gpus = None if record is None else assigned_gpus(record.assignment)
        if gpus is not None:
            gpus_of_pod[other_uid] = gpus
    return holder_conflict(units, gpus_of_pod)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
