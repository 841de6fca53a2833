"""Decide how a container gets its GPUs: values in, values out.

A container gets a GPU by the name of the CDI device that contains exactly that GPU; the runtime resolves the name. The
names are chosen at each CreateContainer, because indexes and device minors may change, unlike PCI address and UUID.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cri_shim.pb import cri_pb2 as cri
from mooring.gpu.assignment import GpuAssignment
from mooring.gpu.cdi import CdiDevice, Contradiction, choose, holds
from mooring.parsing import dump

# NVIDIA's runtime adds the GPUs in this variable to a container; with "void" it adds none. Containers get GPUs only by
# CDI. Source: NVIDIA Container Toolkit, "Specialized configurations with Docker".
NVIDIA_VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
# Limit of the runtime's configuration, which usually has 20 kB (`crictl info`).
_MOST_BYTES = 8 << 20
# The first CRI-O that supports ContainerConfig.CDI_devices: cri-o pull request 6944.
_CRIO = (1, 28)
# The first containerd that supports ContainerConfig.CDI_devices: containerd pull request 6654.
_CONTAINERD_TAKES = (1, 7)
# The first containerd that always has CDI on, and no field for it: containerd pull request 14166.
_CONTAINERD = (2, 4)
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})", re.ASCII)


class GpuError(LookupError):
    """A GPU that cannot be added to a container; the text has the GPU and the reason."""


@dataclass(frozen=True, slots=True)
class HostGpu:
    """A GPU on the host: its UUID (None until its driver reports it), and its device nodes below /dev."""

    uuid: str | None
    nodes: tuple[str, ...]


def require_nodes(pci: str, host_gpu: HostGpu) -> tuple[str, ...]:
    """Return a GPU's device nodes, at least one; raise GpuError."""
    if not host_gpu.nodes:
        raise GpuError(f"GPU {pci}: its driver does not report its device nodes")
    return host_gpu.nodes


def cdi_name(pci: str, uuid: str, host_gpu: HostGpu, devices: Iterable[CdiDevice]) -> str:
    """Return the CDI device by which a container gets the assigned GPU (`mooring.gpu.cdi.choose`); raise GpuError."""
    if host_gpu.uuid is not None and host_gpu.uuid != uuid:
        raise GpuError(f"GPU {pci}: the host has {host_gpu.uuid} there, not {uuid}")
    nodes = require_nodes(pci, host_gpu)
    choice = choose((device for device in devices if holds(device, nodes)), uuid)
    if choice is None:
        raise GpuError(f"GPU {pci}: no CDI device contains exactly this GPU ({nodes[0]})")
    if isinstance(choice, Contradiction):
        raise GpuError(f"GPU {pci}: CDI devices {choice.first} and {choice.second} define it differently")
    return choice.qualified_name


def gpu_environment(gpus: GpuAssignment, units: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that list a container's GPUs, in the order of their CUDA numbers."""
    entries = [{"pci": pci, "uuid": gpus.uuid_of(pci), "interface": gpus.beside.get(pci)} for pci in units]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "MOORING_GPUS": dump(entries)}


def holder_conflict(units: Collection[str], gpus_of_pod: Mapping[str, GpuAssignment]) -> str:
    """Return why GPUs are not free, empty if they are; ``gpus_of_pod`` has the GPUs of other live pods, by uid."""
    for uid, gpus in gpus_of_pod.items():
        for pci in units:
            if pci in gpus.units:
                return (
                    f"GPU {pci} is held by pod {uid!r}, which has a ready sandbox or a running container on this node"
                )
    return ""


def live_pods(sandboxes: Sequence[cri.PodSandbox], containers: Iterable[cri.Container]) -> frozenset[str]:
    """Return the uids of the pods that have a ready sandbox or a running container."""
    uid_of = {sandbox.id: sandbox.metadata.uid for sandbox in sandboxes}
    ready = {sandbox.metadata.uid for sandbox in sandboxes if sandbox.state == cri.SANDBOX_READY}
    return frozenset(ready | {uid_of.get(container.pod_sandbox_id, "") for container in containers})


class _Config(msgspec.Struct):
    enable_cdi: bool | None = msgspec.field(name="enableCDI", default=None)
    folders: list[str] | None = msgspec.field(name="cdiSpecDirs", default=None)


_config = msgspec.json.Decoder(_Config)


def cdi_fault(version: cri.VersionResponse, status: cri.StatusResponse) -> str:
    """Return why the runtime would ignore CDI devices, empty if it supports them.

    containerd reports its configuration in the verbose Status (``enableCDI``: containerd pull request 6654). It is off
    by default in 1.7, and always on in releases without the field. CRI-O supports CDI from 1.28.
    """
    name = f"{version.runtime_name} {version.runtime_version}"
    if version.runtime_name == "cri-o":
        is_new = _is_from(_CRIO, version)
        return "" if is_new else f"the runtime {name} does not support CDI devices: CRI-O supports them from 1.28"
    if version.runtime_name == "containerd" and _is_before(_CONTAINERD_TAKES, version):
        return f"the runtime {name} does not support CDI devices: containerd supports them from 1.7"
    config = _config_of(status)
    has_cdi = config is not None and (
        (config.enable_cdi is None and _is_from(_CONTAINERD, version)) or bool(config.enable_cdi)
    )
    return "" if has_cdi else f"the runtime {name} has CDI disabled: its configuration needs enable_cdi = true"


def folder_mismatch(status: cri.StatusResponse, folders: Sequence[str]) -> str:
    """Return why a CDI name may mean another device for the runtime; empty if it reads the same folders.

    The order matters, because later folders override earlier ones. A runtime that does not report its folders passes:
    the call fails if it does not find the name.
    """
    config = _config_of(status)
    runtime_folders = config.folders if config is not None else None
    if not runtime_folders or list(map(_at, runtime_folders)) == list(map(_at, folders)):
        return ""
    runtime_path, shim_path = ":".join(runtime_folders), ":".join(folders)
    return f"the runtime reads CDI specifications from {runtime_path}, but mooring-cri-shim from {shim_path} (--cdi)"


def _at(folder: str) -> str:
    """Return a folder's path in normal form, with /run for /var/run."""
    path = posixpath.normpath(folder)
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def _config_of(status: cri.StatusResponse) -> _Config | None:
    text = status.info.get("config", b"")
    try:
        return _config.decode(text) if 0 < len(text) <= _MOST_BYTES else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _is_from(first: tuple[int, int], version: cri.VersionResponse) -> bool:
    release = _release(version)
    return release is not None and release >= first


def _is_before(first: tuple[int, int], version: cri.VersionResponse) -> bool:
    release = _release(version)
    return release is not None and release < first


def _release(version: cri.VersionResponse) -> tuple[int, int] | None:
    match = _VERSION.match(version.runtime_version)
    return (int(match[1]), int(match[2])) if match is not None else None
