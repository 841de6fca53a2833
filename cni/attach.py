"""Bring the VFs of one ADD into the pod: all of them, or none.

Steps of each VF: ledger → down → temporary name → settings (PFs locked) → move → name → addresses → up → held. Whatever
fails, every VF that was entered is given back by its entry; a killed call leaves the entries, and DEL or the next ADD
does the same.
"""

from collections.abc import Sequence

import structlog

from cni import netlink, netns, plan
from cni.bringin import Taking, bring_in
from cni.conf import Conf
from cni.giveback import Node, give_back, temporary_name
from cni.result import Attached
from cni.skel import NIC_REFUSED, VF_MISSING, Call, CniError
from mooring.assignment import AssignedVf
from mooring.ledger import Attachment, LedgerEntry, Netns, Original
from mooring.locks import hold_all
from mooring.podrecord import PodRecord
from mooring.settings import VfSettings

_log = structlog.get_logger()
_LOCK_S = 30.0


def attach(node: Node, call: Call, conf: Conf, record: PodRecord, vfs: Sequence[AssignedVf]) -> list[Attached]:
    """Attach VFs whose locks the caller holds; raise CniError with everything as it was before."""
    names = plan.interface_names(vfs, call.ifname, previous=conf.previous)
    space = Netns(call.netns or "", netns.cookie_of(call.netns or ""))
    entered: list[Taking] = []
    try:
        for vf, name in zip(vfs, names, strict=True):
            entered.append(_enter(node, call, conf, record, vf, name, space))
        _set(node, entered)
        return [bring_in(node, call, conf, taking, first=taking is entered[0]) for taking in entered]
    except BaseException:
        _give_all_back(node, vfs)
        raise


def _give_all_back(node: Node, vfs: Sequence[AssignedVf]) -> None:
    """Undo in reverse; one that resists keeps its entry, for DEL, and does not keep the others."""
    for vf in reversed(vfs):
        entry = node.ledger.read(vf.pci)
        try:
            if entry is not None:
                give_back(node, entry)
        except (CniError, OSError) as stuck:
            _log.error("vf is not given back yet", pci=vf.pci, reason=str(stuck))


def _enter(node: Node, call: Call, conf: Conf, record: PodRecord, vf: AssignedVf, name: str, space: Netns) -> Taking:
    """Enter a VF in the ledger as it was found, then take it down under a name that is nobody's."""
    pf_pci = node.sysfs.pf_pci(vf)
    netdev = node.sysfs.await_netdev(vf.pci)
    link = netlink.find(netdev) if netdev is not None else None
    if link is None:
        raise CniError(VF_MISSING, f"vf {vf.pci} of pf {vf.pf!r} has no network interface on the host")
    found = node.port.read(vf.pf, vf.vf)
    settings = plan.effective(vf.settings, found)
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
        original=Original(link.name, link.altnames, link.mtu, link.mac, link.up, found),
        set=settings,
        attachment=Attachment(conf.name, call.ifname, vf.network),
    )
    node.ledger.write(entry)
    netlink.set_up(link.name, up=False)
    netlink.rename(link.name, temporary_name(vf.pci))
    return Taking(vf, pf_pci, entry, settings)


def _set(node: Node, entered: Sequence[Taking]) -> None:
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
        if settings.mac is not None:
            netlink.set_mac(temporary_name(vf.pci), settings.mac)
    except OSError as refused:
        # The kernel stops at the first refusal: what is not as wished is that setting, and what came after it.
        wrong = plan.differences(settings, node.port.read(vf.pf, vf.vf)) or ["its own MAC cannot be set"]
        what = f"pf {vf.pf!r} refuses a setting of vf {vf.vf} ({refused.strerror}): {'; '.join(wrong)}"
        raise CniError(NIC_REFUSED, what) from refused
    if wrong := plan.differences(settings, node.port.read(vf.pf, vf.vf)):
        raise CniError(NIC_REFUSED, f"pf {vf.pf!r}, vf {vf.vf}: {'; '.join(wrong)}")
