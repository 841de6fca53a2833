"""Hosts with GPUs as data (``hosts/*.yaml``), rebuilt below a folder: sysfs, procfs, CDI specifications and NVML.

The forms of the files are the kernel's, NVIDIA's driver's and nvidia-ctk's; ``hosts/README.md`` has the sources.
"""

import ctypes
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from advertiser.host.gpu.documents import GpusFile
from advertiser.host.gpu.nvml import Nvml
from advertiser.host.gpu.read_gpus import GpuSources
from mooring.gpu.cdi_folders import CdiFolders

HOSTS = sorted((Path(__file__).parent / "hosts").glob("*.yaml"))
Layout = Mapping[str, Any]
# NVSwitches of HGX H100, as `nvidia-smi nvlink -R` of NVIDIA/nccl issue 1182 names them.
_SWITCH = "00000000:05:00.0"


def load_host(name: str) -> Layout:
    """Return a host by its file's stem."""
    layout: Layout = yaml.safe_load((Path(__file__).parent / "hosts" / f"{name}.yaml").read_text())
    return layout


class NvmlError(Exception):
    """What the library raises where a GPU does not know an answer, and when no event has come."""


class FabricInfo(ctypes.Structure):
    """c_nvmlGpuFabricInfo_t of nvidia-ml-py 13.615.71."""

    _fields_ = (
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_ubyte),
    )


@dataclass
class FakeNvml:
    """nvidia-ml-py on a host: the functions that are called, by their names there, answered from data."""

    gpus: list[SimpleNamespace]
    events: list[SimpleNamespace] = field(default_factory=list)
    works: bool = True
    before_count: Callable[[], object] = lambda: None
    NVMLError = NvmlError
    NVML_NVLINK_MAX_LINKS = 18
    c_nvmlGpuFabricInfo_t = FabricInfo  # noqa: N815 - likewise
    nvmlEventTypeXidCriticalError = 8  # noqa: N815 - the library's own name

    def __getattr__(self, name: str) -> Any:
        """Answer ``nvmlDeviceGetX`` by the GPU's value ``X``."""
        what = name.removeprefix("nvmlDeviceGet")
        if what == name:
            raise AttributeError(name)
        return lambda gpu, *index: self._answer(gpu, what, *index)

    def _answer(self, gpu: SimpleNamespace, what: str, *index: int) -> Any:
        value = getattr(gpu, what, None)
        if value is None or (index and index[0] >= len(value)):
            raise NvmlError(f"{what} is not supported")
        return value[index[0]] if index else value

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.works:
            raise NvmlError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self.before_count()
        if not self.works:
            raise NvmlError("GPU is lost")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> SimpleNamespace:  # noqa: N802
        return self.gpus[index]

    def nvmlEventSetCreate(self) -> list[SimpleNamespace]:  # noqa: N802
        return self.events

    def nvmlDeviceGetGpuFabricInfo(self, gpu: SimpleNamespace, pointer: Any) -> None:  # noqa: N802
        if (found := getattr(gpu, "FabricInfo", None)) is None:
            raise NvmlError("not supported")
        pointer._obj.state, pointer._obj.status = found

    def nvmlDeviceRegisterEvents(self, *_: Any) -> None:  # noqa: N802
        return

    def nvmlEventSetWait_v2(self, events: list[SimpleNamespace], _timeout_ms: int) -> SimpleNamespace:  # noqa: N802
        if not events:
            raise NvmlError("timeout")
        return events.pop(0)

    def xid(self, index: int, number: int) -> None:
        """Have a GPU report an Xid error."""
        self.events.append(SimpleNamespace(device=self.gpus[index], eventData=number))


@dataclass(frozen=True)
class Host:
    """A host below ``root``, with all that describes its GPUs."""

    root: Path
    layout: Layout
    nvml: FakeNvml | None

    @property
    def sysfs(self) -> Path:
        return self.root / "sys"

    @property
    def gpus(self) -> list[str]:
        return [gpu["pci"] for gpu in self.layout["gpus"]]

    def folder(self, index: int) -> Path:
        """Return the folder of a GPU's PCI function."""
        return (self.sysfs / "bus/pci/devices" / self.gpus[index]).resolve()

    def sources(self) -> GpuSources:
        """Open the sources of this host."""
        cdi = CdiFolders((self.root / "etc/cdi", self.root / "var/run/cdi"))
        file = GpusFile(self.root / "gpus.yaml", required=False)
        return GpuSources(self.sysfs, self.root / "proc", cdi, file, Nvml(self._library))

    def _library(self) -> FakeNvml:
        if self.nvml is None:
            raise ImportError("no module named 'pynvml'")
        return self.nvml


def build_host(root: Path, layout: Layout) -> Host:
    """Build a host's files at ``root``."""
    for gpu in layout["gpus"]:
        _function(root / "sys", gpu, _gpu_attributes(layout, gpu), "amdgpu" if "amd" in layout else "nvidia")
    for nic in layout["nics"]:
        _function(root / "sys", nic, {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"}, "mlx5_core")
    if "file" in layout:
        (root / "gpus.yaml").write_text(layout["file"])
    if "nvidia" in layout:
        return Host(root, layout, _nvidia(root, layout))
    _amd(root, layout)
    return Host(root, layout, None)


def uuid_of(layout: Layout, index: int) -> str:
    """Return the UUID that a GPU's driver tells."""
    if "amd" in layout:
        return f"GPU-{_unique_id(index):016x}"
    pci = layout["gpus"][index]["pci"]
    return str(layout.get("uuids", {}).get(pci, f"GPU-00000000-0000-4000-8000-{index:012d}"))


def write_cdi(
    root: Path, kind: str, devices: Mapping[str, Sequence[str]], folder: str = "etc/cdi", **more: Any
) -> Path:
    """Write a specification: each device's nodes below /dev."""
    listed = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/{node}"} for node in nodes]}}
        for name, nodes in devices.items()
    ]
    path = root / folder / f"{kind.replace('/', '-')}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"cdiVersion": "0.5.0", "kind": kind, "devices": listed} | more))
    return path


def _gpu_attributes(layout: Layout, gpu: Layout) -> dict[str, object]:
    if "nvidia" in layout:
        return {"class": "0x030200", "vendor": "0x10de", "device": layout["nvidia"].get("device", "0x2330")}
    index = layout["gpus"].index(gpu)
    # amdgpu_get_unique_id, amdgpu_mem_info_vram_total_show, amdgpu_gfx_get_current_compute_partition.
    return {
        "class": "0x120000",
        "vendor": "0x1002",
        "device": "0x74a1",
        "unique_id": f"{_unique_id(index):016x}",
        "mem_info_vram_total": layout["amd"]["memory_mib"] << 20,
        "current_compute_partition": "SPX",
        "xgmi_hive_info/xgmi_hive_id": layout["amd"]["hive"],
        f"drm/card{index}/dev": f"226:{index}",
        f"drm/renderD{128 + index}/dev": f"226:{128 + index}",
    }


def _unique_id(index: int) -> int:
    return 0xB000_0000_0000_0000 + index


def _function(sysfs: Path, function: Layout, attributes: Mapping[str, object], driver: str) -> None:
    under, address = function["under"], function["pci"]
    folder = sysfs.joinpath("devices", f"pci{(*under, address)[0][:7]}", *under, address)
    for name, value in {**attributes, "numa_node": function["numa"]}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{value}\n")
    (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    _link(folder / "driver", sysfs / "bus/pci/drivers" / driver)
    (sysfs / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
    _link(sysfs / "bus/pci/devices" / address, folder)


def _link(path: Path, target: Path) -> None:
    path.symlink_to(os.path.relpath(target, path.parent))


def _nvidia(root: Path, layout: Layout) -> FakeNvml | None:
    """Write procfs as in the listings of an L4, an H100 and an H200, and CDI as ``nvidia-ctk cdi generate`` does."""
    count = len(layout["gpus"])
    for index, gpu in enumerate(layout["gpus"]):
        folder = root / "proc/driver/nvidia/gpus" / gpu["pci"]
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            layout["nvidia"].get("information")
            or f"Model: \t\t {layout['nvidia']['model']}\nIRQ:   \t\t 16\nGPU UUID: \t {uuid_of(layout, index)}\n"
            f"Video BIOS: \t 95.04.65.00.13\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n"
            f"Bus Location: \t {gpu['pci']}\nDevice Minor: \t {index}\nGPU Excluded:\t No\n"
        )
    devices = {str(index): [f"nvidia{index}"] for index in range(count)}
    devices |= {uuid_of(layout, index): [f"nvidia{index}"] for index in range(count)}
    devices["all"] = [f"nvidia{index}" for index in range(count)]
    shared = {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}
    write_cdi(root, "nvidia.com/gpu", devices, containerEdits=shared)
    return None if layout["nvidia"]["nvlink"] is None else FakeNvml(_nvml_gpus(layout))


def _nvml_gpus(layout: Layout) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            PciInfo=SimpleNamespace(busId=_bus_id(gpu["pci"]).encode()),
            UUID=uuid_of(layout, index),
            Name=layout["nvidia"]["model"],
            MemoryInfo=SimpleNamespace(total=layout["nvidia"]["memory_mib"] << 20),
            MigMode=[0, 0],
            **_nvlinks(layout, index),
        )
        for index, gpu in enumerate(layout["gpus"])
    ]


def _nvlinks(layout: Layout, index: int) -> dict[str, Any]:
    """Return the ends of a GPU's NVLinks: all at switches, or one for each of its pairs, after one that is off."""
    nvlink = layout["nvidia"]["nvlink"]
    kind = 2 if nvlink == "switch" else 0
    peers = [next(iter({*pair} - {index})) for pair in ([] if nvlink == "switch" else nvlink) if index in pair]
    if not nvlink:
        # A GPU without NVLink, or passed through without it: each question is answered with "not supported".
        return {}
    ends = (
        [_SWITCH] * 18 if nvlink == "switch" else [_SWITCH, *(_bus_id(layout["gpus"][peer]["pci"]) for peer in peers)]
    )
    return {
        "NvLinkState": [1] * 18 if nvlink == "switch" else [0, *[1] * len(peers)],
        "NvLinkRemoteDeviceType": [kind] * len(ends),
        "NvLinkRemotePciInfo": [SimpleNamespace(busId=end.encode()) for end in ends],
    }


def _bus_id(pci: str) -> str:
    return f"0000{pci}".upper()


def _amd(root: Path, layout: Layout) -> None:
    """Write the KFD topology: two CPUs, then the GPUs, each with links to a CPU (type 2) and by xGMI (type 11)."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for cpu in range(2):
        _kfd_node(nodes / str(cpu), 0, {"simd_count": 0, "location_id": 0}, [])
    numbers = {gpu["pci"]: 2 + index for index, gpu in enumerate(layout["gpus"])}
    for index, gpu in enumerate(layout["gpus"]):
        bus = int(gpu["pci"][5:7], 16)
        properties = {
            "location_id": bus << 8,
            "domain": 0,
            "unique_id": _unique_id(index),
            "drm_render_minor": 128 + index,
        }
        links = [(2, 0), *((11, number) for pci, number in numbers.items() if pci != gpu["pci"])]
        _kfd_node(nodes / str(numbers[gpu["pci"]]), 1000 + index, properties, links)
    devices = {str(index): ["kfd", f"dri/card{index}", f"dri/renderD{128 + index}"] for index in range(len(numbers))}
    devices["all"] = sorted({node for nodes in devices.values() for node in nodes})
    path = write_cdi(root, "amd.com/gpu", devices)
    path.with_suffix(".json").write_text(json.dumps(yaml.safe_load(path.read_text())))
    path.unlink()


def _kfd_node(folder: Path, gpu_id: int, properties: Mapping[str, int], links: Sequence[tuple[int, int]]) -> None:
    (folder / "io_links").mkdir(parents=True)
    (folder / "gpu_id").write_text(f"{gpu_id}\n")
    (folder / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    for number, (kind, target) in enumerate(links):
        (folder / f"io_links/{number}").mkdir()
        lines = f"type {kind}\nversion_major 0\nnode_from {folder.name}\nnode_to {target}\nweight 15\n"
        (folder / f"io_links/{number}/properties").write_text(lines)
