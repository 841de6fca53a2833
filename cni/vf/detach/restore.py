"""Restore a VF that is on the host: its settings on the PF, then its netdev and its RDMA device."""

import errno

import structlog

from cni.kernel import driver, netlink
from cni.kernel.wait import RENAME_ERRNOS, RENAME_S, retry
from cni.plan.attachment import NO_MAC
from cni.vf import vf_reset
from cni.vf.detach import original_settings
from cni.vf.detach.rebind import check_no_user
from cni.vf.node import RETURNS_S, Node, device_returns, gives_way_s, name_device, netdev_of, temporary_name
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
_LOCK_S = 30.0


def restore(node: Node, entry: LedgerEntry) -> None:
    """Restore the VF's settings, then its netdev and the name of its RDMA device; raise OSError, or CniError 101."""
    settings = original_settings.restore(node, entry)
    # Rebind even if the PF already has the original GUID: the process that set it may have been killed before its
    # rebind.
    if settings.guid is not None and entry.set.guid not in (None, settings.guid):
        check_no_user(node, entry)
        driver.rebind(node.sysfs, entry.pci)
        device_returns(node, entry)
    if entry.original.name is not None:
        # Each attempt reads the netdev again, because another program may have changed it.
        retry(lambda: _restore_netdev(node, entry), RENAME_ERRNOS, RENAME_S)
    name_device(node, entry)


def _restore_netdev(node: Node, entry: LedgerEntry) -> None:
    original = entry.original
    link = netdev_of(node, entry.pci, RETURNS_S, original.parent)
    if link is None or original.name is None:
        raise OSError(errno.ENODEV, f"its network interface {original.name!r} did not come back")
    if link.up:
        netlink.set_up(link.index, up=False)
    _restore_mac(node, entry, link)
    if original.mtu and link.mtu != original.mtu:
        netlink.set_mtu(link.index, original.mtu)
    if original.txqueuelen is not None and link.txqueuelen != original.txqueuelen:
        netlink.set_queue_length(link.index, original.txqueuelen)
    if original.flags is not None and link.flags != original.flags:
        netlink.set_flags(link.index, original.flags)
    _restore_name(node, entry, link.index, original.name)
    if link.altnames or original.altnames:
        _restore_altnames(entry, link.index)
    if original.up:
        netlink.set_up(link.index, up=True)


def _restore_name(node: Node, entry: LedgerEntry, index: int, name: str) -> None:
    """Restore a netdev's name; if another link keeps it, the netdev keeps its unique temporary name.

    The kernel gives new netdevs the first free "ib%d" (ipoib_add_one). Two VFs that are released at the same time may
    get each other's names. So each takes its temporary name before it waits for its own.
    """
    temporary, limit_s = temporary_name(entry.pci), 0.0
    try:
        netlink.rename(index, name)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        netlink.rename(index, temporary)
        holder = node.sysfs.vf_of("net", name)
        limit_s = gives_way_s(node, holder) if holder is not None else 0.0
    else:
        return
    try:
        retry(lambda: netlink.rename(index, name), (errno.EEXIST,), limit_s)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        _log.warning("another link has the vf's name now", pci=entry.pci, pod=entry.pod, wanted=name, name=temporary)


def _restore_mac(node: Node, entry: LedgerEntry, link: netlink.Link) -> None:
    """Restore a netdev's own MAC; not for IPoIB, whose address has a queue pair number that the driver sets.

    An untrusted VF may only have its admin MAC as MAC. So the admin MAC becomes the netdev's MAC for a moment, and is
    then restored. That last step is also due if a killed call had set the netdev's MAC as admin MAC.
    """
    mac, admin_mac = entry.original.netdev_mac, entry.original.settings.mac
    if mac is None or len(mac) != len(NO_MAC):
        return
    is_admin_mac_another = admin_mac not in (None, NO_MAC, mac)
    if link.mac != mac:
        try:
            netlink.set_mac(link.index, mac)
        except OSError:
            if not is_admin_mac_another:
                raise
            _write_admin_mac(node, entry, mac)
            netlink.set_mac(link.index, mac)
    if is_admin_mac_another and node.vf_settings.read(entry.pf, entry.vf).mac == mac:
        _write_admin_mac(node, entry, admin_mac)


def _write_admin_mac(node: Node, entry: LedgerEntry, mac: str | None) -> None:
    with hold(node.run, node.sysfs.pf_of(entry.pci), _LOCK_S):
        current = node.vf_settings.read(entry.pf, entry.vf)
        vf_reset.write(node, entry.pci, entry.pf, entry.vf, VfSettings(mac=mac), current)


def _restore_altnames(entry: LedgerEntry, index: int) -> None:
    """Restore a netdev's altnames; skip those that are now its name, or that another link took."""
    link = netlink.get(index)
    if link is None:
        raise OSError(errno.ENODEV, f"its network interface {entry.original.name!r} did not come back")
    altnames = entry.original.altnames
    for altname in set(link.altnames) - set(altnames):
        netlink.remove_altname(index, altname)
    for altname in altnames:
        if altname not in (*link.altnames, link.name):
            try:
                netlink.add_altname(index, altname)
            except OSError as error:
                if error.errno != errno.EEXIST:
                    raise
                _log.warning("another link has the vf's altname now", pci=entry.pci, altname=altname)
