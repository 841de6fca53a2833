"""Find a VF's netdev after its RDMA device moved: IPoIB removes its netdev with the device and creates a new one.

The new netdev is in the device's namespace (from Linux 6.13) or on the host (before), with a new name and index. Only
its PCI function is the same. Source: ipoib_add_port in the kernel's drivers/infiniband/ulp/ipoib.
"""

import errno
import os

from cni.kernel import netlink, netns
from cni.kernel.sysfs import APPEARS_S, Sysfs
from cni.kernel.wait import RENAME_ERRNOS, wait_until


def follow(sysfs: Sysfs, pci: str, name: str, path: str) -> None:
    """Ensure that a VF's netdev is in the namespace at ``path`` as ``name``; raise OSError if the VF has no netdev.

    A netdev that is not IPoIB's does not move by itself, and costs one lookup.
    """
    if not wait_until(lambda: _ensure_in_pod(sysfs, pci, name, path), APPEARS_S):
        raise OSError(errno.ENODEV, f"vf {pci} has no network interface after its rdma device moved")


def keep_on_host(sysfs: Sysfs, pci: str, name: str, path: str) -> None:
    """Ensure that a VF's netdev is on the host as ``name``, and down, after its RDMA device has moved to ``path``.

    Raise OSError if the VF has no netdev. No netdev stays at ``path``: the pod requested only the RDMA device.
    """
    host = f"/proc/{os.getpid()}/ns/net"
    if not wait_until(lambda: _ensure_on_host(sysfs, pci, name, path, host), APPEARS_S):
        raise OSError(errno.ENODEV, f"vf {pci} has no network interface after its rdma device moved")


def _ensure_on_host(sysfs: Sysfs, pci: str, name: str, path: str, host: str) -> bool:
    """Move the netdev from the pod to the host if necessary, and take it down; return False to try again."""
    try:
        netns.run_in(path, lambda: _send(pci, name, host))
        on_host = sysfs.netdev(pci)
        if on_host is not None:
            netlink.set_up(on_host, up=False)
            netlink.rename(on_host, name)
    except OSError as error:
        if error.errno not in RENAME_ERRNOS:
            raise
        return False
    return on_host is not None


def _send(pci: str, name: str, host: str) -> None:
    link = netlink.with_parent(pci)
    if link is not None:
        netlink.set_up(link.index, up=False)
        netlink.move(link.index, host, name)


def _ensure_in_pod(sysfs: Sysfs, pci: str, name: str, path: str) -> bool:
    """Move the netdev to the pod if necessary; return False to try again, because udev may rename a new netdev."""
    try:
        if netns.run_in(path, lambda: _ensure_name(pci, name)):
            return True
        on_host = sysfs.netdev(pci)
        if on_host is not None:
            netlink.set_up(on_host, up=False)
            netlink.move(on_host, path, name)
    except OSError as error:
        if error.errno not in RENAME_ERRNOS:
            raise
        return False
    return on_host is not None


def _ensure_name(pci: str, name: str) -> bool:
    namesake = netlink.find(name)
    if namesake is not None and (namesake.parent is None or namesake.is_of(pci)):
        return True
    link = netlink.with_parent(pci)
    if link is not None:
        netlink.set_up(link.index, up=False)
        netlink.rename(link.index, name)
    return link is not None
