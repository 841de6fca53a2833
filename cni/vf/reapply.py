"""Set again what a PF has forgotten of a VF that a pod holds; the caller holds the VF's lock."""

from dataclasses import replace
from datetime import UTC, datetime

from cni.plan import resets
from cni.spec.skel import NIC_REFUSED, CniError
from cni.vf.node import Node
from cni.vf.rates import pf_rates
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry


def reapply(node: Node, entry: LedgerEntry) -> VfSettings:
    """Set what reads as a fresh VF's, and record when; return it. Raise OSError, CniError 101 or LockBusyError.

    The PF's lock is not waited for: `init` may hold it for minutes.
    """
    pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
    pf_pci = node.sysfs.pf_of(entry.pci)
    with hold(node.run, pf_pci, limit_s=0):
        found = node.vf_settings.read_all(pf)
        expected = resets.expected(entry)
        again = resets.forgotten(expected, found[vf])
        if again == VfSettings():
            return again
        # First: an Event that was told for nothing is better than one that nobody gets.
        node.ledger.write(replace(entry, reset_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        pf_rates.enrol(node, pf_pci, pf, found, [again])
        node.vf_settings.write(pf, vf, again)
        if still := resets.forgotten(expected, node.vf_settings.read(pf, vf)).to_fields():
            raise CniError(NIC_REFUSED, f"pf {pf!r} took {', '.join(still)} of vf {vf} and has them unset again")
    return again
