"""Read a GPU's UUID and device nodes from files of its driver. Pure.

NVIDIA's driver has a file for each GPU in procfs, ``driver/nvidia/gpus/<address>/information``:

    Model: 		 NVIDIA L4
    GPU UUID: 	 GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689
    Device Minor: 	 0
    GPU Excluded:	 No

Sources: the driver's README, "The /proc interface"; a listing of an L4 in canonical/snapd pull request 14893. The UUID
contains question marks until the driver has opened the GPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mooring.gpu.inventory import Vendor

# PCI_VENDOR_ID_NVIDIA and PCI_VENDOR_ID_ATI in include/linux/pci_ids.h.
PCI_VENDORS: dict[str, Vendor] = {"0x10de": "nvidia", "0x1002": "amd"}
NVIDIA_GPUS = "driver/nvidia/gpus"
_RENDER = "renderD"


@dataclass(frozen=True, slots=True)
class NvidiaFile:
    """The contents of that file; absent values are None."""

    uuid: str | None = None
    model: str | None = None
    minor: int | None = None
    excluded: bool = False


def read_nvidia_file(text: str) -> NvidiaFile:
    """Read the file; unknown lines are ignored."""
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    minor = fields.get("Device Minor", "")
    return NvidiaFile(
        uuid=fields.get("GPU UUID"),
        model=fields.get("Model") or None,
        minor=int(minor) if minor.isdecimal() and len(minor) < 6 else None,
        # Before driver 465 the field was called "Blacklisted".
        excluded="Yes" in (fields.get("GPU Excluded"), fields.get("Blacklisted")),
    )


def amd_uuid(unique_id: int) -> str | None:
    """Return the UUID for ROCR_VISIBLE_DEVICES, derived from the GPU's unique id; None if that is 0 (none)."""
    return f"GPU-{unique_id:016x}" if unique_id else None


def read_hexadecimal(text: str | None) -> int:
    """Return an attribute of amdgpu, such as ``unique_id``, as a number; 0 if it is absent or invalid."""
    try:
        return int(text or "0", 16) & (1 << 64) - 1
    except ValueError:
        return 0


def device_nodes(vendor: Vendor, drm: Iterable[str], minor: int | None) -> tuple[str, ...]:
    """Return the device nodes below /dev that belong only to this GPU, the compute node first.

    The compute node is ``nvidia<minor>``, or the render node of an AMD GPU. Empty until the driver reports it. ``drm``
    are the GPU's nodes below /dev/dri.
    """
    nodes = tuple(f"dri/{name}" for name in sorted(drm, key=lambda name: not name.startswith(_RENDER)))
    if vendor == "amd":
        return nodes if nodes and nodes[0].startswith(f"dri/{_RENDER}") else ()
    return () if minor is None else (f"nvidia{minor}", *nodes)
