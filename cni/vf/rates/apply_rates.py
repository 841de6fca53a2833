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
from mooring.locks import hold_locks
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord
from mooring.records.rates_record import RatesRecord, rates_by_pci, with_recorded_rates

# The errors that can keep a VF from getting its rates.
_VF_ERRORS = (CniError, OSError, KeyError, RecordError)
# Seconds to wait for the locks of PFs. An ADD holds one for milliseconds, `init` for minutes: then the next pass tries.
_LOCK_S = 2.0


class RatesRefusedError(Exception):
    """The VF at ``pci`` cannot get its rates; its text is the reason."""

    def __init__(self, pci: str, error: Exception) -> None:
        super().__init__(pci, error)
        self.pci = pci
        self.reason = str(error)

    def __str__(self) -> str:
        return self.reason


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


def apply_rates(node: Node, pod: PodRecord, record: RatesRecord) -> bool:
    """Set the rates of every VF that the pod holds; return whether all its VFs reserve no more than their new rates.

    VFs that are being attached or detached count too. Raise RatesRefusedError for a VF that cannot get its rates,
    LeavingVfError, LockBusyError, and RecordError or OSError of the ledger.
    """
    # Raises RecordError if the two records do not fit together.
    pod = with_recorded_rates(pod, record)
    new_rates = rates_by_pci(pod, record)
    pairs = ((vf, node.ledger.read(vf.pci)) for vf in pod.assignment.vfs)
    own_pairs = [(vf, entry) for vf, entry in pairs if entry is not None and entry.uid == record.rates.uid]
    held_pairs = [(vf, entry) for vf, entry in own_pairs if entry.phase == "held" and entry.boot == node.boot]
    changes = [
        _Change(vf, entry, new_rates[vf.pci], _port(node, entry, reserves=bool(new_rates[vf.pci].min_tx_rate)))
        for vf, entry in held_pairs
    ]
    with hold_locks(node.run, [pci for change in changes for pci in change.port], _LOCK_S):
        for change in sorted(changes, key=lambda change: (_is_raised(node, change), change.entry.pci)):
            _set(node, change)
    other_pairs = [pair for pair in own_pairs if pair not in held_pairs]
    return all(_fits_new_rates(node, entry, new_rates[vf.pci]) for vf, entry in other_pairs)


def _port(node: Node, entry: LedgerEntry, *, reserves: bool) -> tuple[str, ...]:
    """Return the PFs to lock for a VF: its own, and the others on its cable if it will reserve a rate."""
    with _wrap_errors(entry):
        pf_pci = node.sysfs.pf_of(entry.pci)
        other_pfs = pfs_of_port(node, pf_pci) if reserves else ()
        return (pf_pci, *(pci for pci in other_pfs if pci != pf_pci))


def _is_raised(node: Node, change: _Change) -> bool:
    """Return whether the reservation of a VF rises, or its limit if the reservation stays; such VFs come last.

    The PF's present settings count: the ledger may not have what a killed server set.
    """
    with _wrap_errors(change.entry):
        pf, vf = node.sysfs.current_pf(change.entry.pci, change.entry.pf, change.entry.vf)
        current = node.vf_settings.read(pf, vf)
    low, high = _reserved_mbps(change.entry, current), current.max_tx_rate or 0
    new_low, new_high = change.rates.min_tx_rate or 0, change.rates.max_tx_rate or 0
    limit_rises = high != 0 and (new_high == 0 or new_high > high)
    return new_low > low or (new_low == low and limit_rises)


def _reserved_mbps(entry: LedgerEntry, current: VfSettings) -> int:
    """Return the rate in Mb/s that a VF reserves on its PF; a default share reserves nothing."""
    is_share = entry.share and current.min_tx_rate == entry.set.min_tx_rate
    return 0 if is_share else current.min_tx_rate or 0


def _fits_new_rates(node: Node, entry: LedgerEntry, rates: VfRates) -> bool:
    """Return whether a VF that is being attached or detached reserves no more than its new rate, according to its PF.

    Neither can raise its rate: the ADD has read the record, or ends before it sets anything.
    """
    try:
        if not node.sysfs.exists(entry.pci):
            return True
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        return _reserved_mbps(entry, node.vf_settings.read(pf, vf)) <= (rates.min_tx_rate or 0)
    except _VF_ERRORS as unknown:
        raise LeavingVfError(
            f"the rate that vf {entry.pci} reserves while it is attached or detached is unknown: {unknown}"
        ) from unknown


def _set(node: Node, change: _Change) -> None:
    """Set the rates of a VF, read them back, and write them to the ledger; rates that are already set are only read."""
    with _wrap_errors(change.entry):
        entry = change.entry
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        current = node.vf_settings.read_all(pf)
        settings, share = _settings(node, change, current[vf])
        target, shares = {pf: {vf: settings}}, {(pf, vf)} if share else frozenset()
        if (change.rates.min_tx_rate or 0) > _reserved_mbps(entry, current[vf]):
            other_pfs = pf_rates.other_pfs(node, change.pf_pci, change.port)
            of_port = {pf: current, **{other_pf: node.vf_settings.read_all(other_pf) for other_pf in other_pfs}}
            pf_rates.check(node, change.pf_pci, pf, of_port, target, shares)
            if node.enforces_offer:
                pf_rates.check_offer(node, entry.uid, change.port, of_port, target, shares)
        entry = _record_both_rates(node, entry, current[vf])
        pf_rates.enrol(node, change.pf_pci, pf, current, [settings])
        _write(node, replace(entry, pf=pf, vf=vf), settings, current[vf])
    entry_settings = replace(entry.set, min_tx_rate=settings.min_tx_rate, max_tx_rate=settings.max_tx_rate)
    if (entry_settings, share) != (entry.set, entry.share):
        node.ledger.write(replace(entry, set=entry_settings, share=share))


def _record_both_rates(node: Node, entry: LedgerEntry, current: VfSettings) -> LedgerEntry:
    """Return a VF's entry with both present rates, written before they change: DEL restores only rates in the entry."""
    settings = replace(
        entry.set,
        min_tx_rate=current.min_tx_rate if entry.set.min_tx_rate is None else entry.set.min_tx_rate,
        max_tx_rate=current.max_tx_rate if entry.set.max_tx_rate is None else entry.set.max_tx_rate,
    )
    if settings == entry.set:
        return entry
    entry = replace(entry, set=settings)
    node.ledger.write(entry)
    return entry


def _settings(node: Node, change: _Change, current: VfSettings) -> tuple[VfSettings, bool]:
    """Return both rates to set (0 for none, if the NIC supports the rate), and whether the min is the default share."""
    settings = VfSettings(
        min_tx_rate=change.rates.min_tx_rate or (None if current.min_tx_rate is None else 0),
        max_tx_rate=change.rates.max_tx_rate or (None if current.max_tx_rate is None else 0),
    )
    share_mbps = offer.of_pf(node, change.pf_pci).default_share_mbps
    return attachment.with_default_share(settings, current, change.vf.link, share_mbps)


def _write(node: Node, entry: LedgerEntry, settings: VfSettings, current: VfSettings) -> None:
    changes = attachment.changes(settings, current)
    try:
        if changes != VfSettings():
            vf_reset.write_message(node, entry.pci, entry.pf, entry.vf, changes)
    except OSError as error:
        raise CniError(NIC_REFUSAL, attachment.refusal_text(entry, changes, error)) from error
    if differences := attachment.differences(settings, node.vf_settings.read(entry.pf, entry.vf)):
        raise CniError(NIC_REFUSAL, attachment.contradiction_text(entry, differences))


@contextmanager
def _wrap_errors(entry: LedgerEntry) -> Iterator[None]:
    """Turn errors about a VF into RatesRefusedError, which names the VF."""
    try:
        yield
    except _VF_ERRORS as error:
        raise RatesRefusedError(entry.pci, error) from error
