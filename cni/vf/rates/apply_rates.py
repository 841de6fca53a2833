"""Put changed rates of a running pod in force: the caller holds the locks of all the pod's VFs.

The rates record is on disk before. Each VF is set, read back, and then entered in the ledger, durably; those whose
reservation falls come first, so that what is raised finds room. A server that is killed anywhere leaves a PF that the
ledger may not describe. So the next one asks the PF about each VF, whatever its entry says: one that has its rates
already is only read. What the pod's DEL restores (``original``) stays as ADD found it, and the entry names both rates
before the first of them changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cni.plan import attachment
from cni.spec.skel import NIC_REFUSED, CniError
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

# What keeps a VF from its rates.
_CANNOT = (CniError, OSError, KeyError, RecordError)
# An ADD holds its PF's lock for milliseconds; `init` for minutes, which the next pass waits for.
_LOCK_S = 2.0


class RatesRefusedError(Exception):
    """A VF does not get its rates; ``pci`` names it."""

    def __init__(self, pci: str, why: Exception) -> None:
        super().__init__(pci, why)
        self.pci = pci
        self.why = str(why)

    def __str__(self) -> str:
        return self.why


class LeavingVfError(Exception):
    """What a VF reserves that its pod gives back, or takes, is not known: nothing that its owner could mend."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A VF that a pod holds, the rates that it is to have, and the PFs that are locked for it: its own comes first."""

    vf: AssignedVf
    entry: LedgerEntry
    rates: VfRates
    port: tuple[str, ...]

    @property
    def pf_pci(self) -> str:
        return self.port[0]


def apply_rates(node: Node, pod: PodRecord, changed: RatesRecord) -> bool:
    """Set the rates of every VF that the pod holds; return whether no VF of it reserves more, also on its way back.

    Raise RatesRefusedError for a VF that does not get them; LeavingVfError; LockBusyError; RecordError or OSError
    of the ledger.
    """
    # It raises where the two records do not fit together.
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
    """Return the PFs to lock for a VF: as for ADD, those of its cable only if it is to reserve a rate."""
    with _naming(entry):
        pf_pci = node.sysfs.pf_of(entry.pci)
        others = pfs_of_port(node, pf_pci) if reserves else ()
        return (pf_pci, *(pci for pci in others if pci != pf_pci))


def _is_raised(node: Node, change: _Change) -> bool:
    """Return whether a VF comes last: its reservation rises, or at the same one its limit.

    By what the PF has: the ledger may not know yet what a server that was killed has set.
    """
    with _naming(change.entry):
        pf, vf = node.sysfs.current_pf(change.entry.pci, change.entry.pf, change.entry.vf)
        found = node.vf_settings.read(pf, vf)
    low, high = _reserved_mbps(change.entry, found), found.max_tx_rate or 0
    wanted_low, wanted_high = change.rates.min_tx_rate or 0, change.rates.max_tx_rate or 0
    limit_rises = high != 0 and (wanted_high == 0 or wanted_high > high)
    return wanted_low > low or (wanted_low == low and limit_rises)


def _reserved_mbps(entry: LedgerEntry, found: VfSettings) -> int:
    """Return what a VF reserves by what its PF has; the default share that ADD or a change gave it reserves nothing."""
    is_share = entry.share and found.min_tx_rate == entry.set.min_tx_rate
    return 0 if is_share else found.min_tx_rate or 0


def _reserves_no_more(node: Node, entry: LedgerEntry, rates: VfRates) -> bool:
    """Return whether a VF that is on its way into the pod or back reserves no more than it is to, by what its PF has.

    Neither way gives it more: an ADD has read the record, or ends before it sets anything.
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
    """Set a VF's rates, read them back, and enter them in the ledger; what is so already is only read."""
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
    """Return a VF's entry with both rates as they are, written before they change: DEL restores what it names."""
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
    """Return both rates to set, and whether the min is the operator's share; 0 where the NIC has such a rate at all."""
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
        raise CniError(NIC_REFUSED, attachment.refusal_text(entry, changes, refused)) from refused
    if wrong := attachment.differences(settings, node.vf_settings.read(entry.pf, entry.vf)):
        raise CniError(NIC_REFUSED, attachment.contradiction_text(entry, wrong))


@contextmanager
def _naming(entry: LedgerEntry) -> Iterator[None]:
    """Name the VF with whatever keeps it from its rates."""
    try:
        yield
    except _CANNOT as refused:
        raise RatesRefusedError(entry.pci, refused) from refused
