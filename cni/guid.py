"""Make a VF's own GUID take effect: mlx5 reads it when the VF's driver is bound, and at no other time.

So the driver is unbound and bound again once the PF has the GUID (sriov-cni's kin for InfiniBand does the same). The
devices come back under names of the kernel's choice: the netdev gets our temporary one, the entry the RDMA device's.
"""

from dataclasses import replace

from cni import freeing, netlink
from cni.bringin import Taking, has_netdev
from cni.node import Node, netdev_of, temporary_name
from cni.skel import NIC_REFUSED, CniError
from cni.sysfs import APPEARS_S


def take_effect(node: Node, taking: Taking) -> Taking:
    """Rebind a VF that got another GUID than it had, under its lock; raise CniError 101 where it does not come back."""
    wished = taking.settings.guid
    if wished is None or wished == taking.entry.original.settings.guid or node.sysfs.driver(taking.vf.pci) is None:
        return taking
    try:
        freeing.rebind(node.sysfs, taking.vf.pci)
        return _found_again(node, taking)
    except OSError as stuck:
        what = f"vf {taking.vf.vf} of pf {taking.vf.pf!r} does not come back with guid {wished}"
        raise CniError(NIC_REFUSED, what, str(stuck)) from stuck


def _found_again(node: Node, taking: Taking) -> Taking:
    """Wait for the devices that the driver makes anew, and enter the RDMA device's new name."""
    pci, entry = taking.vf.pci, taking.entry
    freeing.comes_true(lambda: entry.rdma is None or node.sysfs.rdma(pci) is not None, APPEARS_S)
    device = node.sysfs.rdma(pci)
    if entry.rdma is not None and device is None:
        raise FileNotFoundError(f"its rdma device {entry.rdma!r} has not come back")
    if has_netdev(taking):
        link = netdev_of(node, pci, APPEARS_S)
        if link is None:
            raise FileNotFoundError(f"its network interface {entry.original.name!r} has not come back")
        netlink.set_up(link.name, up=False)
        netlink.rename(link.name, temporary_name(pci))
    renamed = replace(entry, rdma=device)
    node.ledger.write(renamed)
    return replace(taking, entry=renamed)
