"""Compare the settings of held VFs with the ledger; this is part of the reconciler.

Settings that a PF lost are restored. Settings that another program changed are reported once and kept. If a PF refused
a setting, MAC, VLAN and spoof check are written again with their reported values, because these may not be in force
(`mooring.nic.write_again`). If a VF's lock is busy, a call is working on it, and it waits for the next pass.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import structlog

from cni.plan import resets
from cni.server.metrics import Metrics
from cni.spec.skel import CniError
from cni.vf.node import Node
from cni.vf.reapply import reapply
from mooring.errors import RecordError
from mooring.locks import LockBusyError, hold
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry
from mooring.records.rates_record import has_rates_of

_log = structlog.get_logger()


class HeldSettings:
    """Compares the settings of held VFs; remembers only what it has reported."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._reports: dict[str, str] = {}

    def compare(self, node: Node, entries: Iterable[LedgerEntry]) -> None:
        """Compare every held VF with its PF, with one request for each PF; skip PFs that do not answer."""
        reports: dict[str, str] = {}
        changed_vfs = 0
        for entry, current in _read_settings(node, entries):
            if entry.in_doubt or resets.lost_settings(resets.expected_settings(entry), current) != VfSettings():
                if failure := self._reapply(node, entry):
                    reports[entry.pci] = failure
                    self._report(entry, "settings of a held vf were lost and cannot be restored", failure)
            elif (texts := resets.describe_changes(entry.set, current)) and _is_unchanged(node, entry, with_rates=True):
                changed_vfs += 1
                reports[entry.pci] = "; ".join(texts)
                self._report(entry, "settings of a held vf were changed by another program", reports[entry.pci])
        self._metrics.changed_vfs(changed_vfs)
        self._reports = reports

    def _reapply(self, node: Node, entry: LedgerEntry) -> str:
        """Restore a VF's lost settings; return why that failed, empty on success or if a call holds the lock."""
        try:
            with hold(node.run, entry.pci, limit_s=0):
                lost_settings = reapply(node, entry) if _is_unchanged(node, entry) else VfSettings()
        except LockBusyError:
            return ""
        except (CniError, OSError, RecordError) as error:
            self._metrics.reset(success=False)
            return str(error)
        if lost_settings != VfSettings():
            self._metrics.reset(success=True)
            settings = ", ".join(f"{name} {value}" for name, value in lost_settings.to_fields().items())
            event = "settings of a held vf were lost and are restored"
            _log.warning(event, pod=entry.pod, uid=entry.uid, pci=entry.pci, pf=entry.pf, settings=settings)
        return ""

    def _report(self, entry: LedgerEntry, event: str, reason: str) -> None:
        if self._reports.get(entry.pci) != reason:
            _log.warning(event, pod=entry.pod, uid=entry.uid, pci=entry.pci, pf=entry.pf, reason=reason)


def _read_settings(node: Node, entries: Iterable[LedgerEntry]) -> Iterator[tuple[LedgerEntry, VfSettings]]:
    """Yield each VF with its present settings, PF by PF."""
    by_pf: defaultdict[str, list[tuple[int, LedgerEntry]]] = defaultdict(list)
    for entry in entries:
        if resets.expected_settings(entry) == VfSettings():
            continue
        try:
            pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        except OSError:
            continue
        by_pf[pf].append((vf, entry))
    for pf, vfs in by_pf.items():
        try:
            settings = node.vf_settings.read_all(pf)
        except OSError:
            # For example during a reload of the driver: mlx5's netdev does not exist then.
            continue
        yield from ((entry, settings[vf]) for vf, entry in vfs if vf in settings)


def _is_unchanged(node: Node, entry: LedgerEntry, *, with_rates: bool = False) -> bool:
    """Return whether the pod still held the VF when its settings were read: DEL changes the entry before the VF.

    ``with_rates``: also return False if changed rates are recorded that the entry does not have yet, but the PF may.
    """
    try:
        rates = node.ledger.rates(entry.uid) if with_rates else None
        if rates is not None and not has_rates_of(entry, node.ledger.pod(entry.uid), rates):
            return False
        return node.ledger.read(entry.pci) == entry
    except (RecordError, OSError):
        return False
