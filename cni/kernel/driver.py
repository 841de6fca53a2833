"""Unbind a VF from its driver and bind it again, through sysfs.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci (unbind, driver_override, drivers_probe). If a PF has
sriov_drivers_autoprobe 0, the kernel probes its VFs only if their driver_override names a driver (pci_device_can_probe
in drivers/pci/pci-driver.c of Linux 6.12). A write to drivers_probe succeeds also for a VF that the kernel does not
probe.
"""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cni.kernel.sysfs import Sysfs

# Limit for an unbind and for a bind, in seconds: some drivers wait for every process that has the device open.
REBIND_S = 10.0
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"


def rebind(sysfs: Sysfs, pci: str, while_unbound: Callable[[], object] = lambda: None) -> None:
    """Unbind a VF from its driver and bind it again; raise OSError if the driver does not do it within REBIND_S.

    ``while_unbound`` is called in between, when no program uses the VF; the driver then reads the VF's new settings.
    The driver's name is written to driver_override before the unbind, so that `finish_rebind` can complete an
    interrupted rebind whatever autoprobe is. A driver_override that another program set is kept and used.
    """
    driver, override = sysfs.driver(pci), sysfs.root / "bus/pci/devices" / pci / "driver_override"
    is_ours = driver is not None and sysfs.driver_override(pci) is None
    if driver is not None:
        if is_ours:
            _write(override, driver)
        _write(sysfs.root / "bus/pci/drivers" / driver / "unbind", pci)
    _bind_if_unbound(sysfs, pci, while_unbound)
    if sysfs.driver(pci) is None:
        raise OSError(errno.ENODEV, f"no driver binds to {pci}")
    if is_ours:
        _write(override, "\n")


def finish_rebind(sysfs: Sysfs, pci: str, while_unbound: Callable[[], object] = lambda: None) -> None:
    """Complete a rebind whose process was killed: bind a VF that has no driver, and clear the driver_override.

    ``while_unbound`` is called if the VF has no driver. An override that names another driver than the VF's own is the
    operator's, and is kept.
    """
    _bind_if_unbound(sysfs, pci, while_unbound)
    if (override := sysfs.driver_override(pci)) is not None and override == sysfs.driver(pci):
        _write(sysfs.root / "bus/pci/devices" / pci / "driver_override", "\n")


def _bind_if_unbound(sysfs: Sysfs, pci: str, while_unbound: Callable[[], object]) -> None:
    if sysfs.driver(pci) is None:
        try:
            while_unbound()
        finally:
            _write(sysfs.root / "bus/pci/drivers_probe", pci)


def _write(path: Path, text: str) -> None:
    """Write a sysfs attribute from a separate process, because a write may hang in the kernel."""
    command = [sys.executable, "-I", "-S", "-c", _WRITE, str(path), text]
    writer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = writer.wait(REBIND_S)
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            errno.ETIMEDOUT, f"writing {text.strip()!r} to {str(path)!r} did not end within {REBIND_S:.0f} s"
        ) from None
    if status != 0:
        raise OSError(errno.EIO, f"writing {text.strip()!r} to {str(path)!r} failed")
