"""Make a VF's own GUID take effect: mlx5 reads it only when the VF's driver is bound.

So the driver is unbound and bound again once the PF has the GUID (ib-sriov-cni does the same). The kernel names the
devices that it creates then: the netdev gets our temporary name, and the entry the RDMA device's new name.
"""

from dataclasses import replace

from cni.kernel import driver, netlink
from cni.kernel.sysfs import APPEARS_S
from cni.kernel.wait import wait_until
from cni.spec.skel import NIC_REFUSED, CniError
from cni.vf.move_in import PendingAttachment, has_netdev
from cni.vf.node import Node, netdev_of, temporary_name


def take_effect(node: Node, pending: PendingAttachment) -> PendingAttachment:
    """Rebind a VF whose GUID has changed, under its lock; raise CniError 101 if its devices do not return."""
    wished = pending.settings.guid
    if wished is None or wished == pending.entry.original.settings.guid or node.sysfs.driver(pending.vf.pci) is None:
        return pending
    try:
        driver.rebind(node.sysfs, pending.vf.pci)
        return _find_again(node, pending)
    except OSError as stuck:
        what = f"vf {pending.vf.vf} of pf {pending.vf.pf!r} does not come back with guid {wished}"
        raise CniError(NIC_REFUSED, what, str(stuck)) from stuck


def _find_again(node: Node, pending: PendingAttachment) -> PendingAttachment:
    """Wait for the devices that the driver creates again, and record the RDMA device's new name."""
    pci, entry = pending.vf.pci, pending.entry
    wait_until(lambda: entry.rdma is None or node.sysfs.rdma(pci) is not None, APPEARS_S)
    device = node.sysfs.rdma(pci)
    if entry.rdma is not None and device is None:
        raise FileNotFoundError(f"its rdma device {entry.rdma!r} has not come back")
    if has_netdev(pending):
        link = netdev_of(node, pci, APPEARS_S)
        if link is None:
            raise FileNotFoundError(f"its network interface {entry.original.name!r} has not come back")
        netlink.set_up(link.name, up=False)
        netlink.rename(link.name, temporary_name(pci))
    renamed = replace(entry, rdma=device)
    node.ledger.write(renamed)
    return replace(pending, entry=renamed)
