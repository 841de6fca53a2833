"""Find the processes that use a VF's RDMA device on the host, and take the device from processes of its old pod.

In shared mode a process can keep its queue pairs on a VF's RDMA device after the netdev has left the pod. It gets a few
seconds to end. Then the VF's driver is unbound and bound again, which destroys the objects of all processes. The driver
is not rebound while the host uses the VF, or while a process uses the device that opened it before the pod.
"""

from collections.abc import Callable

import structlog

from cni.kernel import driver, rdma
from cni.kernel.sysfs import Sysfs
from cni.kernel.wait import wait_until
from cni.vf import host_users
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
# How long processes of the pod may take to end, in seconds: unpinning a large memory region takes seconds.
USED_S = 3.0


def free_device(sysfs: Sysfs, entry: LedgerEntry, while_unbound: Callable[[], object]) -> bool:
    """Wait until a VF's RDMA device has no users, then rebind the VF's driver if it still has some.

    Return whether no user is left. ``while_unbound`` is called while the VF has no driver.
    """
    if wait_until(lambda: not pod_users(sysfs, entry), USED_S):
        return True
    pids = sorted(pod_users(sysfs, entry))
    if user := other_user(sysfs, entry):
        _log.warning("vf is still in use: its driver is not rebound", pci=entry.pci, processes=pids, reason=user)
        return False
    _log.warning("vf is still in use: rebinding its driver", pci=entry.pci, pod=entry.pod, processes=pids)
    try:
        driver.rebind(sysfs, entry.pci, while_unbound)
    except OSError as error:
        _log.error("vf's driver cannot be rebound", pci=entry.pci, reason=str(error))
    return not pod_users(sysfs, entry)


def other_user(sysfs: Sysfs, entry: LedgerEntry) -> str | None:
    """Return who else, beside its pod, uses a VF and would lose it in a rebind; None if there is no such user."""
    if user := host_users.user_beside_pod(sysfs, entry.pci):
        return user
    pids = sorted(users_of(sysfs, entry.pci) & set(entry.original.users) - {rdma.NAMELESS})
    return f"processes {', '.join(map(str, pids))} opened its RDMA device before the pod got it" if pids else None


def pod_users(sysfs: Sysfs, entry: LedgerEntry) -> frozenset[int]:
    """Return the processes that use a VF's RDMA device, without those that opened it before the pod.

    A process that the kernel does not name always counts, because it may be the pod's.
    """
    return users_of(sysfs, entry.pci) - (set(entry.original.users) - {rdma.NAMELESS})


def users_of(sysfs: Sysfs, pci: str) -> frozenset[int]:
    """Return the processes that use a function's RDMA device on the host; empty without a device."""
    device = rdma.device_of(sysfs, pci)
    if device is None:
        return frozenset()
    try:
        return rdma.users(device.index)
    except OSError:
        # EINVAL means that the device disappeared between the queries (nldev_res_get_doit).
        if rdma.device_of(sysfs, pci) is None:
            return frozenset()
        raise
