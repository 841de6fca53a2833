"""Put changed rates of a running pod in force: the caller holds the locks of all the pod's VFs.

The rates record is on disk before. Each VF is set, read back, and then entered in the ledger, durably; those whose
reservation falls come first, so that what is raised finds room. A server that is killed anywhere leaves entries that
differ from the record, and the next pass goes on with those: a VF that has its rates already is only read. What the
pod's DEL restores (``original``) stays as ADD found it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cni.plan import attachment
from cni.spec.skel import NIC_REFUSED, CniError
from cni.vf import offer, rates
from cni.vf.node import Node, pfs_of_port
from mooring.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.ledger import LedgerEntry
from mooring.locks import hold_all
from mooring.podrecord import PodRecord
from mooring.rates import VfRates
from mooring.rates_record import RatesRecord, has_rates, rates_by_pci
from mooring.settings import VfSettings

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


@dataclass(frozen=True, slots=True)
class _Change:
    """A VF that a pod holds, and the rates that it does not have yet."""

    vf: AssignedVf
    entry: LedgerEntry
    rates: VfRates

    @property
    def reserves_more(self) -> bool:
        return (self.rates.min_tx_rate or 0) > self.entry.reserved_mbps

    @property
    def is_raised(self) -> bool:
        """Whether the VF comes last: its reservation rises, or at the same one its limit."""
        before, after = self.entry.set.max_tx_rate or 0, self.rates.max_tx_rate or 0
        limit_rises = before != 0 and (after == 0 or after > before)
        return self.reserves_more or (limit_rises and (self.rates.min_tx_rate or 0) == self.entry.reserved_mbps)


def apply_rates(node: Node, pod: PodRecord, changed: RatesRecord) -> bool:
    """Set the rates of every VF that the pod holds; return whether no VF of it has others, also on its way back.

    Raise RatesRefusedError for a VF that does not get them; LockBusyError; RecordError or OSError of the ledger.
    """
    changes, others = _differing(node, pod, changed)
    if changes:
        ports = {change.entry.pci: _port(node, change) for change in changes}
        with hold_all(node.run, [pci for port in ports.values() for pci in port], _LOCK_S):
            for change in sorted(changes, key=lambda change: (change.is_raised, change.entry.pci)):
                node.ledger.write(_set(node, change, ports[change.entry.pci]))
    return not others


def _differing(node: Node, pod: PodRecord, changed: RatesRecord) -> tuple[list[_Change], list[LedgerEntry]]:
    """Return the VFs to set, and the entries with other rates that a release must remove first."""
    wanted = rates_by_pci(pod, changed)
    entries = ((vf, node.ledger.read(vf.pci)) for vf in pod.assignment.vfs)
    ours = [
        _Change(vf, entry, wanted[vf.pci])
        for vf, entry in entries
        if entry is not None and entry.uid == changed.rates.uid and not has_rates(entry, wanted[vf.pci])
    ]
    held = [change for change in ours if change.entry.phase == "held" and change.entry.boot == node.boot]
    return held, [change.entry for change in ours if change not in held]


def _port(node: Node, change: _Change) -> tuple[str, ...]:
    """Return the PFs that are locked for a VF: as for ADD, those of its cable only if it reserves more."""
    with _naming(change):
        pf_pci = node.sysfs.pf_of(change.entry.pci)
        return pfs_of_port(node, pf_pci) if change.reserves_more else (pf_pci,)


def _set(node: Node, change: _Change, port: tuple[str, ...]) -> LedgerEntry:
    """Set a VF's rates and read them back; return the entry that holds them."""
    with _naming(change):
        entry = change.entry
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        pf_pci = node.sysfs.pf_of(entry.pci)
        found = node.vf_settings.read_all(pf)
        settings, share = _settings(node, change, pf_pci, found[vf])
        shares = {(pf, vf)} if share else frozenset()
        if change.reserves_more:
            others = rates.other_pfs(node, pf_pci, port)
            of_port = {pf: found, **{other: node.vf_settings.read_all(other) for other in others}}
            rates.check(node, pf_pci, pf, of_port, {pf: {vf: settings}}, shares)
            if node.enforces_offer:
                rates.check_offer(node, entry.uid, port, of_port, {pf: {vf: settings}}, shares)
        rates.enrol(node, pf_pci, pf, found, [settings])
        _write(node, replace(entry, pf=pf, vf=vf), settings, found[vf])
    changed = replace(entry.set, min_tx_rate=settings.min_tx_rate, max_tx_rate=settings.max_tx_rate)
    return replace(entry, set=changed, share=share)


def _settings(node: Node, change: _Change, pf_pci: str, found: VfSettings) -> tuple[VfSettings, bool]:
    """Return both rates to set, and whether the min is the operator's share; 0 where the NIC has such a rate at all."""
    wanted = VfSettings(
        min_tx_rate=change.rates.min_tx_rate or (None if found.min_tx_rate is None else 0),
        max_tx_rate=change.rates.max_tx_rate or (None if found.max_tx_rate is None else 0),
    )
    share_mbps = offer.of_pf(node, pf_pci).default_share_mbps
    return attachment.with_default_share(wanted, found, change.vf.link, share_mbps)


def _write(node: Node, entry: LedgerEntry, settings: VfSettings, found: VfSettings) -> None:
    changes = attachment.changes(settings, found)
    try:
        if changes != VfSettings():
            node.vf_settings.write(entry.pf, entry.vf, changes)
    except OSError as refused:
        raise CniError(NIC_REFUSED, attachment.refusal_text(entry, changes, refused)) from refused
    if wrong := attachment.differences(settings, node.vf_settings.read(entry.pf, entry.vf)):
        raise CniError(NIC_REFUSED, f"pf {entry.pf!r} took what vf {entry.vf} was set to, but {'; '.join(wrong)}")


@contextmanager
def _naming(change: _Change) -> Iterator[None]:
    """Name the VF with whatever keeps it from its rates."""
    try:
        yield
    except (CniError, OSError, KeyError, RecordError) as refused:
        raise RatesRefusedError(change.entry.pci, refused) from refused
