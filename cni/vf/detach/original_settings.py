"""Restore a VF's settings on its PF: those from before the pod, or a NIC's defaults after a reboot.

Attributes that differ are written one by one, so that a refusal does not stop the others. After a refusal, also in ADD,
the settings that the PF reports may not be in force. Then MAC, VLAN, spoof check and GUID are written again in any
case, and if the PF refuses them, the VF keeps its ledger entry.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import structlog

from cni.plan import admin_mac
from cni.plan.attachment import ATTRIBUTES, NO_MAC, contradiction_text, differences, refusal_text
from cni.spec.skel import NIC_REFUSAL, CniError
from cni.vf import vf_reset
from cni.vf.node import Node, derived_guid
from mooring.locks import hold
from mooring.nic import node_guid
from mooring.nic.settings import SETTING_NAMES, VfSettings
from mooring.nic.vf_settings import permanent_address
from mooring.nic.write_again import write_again
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
_LOCK_S = 30.0
_RATES = ("min_tx_rate", "max_tx_rate")
# The GUID of a VF that never got one (mlx5_ib_get_vf_guid); the driver does not restore it by itself
# (sriov_restore_guids in mlx5/core/sriov.c).
_NO_GUID = "00:00:00:00:00:00:00:00"
_CONFINEMENT = frozenset({"vlan", "qos", "trust", "spoofchk"})
# Spoof check first: with it on, some drivers refuse to change the MAC.
_ATTRIBUTES = sorted(ATTRIBUTES, key=lambda attribute: attribute != ("spoofchk",))


def restore(node: Node, entry: LedgerEntry) -> VfSettings:
    """Restore and return a VF's original settings; raise OSError, or CniError 101 if the NIC refuses one."""
    target = _original_settings(node, entry)
    _restore(node, entry, target)
    return target


def restore_unbound(node: Node, entry: LedgerEntry) -> None:
    """Restore the settings of a VF without a driver, before the driver is bound; log refusals.

    So the driver does not read the pod's settings: mlx5 reads MAC and node GUID from the PF's settings
    (mlx5_esw_set_vport_mac_locked sets the GUID, mlx5_query_nic_vport_node_guid reads it). `restore` does the same
    again later, and raises errors.
    """
    try:
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        entry = replace(entry, pf=pf, vf=vf)
        restore(node, entry)
    except (OSError, CniError) as error:
        _log.warning("cannot restore the vf's settings before its driver is bound", pci=entry.pci, reason=str(error))


def reset(node: Node, entry: LedgerEntry) -> None:
    """Reset the settings that an earlier boot set, and that a VF still has; raise OSError or CniError 101.

    Settings that differ were set later, by `init` or the operator, and stay. The MAC always stays: a VF needs one.
    """
    pf_pci = node.sysfs.pf_of(entry.pci)
    with hold(node.run, pf_pci, _LOCK_S):
        current = node.vf_settings.read(entry.pf, entry.vf)
    _restore(node, entry, _default_settings(entry, current))


def _original_settings(node: Node, entry: LedgerEntry) -> VfSettings:
    """Return the settings to restore.

    If there was no admin MAC and the driver derives the node GUID from it, the netdev's own MAC is restored: with a MAC
    of zeros an mlx5 VF has no node GUID after the next bind (`mooring.nic.node_guid`). If there was no GUID, it is
    removed, because the pod may get the same GUID on another VF; the one that ADD derived for the VF stays. This does
    not apply to an entry without an attachment: the ledger had lost that VF, and its original state is unknown.
    """
    settings, own_mac = entry.original.settings, entry.original.netdev_mac
    if entry.set.guid is not None and settings.guid is None and entry.attachment is not None:
        own_guid = derived_guid(node, node.sysfs.pf_of(entry.pci), entry.vf)
        return replace(settings, guid=own_guid if entry.set.guid == own_guid else _NO_GUID)
    if (
        settings.mac == NO_MAC
        and own_mac is not None
        and node_guid.follows_mac(node.sysfs.driver(node.sysfs.pf_of(entry.pci)))
    ):
        return replace(settings, mac=own_mac)
    return settings


def _restore(node: Node, entry: LedgerEntry, target: VfSettings) -> None:
    """Write the changed settings that differ from ``target``; a refusal does not stop the others.

    A setting that the PF does not report cannot be set; entries have such settings because an earlier version took the
    zeros of an InfiniBand PF for settings. The exception is a GUID, which the PF does not report if it was never set.
    No source documents whether the firmware removes a GUID, so its refusal does not keep the VF's entry.
    """
    refusals: list[str] = []
    accepted_values: dict[str, object] = {}
    changed_names = {name for name in SETTING_NAMES if getattr(entry.set, name) is not None}
    with hold(node.run, node.sysfs.pf_of(entry.pci), _LOCK_S):
        current = node.vf_settings.read(entry.pf, entry.vf)
        target = _without_own_mac(node, entry, target, current)
        for attribute in _ATTRIBUTES:
            values = {name: getattr(target, name) for name in attribute if getattr(target, name) is not None}
            reported_names = {name for name in values if name == "guid" or getattr(current, name) is not None}
            differs = any(getattr(current, name) != values[name] for name in reported_names)
            is_hidden = attribute == _RATES and _hides_rates(node, entry)
            if (differs or is_hidden) and changed_names & set(attribute):
                settings = VfSettings(**values)
                try:
                    vf_reset.write(node, entry.pci, entry.pf, entry.vf, settings, current)
                except OSError as error:
                    if settings.guid == _NO_GUID:
                        _log.warning("vf keeps its pod's guid", pci=entry.pci, pod=entry.pod, reason=str(error))
                    # A refusal of rates that do not differ is ignored: firmware without rates refuses 0/0
                    # (mlx4_set_vf_rate), and hides none.
                    elif differs:
                        refusals.append(refusal_text(entry, settings, error))
                else:
                    accepted_values |= values
        refusals += _contradictions(node, entry, accepted_values)
        if entry.in_doubt or node.ledger.is_in_doubt(entry.pci):
            refusals += _rewrite_confinement(node, entry, target, changed_names)
    if refusals:
        raise CniError(NIC_REFUSAL, f"vf {entry.pci} cannot be restored", "; ".join(refusals))


def _contradictions(node: Node, entry: LedgerEntry, accepted_values: Mapping[str, object]) -> list[str]:
    """Return error texts for confining settings that the PF accepted but did not apply; the next pod would get them.

    bnxt_set_vf_trust returns 0 even if the firmware refuses, but the firmware's value is reported (bnxt_is_trusted_vf).
    """
    target = VfSettings(**{name: value for name, value in accepted_values.items() if name in _CONFINEMENT})  # type: ignore[arg-type]
    if target == VfSettings():
        return []
    texts = differences(target, node.vf_settings.read(entry.pf, entry.vf))
    return [contradiction_text(entry, texts)] if texts else []


def _rewrite_confinement(
    node: Node, entry: LedgerEntry, target: VfSettings, changed_names: Collection[str]
) -> list[str]:
    """Write the settings that confine a VF again; return the error texts, empty on success."""
    settings = _confinement_settings(node, entry, target, changed_names)
    try:
        write_again(partial(_write_piece, node, entry), settings, entry.set)
    except OSError as error:
        return [f"{refusal_text(entry, settings, error)}; it refused a setting earlier"]
    return []


def _confinement_settings(
    node: Node, entry: LedgerEntry, target: VfSettings, changed_names: Collection[str]
) -> VfSettings:
    """Return MAC, VLAN, spoof check and GUID: of ``target`` if ADD changed them, otherwise as reported.

    Spoof check is also on if it was on originally: it reads as off if an earlier attempt wrote "off" and the PF refused
    "on".
    """
    current = node.vf_settings.read(entry.pf, entry.vf)
    driver = node.sysfs.driver(node.sysfs.pf_of(entry.pci))
    mac = target.mac if "mac" in changed_names else None
    if mac is None:
        mac = admin_mac.certain_mac(current.mac, driver)
    elif _was_own(node, entry):
        mac = NO_MAC
    keeps_spoofchk = target.spoofchk is None or "spoofchk" not in changed_names
    has_vlan = current.vlan is not None and not {"vlan", "qos"}.isdisjoint(changed_names)
    return VfSettings(
        mac=mac,
        vlan=target.vlan if has_vlan else None,
        qos=target.qos if has_vlan else None,
        spoofchk=current.spoofchk or entry.original.settings.spoofchk if keeps_spoofchk else target.spoofchk,
        guid=target.guid if "guid" in changed_names and target.guid != _NO_GUID else None,
    )


def _write_piece(node: Node, entry: LedgerEntry, settings: VfSettings) -> None:
    current = node.vf_settings.read(entry.pf, entry.vf)
    vf_reset.write(node, entry.pci, entry.pf, entry.vf, settings, current)


def _hides_rates(node: Node, entry: LedgerEntry) -> bool:
    """Return whether a VF may have a max rate that its PF reports as 0, as mlx4 does without a VLAN.

    The rate would limit the next pod with a VLAN (mlx4_get_vf_config, mlx4_set_vf_vlan).
    """
    return bool(entry.set.max_tx_rate) and node.sysfs.driver(node.sysfs.pf_of(entry.pci)) == "mlx4_core"


def _without_own_mac(node: Node, entry: LedgerEntry, target: VfSettings, current: VfSettings) -> VfSettings:
    """Return ``target``, without an admin MAC if the original one was only the VF's own MAC and is not restored yet."""
    is_done = target.mac is None or current.mac == target.mac != entry.set.mac
    return replace(target, mac=NO_MAC) if not is_done and _was_own(node, entry) else target


def _was_own(node: Node, entry: LedgerEntry) -> bool:
    """Return whether the original admin MAC that the PF reported was only the VF's own MAC."""
    pf_pci = node.sysfs.pf_of(entry.pci)
    return admin_mac.was_own(entry.original, node.sysfs.driver(pf_pci), _pf_mac(node, pf_pci, entry.pf), entry.vf)


def _pf_mac(node: Node, pf_pci: str, pf: str) -> str | None:
    """Return the MAC from which `init` has derived those of a PF's VFs (`advertiser.init.pf_mac`)."""
    try:
        permanent = permanent_address(pf)
    except OSError:
        permanent = None
    return permanent or node.sysfs.mac(pf_pci, pf)


def _default_settings(entry: LedgerEntry, current: VfSettings) -> VfSettings:
    """Return the settings that a reset writes: a NIC's defaults, only for attributes that the earlier boot changed.

    Spoof check is not reset: it is on for a VF that `init` created since, and may have been on for the pod. Settings
    that were not supported before, or that no longer have the value of that boot, are not reset either. Settings of one
    netlink attribute are reset together.
    """
    fresh = VfSettings(0, 0, None, 0, 0, trust=False, link_state="auto")
    attributes = [attribute for attribute in ATTRIBUTES if _is_ours(attribute, entry, current)]
    known_names = {name for name in SETTING_NAMES if getattr(entry.original.settings, name) is not None}
    return VfSettings(
        **{name: getattr(fresh, name) for attribute in attributes for name in attribute if name in known_names}
    )


def _is_ours(attribute: tuple[str, ...], entry: LedgerEntry, current: VfSettings) -> bool:
    """Return whether the pod's ADD changed these settings, and the VF still has all their values."""
    values = {name: value for name in attribute if (value := getattr(entry.set, name)) is not None}
    was_changed = any(value != getattr(entry.original.settings, name) for name, value in values.items())
    return was_changed and all(value == getattr(current, name) for name, value in values.items())
