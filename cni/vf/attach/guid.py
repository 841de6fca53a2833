"""Make the GUID of a VF take effect: mlx5 reads it only when the VF's driver is bound.

So the driver is rebound once the PF has the GUID, as ib-sriov-cni does, or once it has the admin MAC from which an
Ethernet VF's GUID is derived (`mooring.nic.node_guid`). The kernel then creates new devices under names of its own, and
udev renames them some time later. The netdev gets its temporary name. The RDMA device gets its former name, which the
CRI shim reports to the pod and DEL restores.
"""

from dataclasses import replace
from functools import partial

import structlog

from cni.kernel import driver, netlink
from cni.plan.admin_mac import certain_mac
from cni.plan.attachment import NO_MAC, probed_mac, refusal_text
from cni.spec.skel import NIC_REFUSAL, TRY_AGAIN, CniError
from cni.vf import host_users, offer
from cni.vf.attach.move_in import PendingAttachment, has_netdev
from cni.vf.node import Node, derived_guid, device_returns, name_device, netdev_of, park_netdev
from mooring.annotations.assignment import AssignedVf
from mooring.locks import LockBusyError, hold
from mooring.nic import node_guid
from mooring.nic.refusals import NO_SUCH_SETTING
from mooring.nic.settings import VfSettings
from mooring.nic.write_again import write_again
from mooring.records import guid_failures
from mooring.records.ledger import Original

_log = structlog.get_logger()
_LOCK_S = 30.0


def missing_mac(node: Node, vf: AssignedVf, pf_pci: str, original: Original) -> str | None:
    """Return the MAC from which a VF gets its missing node GUID; None if it has one, or will not get one.

    The operator's offer may forbid the repair (``repair_node_guid``). VFs that `init` created have a GUID.
    """
    if vf.link != "ethernet" or not node_guid.is_missing(node.sysfs.node_guid(vf.pci)):
        return None
    mac = probed_mac(original.settings, original.netdev_mac)
    return mac if mac is not None and offer.of_pf(node, pf_pci).repair_node_guid else None


def missing_guid(node: Node, vf: AssignedVf, pf_pci: str, original: Original) -> str | None:
    """Return the GUID for an InfiniBand VF without one; None if it has one, or will not get one.

    It is the GUID that the PF has for the VF, if it was set after the driver was bound, otherwise the one that `init`
    would set. If the PF's own GUID reads as zero, nothing is known about its VFs.
    """
    if vf.link != "infiniband" or not node_guid.is_missing(node.sysfs.node_guid(vf.pci)):
        return None
    guid = original.settings.guid or derived_guid(node, pf_pci, vf.vf)
    return guid if guid is not None and offer.of_pf(node, pf_pci).repair_node_guid else None


def _give_guid(node: Node, pending: PendingAttachment) -> PendingAttachment:
    """Set the missing GUID of an InfiniBand VF; if its PF refuses it, record the refusal and raise CniError 101.

    Without a GUID the subnet manager assigns no address to the VF's port, and the port does not become active. If the
    PF has no such setting, the pod gets the VF without a GUID. The advertiser lists such a VF as out, so its assignment
    is older than that.
    """
    settings = VfSettings(guid=pending.settings.guid)
    entry = replace(pending.entry, set=replace(pending.entry.set, guid=None))
    try:
        with hold(node.run, pending.pf_pci, _LOCK_S):
            node.vf_settings.write(pending.vf.pf, pending.vf.vf, settings)
    except LockBusyError:
        raise
    except OSError as error:
        # The release must not restore the GUID: the PF would refuse it, and the VF would never be released.
        node.ledger.write(entry)
        text = refusal_text(pending.vf, settings, error)
        guid_failures.note(node.run, pending.vf.pci, text)
        if error.errno not in NO_SUCH_SETTING:
            raise CniError(NIC_REFUSAL, text, "the vf has no guid") from error
        _log.warning("vf gets no guid: its pf has no setting for one", pci=pending.vf.pci, reason=str(error))
        return replace(pending, entry=entry, settings=replace(pending.settings, guid=None), gives_guid=False)
    _log.info("vf has no guid, setting one", pci=pending.vf.pci, guid=pending.settings.guid)
    return pending


def give_node_guid(node: Node, pending: PendingAttachment) -> PendingAttachment:
    """Set ``guid_mac`` as the VF's admin MAC and rebind its driver; do nothing without a ``guid_mac``.

    On InfiniBand the PF takes the GUID here, and `take_effect` rebinds. The caller holds the VF's lock, and the entry
    already has the MAC. Raise CniError 101 if the VF's devices do not come back. If the PF refuses the MAC, the pod
    gets the VF without a GUID, which only rdma_cm needs; MAC and spoof check are then written again.
    """
    if pending.gives_guid:
        return _give_guid(node, pending)
    if pending.guid_mac is None:
        return pending
    try:
        _set_admin_mac(node, pending, pending.guid_mac)
    except LockBusyError:
        raise
    except OSError as error:
        _log.warning("vf gets no node guid: its pf refuses the mac", pci=pending.vf.pci, reason=str(error))
        _rewrite_isolation(node, pending, pending.guid_mac)
        entry = replace(pending.entry, set=pending.settings)
        node.ledger.write(entry)
        return replace(pending, entry=entry, guid_mac=None)
    _log.info("vf has no node guid: rebinding its driver", pci=pending.vf.pci, mac=pending.guid_mac)
    _rebind(node, pending, f"mac {pending.guid_mac}")
    if node_guid.is_missing(node.sysfs.node_guid(pending.vf.pci)):
        _log.warning("vf has no node guid after a rebind: rdma_cm will not work", pci=pending.vf.pci)
    _restore_mtu(node, pending)
    return pending


def _set_admin_mac(node: Node, pending: PendingAttachment, mac: str) -> None:
    if pending.entry.original.settings.mac == NO_MAC:
        with hold(node.run, pending.pf_pci, _LOCK_S):
            node.vf_settings.write(pending.vf.pf, pending.vf.vf, VfSettings(mac=mac))


def _rewrite_isolation(node: Node, pending: PendingAttachment, refused_mac: str) -> None:
    """Write MAC and spoof check again, as the PF reports them; raise CniError 101 if it refuses them too."""
    vf = pending.vf
    try:
        with hold(node.run, pending.pf_pci, _LOCK_S):
            current = node.vf_settings.read(vf.pf, vf.vf)
            mac = certain_mac(current.mac, node.sysfs.driver(pending.pf_pci))
            write_again(partial(node.vf_settings.write, vf.pf, vf.vf), VfSettings(mac=mac, spoofchk=current.spoofchk))
    except OSError as error:
        text = refusal_text(vf, VfSettings(mac=refused_mac), error)
        raise CniError(NIC_REFUSAL, text, "it also refuses the mac and the spoof check that it reports") from error


def _restore_mtu(node: Node, pending: PendingAttachment) -> None:
    """Give the new netdev the MTU of the original one."""
    mtu = pending.entry.original.mtu
    link = netdev_of(node, pending.vf.pci, 0, pending.entry.original.parent) if has_netdev(pending) else None
    if link is not None and mtu and link.mtu != mtu:
        netlink.set_mtu(link.index, mtu)


def take_effect(node: Node, pending: PendingAttachment) -> None:
    """Rebind the driver of a VF whose GUID changes; raise CniError 101 if its devices do not come back.

    The caller holds the VF's lock.
    """
    guid, pci = pending.settings.guid, pending.vf.pci
    is_unchanged = guid == pending.entry.original.settings.guid and not pending.gives_guid
    if guid is None or is_unchanged or node.sysfs.driver(pci) is None:
        return
    _rebind(node, pending, f"guid {guid}")
    if pending.gives_guid:
        failure = "its node GUID is still zero after a driver rebind"
        guid_failures.note(node.run, pci, failure if node_guid.is_missing(node.sysfs.node_guid(pci)) else None)


def _rebind(node: Node, pending: PendingAttachment, purpose: str) -> None:
    try:
        if user := host_users.user_before_pod(node, pending.vf.pci):
            raise CniError(
                TRY_AGAIN, f"the driver of vf {pending.vf.vf} of pf {pending.vf.pf!r} is not rebound: {user}"
            )
        driver.rebind(node.sysfs, pending.vf.pci)
        _name_devices(node, pending)
    except OSError as error:
        text = f"vf {pending.vf.vf} of pf {pending.vf.pf!r} did not come back after a driver rebind for {purpose}"
        raise CniError(NIC_REFUSAL, text, str(error)) from error


def _name_devices(node: Node, pending: PendingAttachment) -> None:
    """Wait for the new devices of the driver, and name them; udev may rename both at any time."""
    entry = pending.entry
    if entry.rdma is not None:
        if not device_returns(node, entry):
            raise FileNotFoundError(f"its rdma device {entry.rdma!r} did not come back")
        name_device(node, entry)
    if has_netdev(pending):
        park_netdev(node, entry)
