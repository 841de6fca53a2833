"""Read the kernel's state of a pod's VFs, and compare it with their ledger entries."""

from cni.kernel import netlink, netns, rdma
from cni.plan import drift
from cni.vf.node import Node
from mooring.records.ledger import LedgerEntry


def differences_of(entry: LedgerEntry, live: drift.LiveState) -> tuple[str, ...]:
    """Describe how a VF differs from its entry; the MTU is not compared, because the entry does not have it."""
    mtu = live.interface.mtu if live.interface is not None else None
    return tuple(drift.from_kernel(entry, live, mtu, {}))


def observe(node: Node, entry: LedgerEntry) -> drift.LiveState:
    """Return the kernel's state of one VF: in its namespace, and on its PF."""
    try:
        settings = node.vf_settings.read(*node.sysfs.current_pf(entry.pci, entry.pf, entry.vf))
    except OSError:
        settings = None
    if not netns.is_same(entry.netns.path, entry.netns.cookie):
        return drift.LiveState(reachable=False, settings=settings)
    try:
        interface = netns.run_in(entry.netns.path, lambda: _interface(entry.ifname)) if entry.has_interface else None
        return drift.LiveState(True, interface, settings, _has_device(node, entry))
    except netns.NetnsGoneError:
        return drift.LiveState(reachable=False, settings=settings)


def _interface(ifname: str) -> drift.Interface | None:
    link = netlink.find(ifname)
    return drift.Interface(link.mac, link.mtu, link.up, netlink.addresses(link.index)) if link is not None else None


def _has_device(node: Node, entry: LedgerEntry) -> bool | None:
    """Return whether a VF's RDMA device is in the pod; None if it need not be there."""
    if entry.rdma is None or rdma.mode() != "exclusive" or node.sysfs.rdma(entry.pci) is None:
        return None
    return netns.run_in(entry.netns.path, lambda: rdma.device_of(node.sysfs, entry.pci) is not None)
