"""Unbind a VF from its driver, and bind it to one, through sysfs.

While autoprobe is 0 the kernel binds a VF only if its driver_override names the driver (pci_device_can_probe in
drivers/pci/pci-driver.c of Linux 6.12).
"""

from pathlib import Path


def bind(sysfs: Path, vf: str, driver: str) -> None:
    """Bind a VF that has no driver; raise OSError with the kernel's errno."""
    override = sysfs / "bus/pci/devices" / vf / "driver_override"
    write(override, driver)
    try:
        write(sysfs / "bus/pci/drivers" / driver / "bind", vf)
    finally:
        write(override, "\n")


def unbind(sysfs: Path, vf: str, driver: str) -> None:
    """Take a VF from its driver; raise OSError with the kernel's errno."""
    write(sysfs / "bus/pci/drivers" / driver / "unbind", vf)


def write(path: Path, text: str) -> None:
    """Write an attribute of sysfs in one go; raise OSError with the kernel's errno."""
    with path.open("w") as file:
        file.write(text)
