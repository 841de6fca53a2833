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
        found = node.vf_settings.read_all(pf)
        expected = resets.expected_settings(entry)
        again = resets.lost_settings(expected, found[vf])
        if again != VfSettings():
            # Record the time first: an unnecessary Event is better than a missing one.
            node.ledger.write(replace(entry, reset_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
            pf_rates.enrol(node, pf_pci, pf, found, [again])
            vf_reset.write_at_once(node, entry.pci, pf, vf, again)
        written = _write_again(node, entry, pf, vf) if entry.in_doubt else again
        if still := resets.lost_settings(expected, node.vf_settings.read(pf, vf)).to_fields():
            raise CniError(
                NIC_REFUSAL, f"pf {pf!r} accepted {', '.join(still)} of vf {vf}, but reports them as unset again"
            )
    return written if again == VfSettings() else again


def _write_again(node: Node, entry: LedgerEntry, pf: str, vf: int) -> VfSettings:
    """Write MAC, VLAN and spoof check as the PF reports them, end the doubt, and return them. Raise OSError."""
    found = node.vf_settings.read(pf, vf)
    mac = admin_mac.certain_mac(found.mac, node.sysfs.driver(node.sysfs.pf_of(entry.pci)))
    vlan, qos = (found.vlan, found.qos) if found.vlan or found.qos else (None, None)
    # It reads as off if the PF accepted "off" and then refused "on".
    was_on = entry.original.settings.spoofchk if entry.set.spoofchk is None else entry.set.spoofchk
    settings = VfSettings(mac=mac, vlan=vlan, qos=qos, spoofchk=found.spoofchk or was_on)
    write_again(partial(node.vf_settings.write, pf, vf), settings)
    current = node.ledger.read(entry.pci)
    node.ledger.write(replace(current or entry, in_doubt=False))
    return settings
