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

# Limit for unbinding, and for binding: some drivers wait without limit for every process that has the device open.
REBIND_S = 10.0
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"


def rebind(sysfs: Sysfs, pci: str, while_unbound: Callable[[], object] = lambda: None) -> None:
    """Unbind a VF from its driver and bind it again; raise OSError where the driver does not do it in time.

    ``while_unbound`` is called in between. Nobody uses the VF then, and the driver reads afresh what it finds.
    driver_override names the driver before it is unbound: `finish_rebind` can then complete what was interrupted,
    whatever autoprobe is. A driver_override that another program has set is kept, and is the one that counts.
    """
    driver, override = sysfs.driver(pci), sysfs.root / "bus/pci/devices" / pci / "driver_override"
    is_ours = driver is not None and sysfs.driver_override(pci) is None
    if driver is not None:
        if is_ours:
            _write(override, driver)
        _write(sysfs.root / "bus/pci/drivers" / driver / "unbind", pci)
    _ensure_bound(sysfs, pci, while_unbound)
    if sysfs.driver(pci) is None:
        raise OSError(errno.ENODEV, f"no driver binds to {pci}")
    if is_ours:
        _write(override, "\n")


def finish_rebind(sysfs: Sysfs, pci: str, while_unbound: Callable[[], object] = lambda: None) -> None:
    """Complete a rebind whose process was killed: bind a VF without a driver, and clear an override that names it.

    ``while_unbound`` is called for a VF without a driver.
    An override of another driver than the one that the VF has is the operator's.
    """
    _ensure_bound(sysfs, pci, while_unbound)
    if (override := sysfs.driver_override(pci)) is not None and override == sysfs.driver(pci):
        _write(sysfs.root / "bus/pci/devices" / pci / "driver_override", "\n")


def _ensure_bound(sysfs: Sysfs, pci: str, while_unbound: Callable[[], object]) -> None:
    if sysfs.driver(pci) is None:
        try:
            while_unbound()
        finally:
            _write(sysfs.root / "bus/pci/drivers_probe", pci)


def _write(path: Path, text: str) -> None:
    """Write an attribute of sysfs in a separate process, because a write that hangs in the kernel cannot be ended."""
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
