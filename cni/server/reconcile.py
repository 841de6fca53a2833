"""Release orphaned VFs and restore lost settings of held VFs, at the server's start and regularly after that.

It works like a call: under the VF's lock, by the ledger entry, with `detach`. If a VF's lock is busy, a call is working
on the VF; the VF waits for the next pass, so that no call waits for a pass. A VF without an entry was never attached
and is not touched. A pass needs no state from earlier passes: a new server continues from the ledger and the kernel.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from cni.kernel import netns
from cni.plan.orphans import REASONS, Backoff, Orphan, Place, Reason, find_orphans, is_due, next_backoff
from cni.server.extracts import mend
from cni.server.held_settings import HeldSettings
from cni.server.metrics import Metrics
from cni.spec.skel import CniError
from cni.vf.detach.detach import detach
from cni.vf.detach.rebind import RebindError
from cni.vf.node import Node, in_host_netns
from mooring.errors import RecordError
from mooring.folders import foreign_entries
from mooring.locks import LockBusyError, hold
from mooring.records import ledger, pod_record
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()
# Repairs in parallel: a VF that a process keeps takes up to 13 s, and every orphan of a node must be repaired in 30 s.
_MOST_THREADS = 8


class Reconciler:
    """Reconciles the ledger of one node; ``node`` creates the Node for each pass."""

    def __init__(self, node: Callable[[], Node], metrics: Metrics) -> None:
        self._node = node
        self._metrics = metrics
        self._record_gaps: Mapping[tuple[str, str], float] = {}
        self._unreadable: dict[str, str] = {}
        self._failures: dict[str, str] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._held_settings = HeldSettings(metrics)

    def run(self, stop: threading.Event, interval_s: float) -> None:
        """Reconcile now, then every ``interval_s`` seconds until ``stop`` is set."""
        while not stop.is_set():
            try:
                self.reconcile(time.monotonic())
            except Exception:  # noqa: BLE001 - the top of the reconciler's loop: the next pass may succeed
                _log.exception("reconciling the ledger failed unexpectedly")
            stop.wait(interval_s)

    def reconcile(self, now: float) -> None:
        """Run one pass: repair the orphans that are due; ``now`` is in monotonic seconds."""
        node = self._node()
        entries = self._read(node)
        places = _places(node, entries.values())
        located_entries = {pci: (entry, places[pci]) for pci, entry in entries.items()}
        judgement = find_orphans(located_entries, _records(node, entries.values()), node.boot, self._record_gaps, now)
        self._record_gaps = judgement.record_gaps
        self._backoffs = {pci: backoff for pci, backoff in self._backoffs.items() if pci in entries}
        due = [orphan for orphan in judgement.orphans if is_due(self._backoffs.get(orphan[0].pci), now)]
        self._failures = {pci: reason for pci, reason in self._failures.items() if pci in entries}
        for pci in self._repair_orphans(node, due, now):
            del entries[pci]
        in_pods = [entry for entry in entries.values() if entry.phase == "held" and places[entry.pci] == "pod"]
        held_entries = [entry for entry in in_pods if not _is_lost(node, entry)]
        self._held_settings.compare(node, held_entries)
        mend(node, entries, self._unreadable)
        self._metrics.ledger(entries.values(), len(self._unreadable))

    def _read(self, node: Node) -> dict[str, LedgerEntry]:
        """Return the ledger's entries by PCI address; unreadable entries are reported once and not changed."""
        content = node.ledger.content()
        foreign = foreign_entries(node.ledger.state / ledger.FOLDER, ledger.IS_NAME)
        unreadable = {**foreign, **{name: str(error) for name, error in content.unreadable.items()}}
        for name in sorted(unreadable.keys() - self._unreadable.keys()):
            _log.error("ledger entry cannot be read and is not changed", entry=name, reason=unreadable[name])
            self._metrics.unreadable_entry()
        self._unreadable = unreadable
        return {entry.pci: entry for entry in content.entries}

    def _repair_orphans(self, node: Node, orphans: Sequence[Orphan], now: float) -> list[str]:
        """Repair orphans and return the addresses of the released VFs; those that failed before come last."""
        ordered_orphans = sorted(orphans, key=lambda orphan: orphan[0].pci in self._failures)
        with ThreadPoolExecutor(_MOST_THREADS, "repair") as pool:
            results = pool.map(lambda orphan: self._repair(node, orphan[0], orphan[1], now), ordered_orphans)
            return [entry.pci for (entry, _), is_released in zip(ordered_orphans, results, strict=True) if is_released]

    def _repair(self, node: Node, entry: LedgerEntry, reason: Reason, now: float) -> bool:
        """Release one orphan, unless a call holds its lock or its entry has changed; return whether it was released."""
        try:
            with hold(node.run, entry.pci, limit_s=0):
                if node.ledger.read(entry.pci) != entry:
                    return False
                return self._detach(node, entry, reason, now)
        except LockBusyError:
            return False
        except (OSError, RecordError) as unreadable:
            _log.warning("orphaned vf is not released yet", pci=entry.pci, pod=entry.pod, reason=str(unreadable))
            return False

    def _detach(self, node: Node, entry: LedgerEntry, reason: Reason, now: float) -> bool:
        event = _log.bind(pod=entry.pod, uid=entry.uid, pci=entry.pci, container=entry.container)
        failure: object = None
        try:
            # The runtime listed no sandbox of a pod without a record for ten minutes, so the pod counts as deleted.
            if not detach(node, replace(entry, deleted=entry.deleted or reason == "record_gone")):
                failure = "a process still has its rdma device open"
                # The rebind of its driver did not help, and must not be repeated every few seconds.
                self._backoffs[entry.pci] = next_backoff(self._backoffs.get(entry.pci), now)
        except RebindError as error:
            failure = error
            self._backoffs[entry.pci] = next_backoff(self._backoffs.get(entry.pci), now)
        except (CniError, OSError, ValueError) as error:
            # A fault of one VF must not stop the repair of others.
            failure = error
        if failure is not None:
            self._metrics.repair(reason, success=False)
            if self._failures.get(entry.pci) != str(failure):
                event.warning("orphaned vf is not released yet", reason=f"{REASONS[reason]}; {failure}")
            self._failures[entry.pci] = str(failure)
            return False
        self._metrics.repair(reason, success=True)
        event.info("orphaned vf released", reason=REASONS[reason])
        return True


def _records(node: Node, entries: Collection[LedgerEntry]) -> frozenset[str] | None:
    """Return which pods of the entries have a record; unreadable or foreign files at its path count too."""
    if not (node.ledger.state / pod_record.FOLDER).is_dir():
        return None
    names = {entry.uid: node.ledger.state / pod_record.pod_record_name(entry.uid) for entry in entries}
    return frozenset(uid for uid, path in names.items() if os.path.lexists(path))


def _places(node: Node, entries: Collection[LedgerEntry]) -> dict[str, Place]:
    """Return the place of each VF, without waiting; each namespace is entered only once."""
    alive = {space: _may_be_alive(space) for space in {entry.netns for entry in entries}}
    return {entry.pci: "pod" if alive[entry.netns] else _place_without_netns(node, entry) for entry in entries}


def _is_lost(node: Node, entry: LedgerEntry) -> bool:
    """Return whether the VF of a live pod is on the host: its PF's driver was reloaded, and the VF is a new one.

    The pod's settings are not applied to it. Its ledger entry stays until the pod ends.
    """
    return not entry.rdma_only and node.sysfs.netdev(entry.pci) is not None


def _may_be_alive(space: ledger.Netns) -> bool:
    """Return whether a namespace is still at its path; True if that cannot be checked."""
    try:
        return netns.is_same(space.path, space.cookie)
    except (OSError, ValueError) as error:
        _log.warning("network namespace cannot be entered", path=space.path, reason=str(error))
        return True


def _place_without_netns(node: Node, entry: LedgerEntry) -> Place:
    """Return the place of a VF whose namespace is gone: on the host (also if it no longer exists), or away."""
    try:
        return "host" if not node.sysfs.exists(entry.pci) or in_host_netns(node, entry, limit_s=0) else "away"
    except OSError:
        return "away"
