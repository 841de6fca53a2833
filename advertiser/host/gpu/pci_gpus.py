"""Find GPUs in sysfs: PCI functions of NVIDIA and AMD with the class of a GPU."""

from pathlib import Path

from advertiser.host.sysfs import bridges_above, link_target, list_entries, read_attribute
from advertiser.inventory.gpu.facts import GpuFunction
from mooring.gpu.identity import PCI_VENDORS
from mooring.gpu.inventory import Vendor
from mooring.nic.pci import is_address

# PCI_CLASS_DISPLAY_VGA, _3D and _OTHER, and PCI_CLASS_ACCELERATOR_PROCESSING, which amdgpu's pciidlist names for the
# MI300 series. An NVSwitch is a bridge of class 0x0680.
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


def read_gpu_functions(sysfs: Path) -> tuple[GpuFunction, ...]:
    """Return every GPU, ordered by address, without VFs of this machine's own GPUs (vGPU)."""
    folders = [path for path in list_entries(sysfs / "bus/pci/devices") if is_address(path.name)]
    found = ((folder, PCI_VENDORS.get(read_attribute(folder / "vendor") or "")) for folder in folders)
    return tuple(_function(folder, vendor) for folder, vendor in found if vendor is not None and _is_gpu(folder))


def _is_gpu(folder: Path) -> bool:
    kind = read_attribute(folder / "class") or ""
    return kind.startswith(_CLASSES) and link_target(folder / "physfn") is None


def _function(folder: Path, vendor: Vendor) -> GpuFunction:
    return GpuFunction(
        address=folder.name,
        vendor=vendor,
        driver=link_target(folder / "driver"),
        numa_node=read_attribute(folder / "numa_node"),
        path=bridges_above(folder),
        drm=tuple(path.name for path in list_entries(folder / "drm") if path.name.startswith(("card", "renderD"))),
        product_name=read_attribute(folder / "product_name") or None,
        vram=read_attribute(folder / "mem_info_vram_total"),
        unique_id=read_attribute(folder / "unique_id"),
        partition=read_attribute(folder / "current_compute_partition"),
        hive=read_attribute(folder / "xgmi_hive_info/xgmi_hive_id"),
    )
