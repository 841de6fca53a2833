"""Read what NVIDIA's driver shows in procfs: ``driver/nvidia/gpus/<address>/information`` and MIG's ``capabilities``.

`mooring.gpu.identity` parses ``information``. Source for ``capabilities``: the MIG user guide, "Device nodes and
capabilities".
"""

from pathlib import Path

from advertiser.host.sysfs import list_entries, read_attribute
from advertiser.inventory.gpu.facts import NvidiaInformation
from mooring.gpu.identity import NVIDIA_GPUS, read_nvidia_file
from mooring.nic.pci import is_address

_DRIVER = Path("driver/nvidia")


def read_nvidia_proc(proc: Path) -> dict[str, NvidiaInformation]:
    """Return the driver's information about each GPU by PCI address; empty without the driver."""
    folders = ((folder.name.lower(), folder) for folder in list_entries(proc / NVIDIA_GPUS))
    return {address: _information(proc / _DRIVER, folder) for address, folder in folders if is_address(address)}


def _information(driver: Path, folder: Path) -> NvidiaInformation:
    found = read_nvidia_file(read_attribute(folder / "information") or "")
    return NvidiaInformation(
        uuid=found.uuid,
        model=found.model,
        minor=found.minor,
        excluded=found.excluded,
        instances=found.minor is not None and _has_instances(driver, found.minor),
    )


def _has_instances(driver: Path, minor: int) -> bool:
    """Return whether MIG instances exist. MIG mode can be on without instances; only NVML shows that."""
    mig = driver / "capabilities" / f"gpu{minor}" / "mig"
    return any(path.name.startswith("gi") for path in list_entries(mig))
