"""Apply changed rates of a running pod; the caller holds the locks of all VFs of the pod.

The rates record is already on disk. Each VF is set, read back, and then written to the ledger. VFs whose reservation
falls come first, to make room for the others. A server that is killed in the middle leaves a PF that the ledger may not
describe. So the next server reads each VF from the PF, whatever its entry says, and skips VFs that already have their
rates. ``original``, which the pod's DEL restores, stays as ADD found it, and the entry has both rates before the first
of them changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cni.plan import attachment
from cni.spec.skel import NIC_REFUSAL, CniError
from cni.vf import offer, vf_reset
from cni.vf.node import Node, pfs_of_port
from cni.vf.rates import pf_rates
from mooring.annotations.assignment import AssignedVf
from mooring.annotations.rates import VfRates
from mooring.errors import RecordError
from mooring.locks import hold_all
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord
from mooring.records.rates_record import RatesRecord, rates_by_pci, with_recorded_rates

# The errors that can keep a VF from getting its rates.
_CANNOT = (CniError, OSError, KeyError, RecordError)
# Seconds to wait for the locks of PFs. An ADD holds one for milliseconds, `init` for minutes: then the next pass tries.
_LOCK_S = 2.0


class RatesRefusedError(Exception):
    """The VF at ``pci`` cannot get its rates; ``why`` is the reason."""

    def __init__(self, pci: str, why: Exception) -> None:
        super().__init__(pci, why)
        self.pci = pci
        self.why = str(why)

    def __str__(self) -> str:
        return self.why


class LeavingVfError(Exception):
    """The rate of a VF that is being attached or detached is unknown; the pod's owner can do nothing about it."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A VF that a pod holds, its new rates, and the PCI addresses of the PFs to lock, its own PF first."""

    vf: AssignedVf
    entry: LedgerEntry
    rates: VfRates
    port: tuple[str, ...]

    @property
    def pf_pci(self) -> str:
        return self.port[0]


def apply_rates(node: Node, pod: PodRecord, changed: RatesRecord) -> bool:
    """Set the rates of every VF that the pod holds; return whether all its VFs reserve no more than their new rates.

    VFs that are being attached or detached count too. Raise RatesRefusedError for a VF that cannot get its rates,
    LeavingVfError, LockBusyError, and RecordError or OSError of the ledger.
    """
    # Raises RecordError if the two records do not fit together.
    pod = with_recorded_rates(pod, changed)
    wanted = rates_by_pci(pod, changed)
    read = ((vf, node.ledger.read(vf.pci)) for vf in pod.assignment.vfs)
    ours = [(vf, entry) for vf, entry in read if entry is not None and entry.uid == changed.rates.uid]
    held = [(vf, entry) for vf, entry in ours if entry.phase == "held" and entry.boot == node.boot]
    changes = [
        _Change(vf, entry, wanted[vf.pci], _port(node, entry, reserves=bool(wanted[vf.pci].min_tx_rate)))
        for vf, entry in held
    ]
    with hold_all(node.run, [pci for change in changes for pci in change.port], _LOCK_S):
        for change in sorted(changes, key=lambda change: (_is_raised(node, change), change.entry.pci)):
            _set(node, change)
    others = [one for one in ours if one not in held]
    return all(_reserves_no_more(node, entry, wanted[vf.pci]) for vf, entry in others)


def _port(node: Node, entry: LedgerEntry, *, reserves: bool) -> tuple[str, ...]:
    """Return the PFs to lock for a VF: its own, and the others on its cable if it will reserve a rate."""
    with _naming(entry):
        pf_pci = node.sysfs.pf_of(entry.pci)
        others = pfs_of_port(node, pf_pci) if reserves else ()
        return (pf_pci, *(pci for pci in others if pci != pf_pci))


def _is_raised(node: Node, change: _Change) -> bool:
    """Return whether the reservation of a VF rises, or its limit if the reservation stays; such VFs come last.

    The PF's present settings count: the ledger may not have what a killed server set.
    """
    with _naming(change.entry):
        pf, vf = node.sysfs.current_pf(change.entry.pci, change.entry.pf, change.entry.vf)
        found = node.vf_settings.read(pf, vf)
    low, high = _reserved_mbps(change.entry, found), found.max_tx_rate or 0
    wanted_low, wanted_high = change.rates.min_tx_rate or 0, change.rates.max_tx_rate or 0
    limit_rises = high != 0 and (wanted_high == 0 or wanted_high > high)
    return wanted_low > low or (wanted_low == low and limit_rises)


def _reserved_mbps(entry: LedgerEntry, found: VfSettings) -> int:
    """Return the rate in Mb/s that a VF reserves on its PF; a default share reserves nothing."""
    is_share = entry.share and found.min_tx_rate == entry.set.min_tx_rate
    return 0 if is_share else found.min_tx_rate or 0


def _reserves_no_more(node: Node, entry: LedgerEntry, rates: VfRates) -> bool:
    """Return whether a VF that is being attached or detached reserves no more than its new rate, according to its PF.

    Neither can raise its rate: the ADD has read the record, or ends before it sets anything.
    """
    try:
        if not node.sysfs.exists(entry.pci):
            return True
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        return _reserved_mbps(entry, node.vf_settings.read(pf, vf)) <= (rates.min_tx_rate or 0)
    except _CANNOT as unknown:
        raise LeavingVfError(
            f"the rate that vf {entry.pci} reserves while it is attached or detached is unknown: {unknown}"
        ) from unknown


def _set(node: Node, change: _Change) -> None:
    """Set the rates of a VF, read them back, and write them to the ledger; rates that are already set are only read."""
    with _naming(change.entry):
        entry = change.entry
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        found = node.vf_settings.read_all(pf)
        settings, share = _settings(node, change, found[vf])
        wanted, shares = {pf: {vf: settings}}, {(pf, vf)} if share else frozenset()
        if (change.rates.min_tx_rate or 0) > _reserved_mbps(entry, found[vf]):
            others = pf_rates.other_pfs(node, change.pf_pci, change.port)
            of_port = {pf: found, **{other: node.vf_settings.read_all(other) for other in others}}
            pf_rates.check(node, change.pf_pci, pf, of_port, wanted, shares)
            if node.enforces_offer:
                pf_rates.check_offer(node, entry.uid, change.port, of_port, wanted, shares)
        entry = _owning_rates(node, entry, found[vf])
        pf_rates.enrol(node, change.pf_pci, pf, found, [settings])
        _write(node, replace(entry, pf=pf, vf=vf), settings, found[vf])
    changed = replace(entry.set, min_tx_rate=settings.min_tx_rate, max_tx_rate=settings.max_tx_rate)
    if (changed, share) != (entry.set, entry.share):
        node.ledger.write(replace(entry, set=changed, share=share))


def _owning_rates(node: Node, entry: LedgerEntry, found: VfSettings) -> LedgerEntry:
    """Return a VF's entry with both present rates, written before they change: DEL restores only rates in the entry."""
    owned = replace(
        entry.set,
        min_tx_rate=found.min_tx_rate if entry.set.min_tx_rate is None else entry.set.min_tx_rate,
        max_tx_rate=found.max_tx_rate if entry.set.max_tx_rate is None else entry.set.max_tx_rate,
    )
    if owned == entry.set:
        return entry
    entry = replace(entry, set=owned)
    node.ledger.write(entry)
    return entry


def _settings(node: Node, change: _Change, found: VfSettings) -> tuple[VfSettings, bool]:
    """Return both rates to set (0 for none, if the NIC supports the rate), and whether the min is the default share."""
    wanted = VfSettings(
        min_tx_rate=change.rates.min_tx_rate or (None if found.min_tx_rate is None else 0),
        max_tx_rate=change.rates.max_tx_rate or (None if found.max_tx_rate is None else 0),
    )
    share_mbps = offer.of_pf(node, change.pf_pci).default_share_mbps
    return attachment.with_default_share(wanted, found, change.vf.link, share_mbps)


def _write(node: Node, entry: LedgerEntry, settings: VfSettings, found: VfSettings) -> None:
    changes = attachment.changes(settings, found)
    try:
        if changes != VfSettings():
            vf_reset.write_at_once(node, entry.pci, entry.pf, entry.vf, changes)
    except OSError as refused:
        raise CniError(NIC_REFUSAL, attachment.refusal_text(entry, changes, refused)) from refused
    if wrong := attachment.differences(settings, node.vf_settings.read(entry.pf, entry.vf)):
        raise CniError(NIC_REFUSAL, attachment.contradiction_text(entry, wrong))


@contextmanager
def _naming(entry: LedgerEntry) -> Iterator[None]:
    """Turn errors about a VF into RatesRefusedError, which names the VF."""
    try:
        yield
    except _CANNOT as refused:
        raise RatesRefusedError(entry.pci, refused) from refused
