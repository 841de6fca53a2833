"""Read the current state of a pod's VFs: what the kernel reports of each, and how it differs from the ledger entry."""

from collections.abc import Callable

from cni.kernel import netlink, netns, rdma
from cni.plan import drift
from cni.vf.node import Node
from mooring.ledger import LedgerEntry


def differences_of(entry: LedgerEntry, found: drift.LiveState) -> tuple[str, ...]:
    """Return how a VF differs from its entry; the MTU that a network gives is only in its configuration."""
    mtu = found.interface.mtu if found.interface is not None else None
    return tuple(drift.from_kernel(entry, found, mtu, {}))


def observe(node: Node, entry: LedgerEntry) -> drift.LiveState:
    """Return the kernel's state of one VF: in its namespace, and on its PF."""
    try:
        settings = node.vf_settings.read(entry.pf, entry.vf)
    except OSError:
        settings = None
    device = node.sysfs.rdma(entry.pci) if entry.rdma is not None and rdma.mode() == "exclusive" else None
    if not netns.is_same(entry.netns.path, entry.netns.cookie):
        return drift.LiveState(reachable=False, settings=settings)
    try:
        interface, has_device = netns.run_in(entry.netns.path, _inside(entry.ifname, device))
    except netns.NetnsGoneError:
        return drift.LiveState(reachable=False, settings=settings)
    return drift.LiveState(True, interface, settings, has_device if entry.rdma is not None and device else None)


def _inside(ifname: str, device: str | None) -> Callable[[], tuple[drift.Interface | None, bool]]:
    def seen() -> tuple[drift.Interface | None, bool]:
        link = netlink.find(ifname)
        has_device = device is not None and device in rdma.devices()
        if link is None:
            return None, has_device
        return drift.Interface(link.mac, link.mtu, link.up, netlink.addresses(link.index)), has_device

    return seen
