"""Attach the VFs of one ADD to the pod: all of them, or none.

The steps for each VF: ledger → down → temporary name → node GUID (if it has none) → settings (PFs locked) → move → RDMA
device (exclusive mode) → MTU → addresses → up → held. A VF without a netdev skips the steps that need one. If the pod
requests a VF without its netdev, the netdev stays on the host, and only the RDMA device moves. After a failure every VF
with an entry is released. A killed call leaves its entries, and DEL or the next ADD releases those VFs.
"""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from cni.kernel import netlink, netns, rdma
from cni.kernel.netdev import netdev_state
from cni.kernel.sysfs import APPEARS_S
from cni.kernel.wait import RENAME_ERRNOS, RENAME_S, retry, wait_until
from cni.plan import attachment
from cni.spec.conf import Conf
from cni.spec.result import AttachedVf
from cni.spec.skel import MISSING_VF, NIC_REFUSAL, Call, CniError
from cni.vf import host_users, offer, rdma_users, vf_reset
from cni.vf.attach import guid
from cni.vf.attach.move_in import PendingAttachment, has_netdev, ipam_of, move_all_in, move_device_in
from cni.vf.detach.detach import detach
from cni.vf.node import Node, name_device, netdev_of, park_netdev, pfs_of_port, recorded_device, recorded_name
from cni.vf.rates import pf_rates
from mooring.annotations.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.locks import hold_locks
from mooring.nic.pf_drivers import PF_MTU_LIMITS_VFS
from mooring.nic.settings import VfSettings
from mooring.records.ledger import Attachment, LedgerEntry, Netns, Original
from mooring.records.pod_record import PodRecord

_log = structlog.get_logger()
_LOCK_S = 30.0
_MOST_THREADS = 8
# How long a netdev may take to get its admin MAC, in seconds: firmware that resets the VF for it takes one second.
_MAC_S = 3.0


def attach(node: Node, call: Call, conf: Conf, record: PodRecord, vfs: Sequence[AssignedVf]) -> list[AttachedVf]:
    """Attach VFs whose locks the caller holds; on failure restore everything and raise CniError."""
    offer.check(node, record.assignment.uid, vfs, attachment.namespaces_of(call, record))
    attachment.check_names(record, vfs, conf, call.ifname)
    _check_mtus(node, conf, vfs)
    host_users.check_vfs_free(node, vfs)
    space = Netns(call.netns or "", netns.cookie_of(call.netns or ""))
    in_pod = (
        netns.run_in(space.path, lambda: [link.name for link in netlink.links()]) if conf.previous is not None else ()
    )
    names = attachment.interface_names(vfs, call.ifname, previous=conf.previous, in_pod=in_pod)
    all_pending: list[PendingAttachment] = []
    try:
        for vf, name in zip(vfs, names, strict=True):
            all_pending.append(_plan_attachment(node, call, conf, record, vf, name, space))
        node.ledger.write(*(pending.entry for pending in all_pending))
        for pending in all_pending:
            if has_netdev(pending):
                park_netdev(node, pending.entry, names)
        all_pending = [guid.give_node_guid(node, pending) for pending in all_pending]
        set_vfs(node, all_pending)
        for pending in all_pending:
            # The PF's driver may have reset the VF for a setting, so that its RDMA device is new.
            name_device(node, pending.entry)
            guid.take_effect(node, pending)
        for pending in all_pending:
            if not pending.entry.has_interface:
                move_device_in(node, pending.entry)
        interfaces = [pending for pending in all_pending if pending.entry.has_interface]
        return move_all_in(node, call, conf, record, interfaces)
    except BaseException:
        _detach_vfs(node, vfs)
        raise


def _check_mtus(node: Node, conf: Conf, vfs: Sequence[AssignedVf]) -> None:
    """Raise CniError 101 if a network's MTU exceeds that of a PF that limits its VFs; nothing is changed yet."""
    for vf in vfs:
        attachment.check_mtu(vf, conf.network_of(vf.network).mtu, _mtu_limit(node, vf))


def _mtu_limit(node: Node, vf: AssignedVf) -> int | None:
    """Return the MTU of a VF's PF, None if it does not limit the VF's MTU."""
    pf_pci = node.sysfs.pf_pci(vf)
    limits = vf.link == "ethernet" and node.sysfs.driver(pf_pci) in PF_MTU_LIMITS_VFS
    return node.sysfs.mtu(pf_pci, vf.pf) if limits else None


def _detach_vfs(node: Node, vfs: Sequence[AssignedVf]) -> None:
    """Release the VFs in parallel: a new device may have the name of another VF of the call, and waits for its own."""
    with ThreadPoolExecutor(_MOST_THREADS, "undo") as pool:
        list(pool.map(lambda vf: _try_detach(node, vf), vfs))


def _try_detach(node: Node, vf: AssignedVf) -> None:
    """Release one VF; if that fails, its entry stays for DEL, and does not stop the others."""
    try:
        if (entry := node.ledger.read(vf.pci)) is not None:
            detach(node, entry)
    except (CniError, RecordError, OSError) as error:
        _log.error("vf is not released yet", pci=vf.pci, reason=str(error))


def _plan_attachment(
    node: Node, call: Call, conf: Conf, record: PodRecord, vf: AssignedVf, name: str, space: Netns
) -> PendingAttachment:
    """Return a VF with its new ledger entry and its settings; nothing is changed yet. Raise CniError."""
    pf_pci = node.sysfs.pf_pci(vf)
    original, device = _read_original(node, vf)
    if vf.netdev is False and device is None:
        raise CniError(
            MISSING_VF, f"vf {vf.vf} of pf {vf.pf!r} has no rdma device, but the pod requests one without a netdev"
        )
    if vf.netdev and original.name is None:
        raise CniError(MISSING_VF, f"vf {vf.vf} of pf {vf.pf!r} has no netdev, but the pod requests one")
    if conf.network_of(vf.network).mtu is None:
        attachment.check_own_mtu(vf, original.mtu, _mtu_limit(node, vf))
    current = original.settings
    terms = offer.of_pf(node, pf_pci)
    request = replace(vf.settings, vlan=terms.vlan) if terms.vlan and node.enforces_offer else vf.settings
    settings = attachment.effective_settings(request, current, original.netdev_mac, vf.link)
    settings, share = attachment.with_default_share(settings, current, vf.link, terms.default_share_mbps)
    guid_mac = guid.missing_mac(node, vf, pf_pci, original)
    new_guid = guid.missing_guid(node, vf, pf_pci, original) if settings.guid is None else None
    settings = settings if new_guid is None else replace(settings, guid=new_guid)
    entry = LedgerEntry(
        pci=vf.pci,
        pf=vf.pf,
        vf=vf.vf,
        phase="taking",
        boot=node.boot,
        uid=record.assignment.uid,
        pod=record.pod,
        container=call.container,
        ifname=name,
        netns=space,
        original=original,
        set=settings if guid_mac is None or settings.mac is not None else replace(settings, mac=guid_mac),
        rdma=device,
        attachment=Attachment(conf.name, call.ifname, vf.network),
        share=share,
        rdma_only=vf.netdev is False,
    )
    if entry.has_interface:
        entry = replace(entry, ipam=ipam_of(call, conf, vf, name))
    return PendingAttachment(vf, pf_pci, entry, settings, guid_mac, new_guid is not None)


def _read_original(node: Node, vf: AssignedVf) -> tuple[Original, str | None]:
    """Return a VF's original state, and its RDMA device name; raise CniError 102 if a part is not on the host."""
    device = recorded_device(node, vf.pci)
    if device is not None and rdma.mode() == "exclusive" and not _has_device(node, vf.pci):
        raise CniError(MISSING_VF, f"rdma device {device!r} of vf {vf.pci} is not in the host's network namespace")
    users = tuple(sorted(rdma_users.users_of(node.sysfs, vf.pci)))
    current = node.vf_settings.read(vf.pf, vf.vf)
    # Only for InfiniBand: an Ethernet netdev may appear later, because its driver is being bound.
    if device is not None and vf.link == "infiniband" and node.sysfs.lacks_netdev(vf.pci):
        return Original(settings=current, users=users), device
    # If the kernel reports a parent, it must be this VF. Later lookups compare with `original.parent`.
    link = netdev_of(node, vf.pci, APPEARS_S, None)
    if link is None:
        raise CniError(MISSING_VF, f"vf {vf.pci} of pf {vf.pf!r} has no network interface on the host")
    # A name that is not UTF-8 cannot be recorded, and DEL removes it.
    altnames = tuple(name for name in link.altnames if _is_utf8(name))
    netdev_settings = retry(lambda: netdev_state.read(link.index), RENAME_ERRNOS, RENAME_S)
    return Original(
        name=recorded_name(vf.pci, link.name),
        altnames=altnames,
        mtu=link.mtu,
        netdev_mac=link.mac,
        up=link.up,
        settings=current,
        users=users,
        flags=link.flags,
        txqueuelen=link.txqueuelen,
        parent=link.parent,
        netdev=netdev_settings,
    ), device


def _has_device(node: Node, pci: str) -> bool:
    """Return whether a VF's RDMA device is on the host; wait for a device in the middle of a move."""
    return wait_until(lambda: rdma.device_of(node.sysfs, pci) is not None, RENAME_S)


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def set_vfs(node: Node, all_pending: Sequence[PendingAttachment]) -> None:
    """Write the settings of every VF while their PFs are locked, and read them back.

    The other PFs of a port are locked only for VFs that reserve a rate.
    """
    target: defaultdict[str, dict[int, VfSettings]] = defaultdict(dict)
    shares = {(pending.vf.pf, pending.vf.vf) for pending in all_pending if pending.entry.share}
    for pending in all_pending:
        target[pending.vf.pf][pending.vf.vf] = pending.settings
    reserving_pfs = {
        pending.pf_pci for pending in all_pending if pending.settings.min_tx_rate and not pending.entry.share
    }
    ports = {
        pending.vf.pf: pfs_of_port(node, pending.pf_pci) if pending.pf_pci in reserving_pfs else (pending.pf_pci,)
        for pending in all_pending
    }
    with hold_locks(node.run, [pci for port in ports.values() for pci in port], _LOCK_S):
        for pf in sorted(target):
            of_pf = [pending for pending in all_pending if pending.vf.pf == pf]
            current = node.vf_settings.read_all(pf)
            other_pfs = pf_rates.other_pfs(node, of_pf[0].pf_pci, ports[pf])
            of_port = {pf: current, **{other_pf: node.vf_settings.read_all(other_pf) for other_pf in other_pfs}}
            pf_rates.check(node, of_pf[0].pf_pci, pf, of_port, target, shares)
            if node.enforces_offer:
                pf_rates.check_offer(node, of_pf[0].entry.uid, ports[pf], of_port, target, shares)
            pf_rates.enrol(node, of_pf[0].pf_pci, pf, current, target[pf].values())
            for pending in of_pf:
                _set_vf(node, pending, current[pending.vf.vf])


def _set_vf(node: Node, pending: PendingAttachment, current: VfSettings) -> None:
    vf, settings = pending.vf, pending.settings
    changes = attachment.with_spoof_check(attachment.changes(settings, current), settings, current)
    try:
        if changes != VfSettings():
            vf_reset.write(node, vf.pci, vf.pf, vf.vf, changes, current)
    except OSError as error:
        raise _refusal(node, vf, changes, error) from error
    if differences := attachment.differences(settings, node.vf_settings.read(vf.pf, vf.vf)):
        raise CniError(NIC_REFUSAL, attachment.contradiction_text(vf, differences))
    if settings.mac is not None and has_netdev(pending):
        _set_mac(node, pending, settings.mac)


def _refusal(node: Node, vf: AssignedVf, settings: VfSettings, error: OSError) -> CniError:
    """Find the setting that a PF refuses by writing one at a time; the kernel does not report which one it was."""
    for piece in attachment.split_settings(settings):
        try:
            node.vf_settings.write(vf.pf, vf.vf, piece)
        except OSError as piece_error:
            return CniError(NIC_REFUSAL, attachment.refusal_text(vf, piece, piece_error))
    return CniError(NIC_REFUSAL, attachment.refusal_text(vf, settings, error))


def _set_mac(node: Node, pending: PendingAttachment, mac: str) -> None:
    """Set a VF's admin MAC on its netdev, and wait until the netdev has it.

    Some NICs set it by themselves after a delay, and refuse it until then; mlx5 never sets it.
    """
    errors = []

    def ensure_mac() -> bool:
        link = netdev_of(node, pending.vf.pci, 0, pending.entry.original.parent)
        if link is None or link.mac == mac:
            return link is not None
        try:
            netlink.set_mac(link.index, mac)
        except OSError as error:
            errors.append(error)
        return False

    if not wait_until(ensure_mac, _MAC_S):
        text = attachment.refusal_text(pending.vf, VfSettings(mac=mac), *errors[-1:])
        raise CniError(NIC_REFUSAL, f"{text}; the mac did not appear on its netdev")
