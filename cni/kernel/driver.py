"""Unbind a VF from its driver and bind it again, through sysfs.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci (unbind, bind, drivers_probe).
"""

import errno
import subprocess
import sys
from pathlib import Path

from cni.kernel.sysfs import Sysfs

# How long unbinding, and binding, may take: some drivers wait for every process that has the device, for ever.
REBIND_S = 10.0
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"


def rebind(sysfs: Sysfs, pci: str) -> None:
    """Unbind a VF from its driver and bind it again; raise OSError where the driver does not do it in time."""
    driver = sysfs.driver(pci)
    if driver is not None:
        _write(sysfs.root / "bus/pci/drivers" / driver / "unbind", pci)
    ensure_bound(sysfs, pci)


def ensure_bound(sysfs: Sysfs, pci: str) -> None:
    """Bind a VF without a driver to its own: whoever rebound it may have been killed in the middle."""
    if sysfs.driver(pci) is None:
        _write(sysfs.root / "bus/pci/drivers_probe", pci)


def _write(path: Path, pci: str) -> None:
    """Write a PCI address into a file of sysfs, in a process of its own: what hangs in the kernel cannot be ended."""
    command = [sys.executable, "-I", "-S", "-c", _WRITE, str(path), pci]
    writer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = writer.wait(REBIND_S)
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"{str(path)!r} has not taken {pci} within {REBIND_S:.0f} s") from None
    if status != 0:
        raise OSError(errno.EIO, f"{str(path)!r} refuses {pci}")
