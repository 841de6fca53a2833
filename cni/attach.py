"""Bring the VFs of one ADD into the pod: all of them, or none.

Steps of each VF: ledger → down → temporary name → settings (PFs locked) → move → RDMA device (exclusive mode) → name →
addresses → up → held. A VF without a netdev takes those of them that need none. Whatever fails, every VF that was
entered is given back by its entry; a killed call leaves the entries, and DEL or the next ADD does the same.
"""

from collections.abc import Sequence

import structlog

from cni import freeing, guid, netlink, netns, plan, rdma
from cni.bringin import Taking, bring_all_in, bring_device_in, has_netdev, ipam_of
from cni.conf import Conf
from cni.giveback import give_back
from cni.node import Node, netdev_of, temporary_name
from cni.result import Attached
from cni.skel import NIC_REFUSED, VF_MISSING, Call, CniError
from cni.sysfs import APPEARS_S
from mooring.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.ledger import Attachment, LedgerEntry, Netns, Original
from mooring.locks import hold_all
from mooring.podrecord import PodRecord
from mooring.settings import VfSettings

_log = structlog.get_logger()
_LOCK_S = 30.0
# How long a netdev may take to have its admin MAC, in seconds: firmware that resets the VF for it is done in one.
_MAC_S = 3.0


def attach(node: Node, call: Call, conf: Conf, record: PodRecord, vfs: Sequence[AssignedVf]) -> list[Attached]:
    """Attach VFs whose locks the caller holds; raise CniError with everything as it was before."""
    plan.check_names(record, vfs, conf, call.ifname)
    names = plan.interface_names(vfs, call.ifname, previous=conf.previous)
    space = Netns(call.netns or "", netns.cookie_of(call.netns or ""))
    entered: list[Taking] = []
    try:
        for vf, name in zip(vfs, names, strict=True):
            entered.append(_as_taking(node, call, conf, record, vf, name, space))
        node.ledger.write(*(taking.entry for taking in entered))
        for taking in entered:
            _take_down(taking, names)
        _set(node, conf, entered)
        entered = [guid.take_effect(node, taking) for taking in entered]
        for taking in entered:
            _set_mtu(conf, taking)
        for taking in entered:
            if not has_netdev(taking):
                bring_device_in(node, taking.entry)
        return bring_all_in(node, call, conf, record, [taking for taking in entered if has_netdev(taking)])
    except BaseException:
        _give_all_back(node, vfs)
        raise


def _give_all_back(node: Node, vfs: Sequence[AssignedVf]) -> None:
    """Undo in reverse; one that resists keeps its entry, for DEL, and does not keep the others."""
    for vf in reversed(vfs):
        try:
            if (entry := node.ledger.read(vf.pci)) is not None:
                give_back(node, entry)
        except (CniError, RecordError, OSError) as stuck:
            _log.error("vf is not given back yet", pci=vf.pci, reason=str(stuck))


def _as_taking(
    node: Node, call: Call, conf: Conf, record: PodRecord, vf: AssignedVf, name: str, space: Netns
) -> Taking:
    """Return a VF as it was found, with its entry; nothing is changed yet."""
    pf_pci = node.sysfs.pf_pci(vf)
    original, device = _as_found(node, vf)
    settings = plan.effective(vf.settings, original.settings, original.netdev_mac)
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
        set=settings,
        ipam=ipam_of(call, conf, vf, name) if original.name is not None else None,
        rdma=device,
        attachment=Attachment(conf.name, call.ifname, vf.network),
    )
    return Taking(vf, pf_pci, entry, settings)


def _take_down(taking: Taking, names: Sequence[str]) -> None:
    """Take an entered VF's netdev down, under a name that is nobody's, without altnames that are ``names`` to come."""
    original = taking.entry.original
    if original.name is not None:
        netlink.set_up(original.name, up=False)
        for altname in set(names) & set(original.altnames):
            netlink.remove_altname(original.name, altname)
        netlink.rename(original.name, temporary_name(taking.vf.pci))


def _as_found(node: Node, vf: AssignedVf) -> tuple[Original, str | None]:
    """Return what a VF is like, and its RDMA device; raise CniError 102 where not all of it is on the host."""
    device = node.sysfs.rdma(vf.pci)
    if device is not None and rdma.mode() == "exclusive" and device not in rdma.devices():
        raise CniError(VF_MISSING, f"rdma device {device!r} of vf {vf.pci} is not in the host's network namespace")
    users = tuple(sorted(freeing.users_of(device))) if device is not None else ()
    found = node.port.read(vf.pf, vf.vf)
    # On Ethernet it has not come yet: its driver is being bound.
    if device is not None and vf.link == "infiniband" and node.sysfs.lacks_netdev(vf.pci):
        return Original(settings=found, users=users), device
    link = netdev_of(node, vf.pci, APPEARS_S)
    if link is None:
        raise CniError(VF_MISSING, f"vf {vf.pci} of pf {vf.pf!r} has no network interface on the host")
    own = Original(link.name, link.altnames, link.mtu, link.mac, link.up, found, users, link.flags, link.txqueuelen)
    return own, device


def _set(node: Node, conf: Conf, entered: Sequence[Taking]) -> None:
    """Set every VF, with all their PFs locked, and read back what the NICs made of it."""
    with hold_all(node.run, [taking.pf_pci for taking in entered], _LOCK_S):
        for pf in sorted({taking.vf.pf for taking in entered}):
            of_pf = [taking for taking in entered if taking.vf.pf == pf]
            wanted = {taking.vf.vf: taking.settings for taking in of_pf}
            rate = node.sysfs.line_rate_mbps(of_pf[0].pf_pci, pf)
            plan.check_rates(pf, rate, node.port.read_all(pf), wanted)
            for taking in of_pf:
                _set_one(node, taking)


def _set_one(node: Node, taking: Taking) -> None:
    vf, settings = taking.vf, taking.settings
    if settings == VfSettings():
        return
    try:
        node.port.write(vf.pf, vf.vf, settings)
    except OSError as refused:
        raise _refusal(node, vf, settings, refused) from refused
    if wrong := plan.differences(settings, node.port.read(vf.pf, vf.vf)):
        raise CniError(NIC_REFUSED, f"pf {vf.pf!r} took what vf {vf.vf} was set to, but {'; '.join(wrong)}")
    if settings.mac is not None and has_netdev(taking):
        _set_mac(taking, settings.mac)


def _refusal(node: Node, vf: AssignedVf, settings: VfSettings, refused: OSError) -> CniError:
    """Name the setting that a PF refuses, by setting one at a time: the kernel says why, and not which."""
    for alone in plan.one_by_one(settings):
        try:
            node.port.write(vf.pf, vf.vf, alone)
        except OSError as said:
            return CniError(NIC_REFUSED, plan.refusal_text(vf, alone, said))
    return CniError(NIC_REFUSED, plan.refusal_text(vf, settings, refused))


def _set_mac(taking: Taking, mac: str) -> None:
    """Bring a VF's netdev to its admin MAC, and wait until it has it.

    Some NICs do it by themselves and late, and refuse meanwhile; mlx5 never does.
    """
    name, refusals = temporary_name(taking.entry.pci), []

    def has_it() -> bool:
        link = netlink.find(name)
        if link is not None and link.mac == mac:
            return True
        try:
            netlink.set_mac(name, mac)
        except OSError as refused:
            refusals.append(refused)
        return False

    if not freeing.comes_true(has_it, _MAC_S):
        text = plan.refusal_text(taking.vf, VfSettings(mac=mac), *refusals[-1:])
        raise CniError(NIC_REFUSED, f"{text}; its netdev does not get it")


def _set_mtu(conf: Conf, taking: Taking) -> None:
    mtu = conf.network_of(taking.vf.network).mtu
    if mtu is None or not has_netdev(taking):
        return
    try:
        netlink.set_mtu(temporary_name(taking.entry.pci), mtu)
    except OSError as refused:
        what = f"vf {taking.vf.vf} of pf {taking.vf.pf!r} refuses mtu {mtu}"
        raise CniError(NIC_REFUSED, what, plan.symbol(refused)) from refused
