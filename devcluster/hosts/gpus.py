"""The GPUs of a simulated host: what sysfs, NVIDIA's driver and nvidia-ctk say of them, and device nodes without a GPU.

The first half lies below a switch that has no NIC, the other half below that of the first PF. So a pod has a GPU and a
VF below one switch only where both were chosen together: the first GPUs by address are the wrong ones. The forms of
the files are those of tests/advertiser/gpu/hosts/README.md; where mknod is not permitted (a user namespace) regular
files stand for nodes.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from devcluster.hosts.devices import make_node
from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import Host
from devcluster.hosts.sysfs import add_function

# Source: Documentation/admin-guide/devices.txt; the minors of a host with GPUs of its own begin at 0.
_MAJOR, _FIRST_MINOR = 195, 64
_MODEL = "NVIDIA H100 80GB HBM3"
_FAR = "0000:00:03.0", "0000:07:00.0"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: ``pcie`` are the bridges above it, ``index`` is the N of its /dev/nvidiaN."""

    pci: str
    uuid: str
    index: int
    pcie: tuple[str, ...]

    @property
    def node(self) -> str:
        return f"nvidia{self.index}"


def describe_gpus(host: Host) -> Iterator[Gpu]:
    """Yield a host's GPUs by PCI address."""
    for index in range(host.gpus):
        is_near = index >= host.gpus // 2
        above = host.pfs[0].pcie if is_near else _FAR
        uuid = f"GPU-{host.number:08x}-0000-4000-8000-{index:012x}"
        # A switch has a bridge of its own above each GPU.
        port = f"0000:{above[-1][5:7]}:{16 + index:02x}.0"
        yield Gpu(f"0000:{(0x10 if is_near else 0x08) + index:02x}:00.0", uuid, index, (*above, port))


def make_gpus(layout: Layout, host: Host) -> None:
    """Make a host's GPUs beside its NICs."""
    gpus = list(describe_gpus(host))
    for gpu in gpus:
        identity = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
        add_function(layout.sys, gpu.pci, gpu.pcie, "nvidia", {**identity, "numa_node": str(host.pfs[0].numa)})
        told = layout.proc / "driver/nvidia/gpus" / gpu.pci / "information"
        told.parent.mkdir(parents=True, exist_ok=True)
        told.write_text(
            f"Model: \t\t {_MODEL}\nGPU UUID: \t {gpu.uuid}\nBus Type: \t PCIe\nBus Location: \t {gpu.pci}\n"
            f"Device Minor: \t {gpu.index}\nGPU Excluded:\t No\n"
        )
        (layout.dev / gpu.node).unlink(missing_ok=True)
        make_node(layout.dev / gpu.node, 0o666, _MAJOR, _FIRST_MINOR + gpu.index)
    if gpus:
        layout.cdi.mkdir(parents=True, exist_ok=True)
        (layout.cdi / "nvidia.json").write_text(json.dumps(_specification(layout, gpus)))


def _specification(layout: Layout, gpus: list[Gpu]) -> dict[str, object]:
    """Return the CDI specification: each GPU by its UUID."""
    devices = []
    for gpu in gpus:
        numbers = {"type": "c", "major": _MAJOR, "minor": _FIRST_MINOR + gpu.index}
        node = {"path": f"/dev/{gpu.node}", "hostPath": str(layout.dev / gpu.node), **numbers}
        devices.append({"name": gpu.uuid, "containerEdits": {"deviceNodes": [node]}})
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
