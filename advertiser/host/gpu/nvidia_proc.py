"""NVIDIA's driver in procfs: ``driver/nvidia/gpus/<address>/information`` and MIG's ``capabilities``.

    Model: 		 NVIDIA L4
    GPU UUID: 	 GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689
    Device Minor: 	 0
    GPU Excluded:	 No

Sources: the driver's README, "The /proc interface"; a listing of an L4 in canonical/snapd pull request 14893; the MIG
user guide, "Device nodes and capabilities". The UUID has question marks before the driver has opened the GPU once.
"""

from pathlib import Path

from advertiser.host.sysfs import list_entries, read_attribute
from advertiser.inventory.gpu.facts import NvidiaInformation
from mooring.pci import is_address

_DRIVER = Path("driver/nvidia")


def read_nvidia_proc(proc: Path) -> dict[str, NvidiaInformation]:
    """Return what the driver writes of each GPU, by PCI address; nothing without the driver."""
    driver = proc / _DRIVER
    folders = ((_address(folder.name), folder) for folder in list_entries(driver / "gpus"))
    return {address: _information(driver, folder) for address, folder in folders if is_address(address)}


def _address(name: str) -> str:
    return name.lower()


def _information(driver: Path, folder: Path) -> NvidiaInformation:
    text = read_attribute(folder / "information") or ""
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    minor = fields.get("Device Minor", "")
    number = int(minor) if minor.isdecimal() and len(minor) < 6 else None
    return NvidiaInformation(
        uuid=fields.get("GPU UUID"),
        model=fields.get("Model") or None,
        minor=number,
        # "Blacklisted" until driver 465.
        excluded="Yes" in (fields.get("GPU Excluded"), fields.get("Blacklisted")),
        instances=number is not None and _has_instances(driver, number),
    )


def _has_instances(driver: Path, minor: int) -> bool:
    """Return whether MIG has cut GPU instances; without any it is MIG mode all the same, which only NVML tells."""
    mig = driver / "capabilities" / f"gpu{minor}" / "mig"
    return any(path.name.startswith("gi") for path in list_entries(mig))
