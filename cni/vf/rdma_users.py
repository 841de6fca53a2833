"""Find the processes that use the RDMA device of a VF on the host, and take it from one that keeps it.

In shared mode a process can keep its queue pairs on a VF's RDMA device after the netdev has left the pod. It gets a
short while to end; then the VF's driver is unbound and bound again, which takes every object from every process. It is
not while the host uses the VF, nor while a process has the device that had it before the pod.
"""

from collections.abc import Callable

import structlog

from cni.kernel import driver, rdma
from cni.kernel.sysfs import Sysfs
from cni.kernel.wait import wait_until
from cni.vf import host_users
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
# How long the pod's processes may take to end, in seconds: a large memory region takes seconds to unpin.
USED_S = 3.0


def free_device(sysfs: Sysfs, entry: LedgerEntry, while_unbound: Callable[[], object]) -> bool:
    """Return whether a VF's RDMA device has no users left; wait a while, then rebind the VF's driver.

    ``while_unbound`` is called while the VF has no driver.
    """
    if wait_until(lambda: not users_left(sysfs, entry), USED_S):
        return True
    left = sorted(users_left(sysfs, entry))
    if user := other_user(sysfs, entry):
        _log.warning("vf is still in use: its driver is not rebound", pci=entry.pci, processes=left, reason=user)
        return False
    _log.warning("vf is still in use: rebinding its driver", pci=entry.pci, pod=entry.pod, processes=left)
    try:
        driver.rebind(sysfs, entry.pci, while_unbound)
    except OSError as stuck:
        _log.error("vf's driver cannot be rebound", pci=entry.pci, reason=str(stuck))
    return not users_left(sysfs, entry)


def other_user(sysfs: Sysfs, entry: LedgerEntry) -> str | None:
    """Return who beside its pod uses a VF, and would lose it with a rebind; None if nobody does."""
    if user := host_users.user_beside_pod(sysfs, entry.pci):
        return user
    earlier = sorted(users_of(sysfs, entry.pci) & set(entry.original.users) - {rdma.NAMELESS})
    return f"processes {', '.join(map(str, earlier))} opened its RDMA device before the pod got it" if earlier else None


def users_left(sysfs: Sysfs, entry: LedgerEntry) -> frozenset[int]:
    """Return the processes that use a VF's RDMA device and did not already do so before the pod had it.

    One that the kernel does not name may be the pod's, whoever else had no name before.
    """
    return users_of(sysfs, entry.pci) - (set(entry.original.users) - {rdma.NAMELESS})


def users_of(sysfs: Sysfs, pci: str) -> frozenset[int]:
    """Return the processes that use a function's RDMA device on the host; none for one that is not there."""
    device = rdma.device_of(sysfs, pci)
    if device is None:
        return frozenset()
    try:
        return rdma.users(device.index)
    except OSError:
        # Without a device of this index the kernel answers EINVAL (nldev_res_get_doit): it left between the queries.
        if rdma.device_of(sysfs, pci) is None:
            return frozenset()
        raise
