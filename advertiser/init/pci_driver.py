"""Bind a VF to a driver, and unbind it, through sysfs.

While sriov_drivers_autoprobe is 0, the kernel binds a VF only to the driver in its driver_override
(pci_device_can_probe in drivers/pci/pci-driver.c of Linux 6.12).
"""

from pathlib import Path

from mooring.files import read_file

# The values of driver_override that name no driver (driver_override_show in drivers/pci/pci-sysfs.c).
_NONE = ("", "(null)")


def bind(sysfs: Path, vf: str, driver: str) -> None:
    """Bind a VF that has no driver; raise OSError with the kernel's errno.

    If driver_override names another driver, the operator has set it, and `bind` restores it afterwards. If it names
    this driver, an `init` that was killed may have set it, and `bind` clears it.
    """
    override = _override(sysfs, vf)
    kept = reserved_for(sysfs, vf, driver)
    write(override, driver)
    try:
        write(sysfs / "bus/pci/drivers" / driver / "bind", vf)
    finally:
        write(override, kept or "\n")


def reserved_for(sysfs: Path, vf: str, driver: str) -> str | None:
    """Return the driver that a VF's driver_override names if it is not ``driver``, None otherwise."""
    named = (read_file(_override(sysfs, vf)) or "").strip()
    return named if named not in (*_NONE, driver) else None


def _override(sysfs: Path, vf: str) -> Path:
    return sysfs / "bus/pci/devices" / vf / "driver_override"


def unbind(sysfs: Path, vf: str, driver: str) -> None:
    """Unbind a VF from its driver; raise OSError with the kernel's errno."""
    write(sysfs / "bus/pci/drivers" / driver / "unbind", vf)


def write(path: Path, text: str) -> None:
    """Write a sysfs attribute with one write(2); raise OSError with the kernel's errno."""
    with path.open("w") as file:
        file.write(text)
