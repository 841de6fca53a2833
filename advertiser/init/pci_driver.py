"""Unbind a VF from its driver, and bind it to one, through sysfs.

While autoprobe is 0 the kernel binds a VF only if its driver_override names the driver (pci_device_can_probe in
drivers/pci/pci-driver.c of Linux 6.12).
"""

from pathlib import Path

from mooring.files import read_file

# What driver_override reads as where it names none (driver_override_show in drivers/pci/pci-sysfs.c).
_NONE = ("", "(null)")


def bind(sysfs: Path, vf: str, driver: str) -> None:
    """Bind a VF that has no driver; raise OSError with the kernel's errno.

    A driver_override that names another driver is the operator's, and is there again afterwards. One that names this
    driver may be of an `init` that was killed.
    """
    override = _override(sysfs, vf)
    kept = reserved_for(sysfs, vf, driver)
    write(override, driver)
    try:
        write(sysfs / "bus/pci/drivers" / driver / "bind", vf)
    finally:
        write(override, kept or "\n")


def reserved_for(sysfs: Path, vf: str, driver: str) -> str | None:
    """Return the other driver than ``driver`` that a VF's driver_override names; None without one."""
    named = (read_file(_override(sysfs, vf)) or "").strip()
    return named if named not in (*_NONE, driver) else None


def _override(sysfs: Path, vf: str) -> Path:
    return sysfs / "bus/pci/devices" / vf / "driver_override"


def unbind(sysfs: Path, vf: str, driver: str) -> None:
    """Take a VF from its driver; raise OSError with the kernel's errno."""
    write(sysfs / "bus/pci/drivers" / driver / "unbind", vf)


def write(path: Path, text: str) -> None:
    """Write an attribute of sysfs in one go; raise OSError with the kernel's errno."""
    with path.open("w") as file:
        file.write(text)
