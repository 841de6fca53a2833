"""Restore settings that a PF lost of a VF that a pod holds; the caller holds the VF's lock.

If the PF refuses a setting, the VF is in doubt. The next pass then writes MAC, VLAN and spoof check again, with the
values that the PF reports.
"""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from cni.plan import admin_mac, resets
from cni.spec.skel import NIC_REFUSAL, CniError
from cni.vf import vf_reset
from cni.vf.node import Node
from cni.vf.rates import pf_rates
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.nic.write_again import write_again
from mooring.records.ledger import LedgerEntry


def reapply(node: Node, entry: LedgerEntry) -> VfSettings:
    """Restore the lost settings of a VF, record the time, and return what was set.

    Raise OSError, CniError 101 or LockBusyError. It does not wait for the PF's lock, which `init` may hold for minutes.
    """
    pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
    pf_pci = node.sysfs.pf_of(entry.pci)
    with hold(node.run, pf_pci, limit_s=0):
        current = node.vf_settings.read_all(pf)
        settings = resets.expected_settings(entry)
        lost_settings = resets.lost_settings(settings, current[vf])
        if lost_settings != VfSettings():
            # Record the time first: an unnecessary Event is better than a missing one.
            node.ledger.write(replace(entry, reset_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
            pf_rates.enrol(node, pf_pci, pf, current, [lost_settings])
            vf_reset.write_message(node, entry.pci, pf, vf, lost_settings)
        rewritten_settings = _rewrite_isolation(node, entry, pf, vf) if entry.in_doubt else lost_settings
        if lost_fields := resets.lost_settings(settings, node.vf_settings.read(pf, vf)).to_fields():
            raise CniError(
                NIC_REFUSAL, f"pf {pf!r} accepted {', '.join(lost_fields)} of vf {vf}, but reports them as unset again"
            )
    return rewritten_settings if lost_settings == VfSettings() else lost_settings


def _rewrite_isolation(node: Node, entry: LedgerEntry, pf: str, vf: int) -> VfSettings:
    """Write MAC, VLAN and spoof check as the PF reports them, end the doubt, and return them. Raise OSError."""
    reading = node.vf_settings.read(pf, vf)
    mac = admin_mac.certain_mac(reading.mac, node.sysfs.driver(node.sysfs.pf_of(entry.pci)))
    vlan, qos = (reading.vlan, reading.qos) if reading.vlan or reading.qos else (None, None)
    # It reads as off if the PF accepted "off" and then refused "on".
    was_on = entry.original.settings.spoofchk if entry.set.spoofchk is None else entry.set.spoofchk
    settings = VfSettings(mac=mac, vlan=vlan, qos=qos, spoofchk=reading.spoofchk or was_on)
    write_again(partial(node.vf_settings.write, pf, vf), settings)
    current = node.ledger.read(entry.pci)
    node.ledger.write(replace(current or entry, in_doubt=False))
    return settings
