"""Say when a VF that has come home is free again, and take it from a process that will not let go of it.

In shared mode a process can keep its queue pairs on a VF's RDMA device after the netdev has left the pod. It gets a
short while to end; then the VF's driver is unbound and bound again, which takes every object from every process.
Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci (unbind, bind, drivers_probe).
"""

import errno
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from cni import rdma
from cni.sysfs import Sysfs
from mooring.ledger import LedgerEntry

_log = structlog.get_logger()
# How long the pod's processes may take to end, in seconds: a large memory region takes seconds to unpin.
USED_S = 3.0
# How long unbinding, and binding, may take: some drivers wait for every process that has the device, for ever.
REBIND_S = 10.0
# Most of what is waited for is there after a millisecond or two; a process that will not end is asked less often.
_FIRST_POLL_S, _POLL_S = 0.001, 0.02
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"


def free_again(sysfs: Sysfs, entry: LedgerEntry) -> bool:
    """Say whether nobody uses a VF's RDMA device any more; wait a while, then rebind the VF's driver."""
    if comes_true(lambda: not users_left(sysfs, entry), USED_S):
        return True
    left = sorted(users_left(sysfs, entry))
    _log.warning("vf is still in use and its driver is rebound", pci=entry.pci, pod=entry.pod, processes=left)
    try:
        rebind(sysfs, entry.pci)
    except OSError as stuck:
        _log.error("vf cannot be rebound", pci=entry.pci, reason=str(stuck))
    return not users_left(sysfs, entry)


def users_left(sysfs: Sysfs, entry: LedgerEntry) -> frozenset[int]:
    """Return the processes that use a VF's RDMA device and did not already do so before the pod had it."""
    name = sysfs.rdma(entry.pci)
    return users_of(name) - set(entry.original.users) if name is not None else frozenset()


def users_of(name: str) -> frozenset[int]:
    """Return the processes that use an RDMA device of the host; none for one that is not there."""
    try:
        return rdma.users(name)
    except OSError as gone:
        # The device went between the two looks, or the kernel has no RDMA at all.
        if gone.errno == errno.ENODEV:
            return frozenset()
        raise


def rebind(sysfs: Sysfs, pci: str) -> None:
    """Unbind a VF from its driver and bind it again; raise OSError where the driver does not do it in time."""
    driver = sysfs.driver(pci)
    if driver is not None:
        _tell(sysfs.root / "bus/pci/drivers" / driver / "unbind", pci)
    ensure_bound(sysfs, pci)


def ensure_bound(sysfs: Sysfs, pci: str) -> None:
    """Bind a VF without a driver to its own: whoever rebound it may have been killed in the middle."""
    if sysfs.driver(pci) is None:
        _tell(sysfs.root / "bus/pci/drivers_probe", pci)


def _tell(path: Path, pci: str) -> None:
    """Write a PCI address into a file of sysfs, in a process of its own: what hangs in the kernel cannot be ended."""
    command = [sys.executable, "-I", "-S", "-c", _WRITE, str(path), pci]
    writer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = writer.wait(REBIND_S)
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"{str(path)!r} has not taken {pci} within {REBIND_S:.0f} s") from None
    if status != 0:
        raise OSError(errno.EIO, f"{str(path)!r} refuses {pci}")


def comes_true(reached: Callable[[], bool], limit_s: float) -> bool:
    """Look until a condition holds; return False if it does not within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    pause_s = _FIRST_POLL_S
    while not (there := reached()) and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _POLL_S)
    return there
