"""Detach a VF from any state to its original state, according to its ledger entry only.

These are steps 2 to 5 of `cni.cmd_del`. GC, a failed ADD, repairs, and VFs of killed calls use the same code. Each step
checks the VF's present state and does only what is missing, so that all steps can run again at any point.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog

from cni.spec.skel import TRY_AGAIN, CniError
from cni.vf import ipam, rdma_users
from cni.vf.detach import left_behind, original_settings, restore
from cni.vf.detach.move_out import move_out
from cni.vf.detach.rebind import InUseError, rebind
from cni.vf.node import Node, give_way
from mooring.errors import RecordError
from mooring.locks import hold
from mooring.records.ledger import LedgerEntry
from mooring.records.rates_record import rates_by_pci

_log = structlog.get_logger()
_LOCK_S = 30.0
_MOST_THREADS = 8


def detach_vfs(node: Node, entries: Iterable[LedgerEntry], is_selected: Callable[[LedgerEntry], bool]) -> None:
    """Release the VFs of deleted sandboxes, in parallel, because a VF that a process keeps takes seconds.

    ``is_selected`` decides which of ``entries`` to release. Raise the last CniError after all have been tried.
    """
    pcis: list[str] = []
    failures: list[CniError] = []
    try:
        # Release the entries before the error.
        pcis.extend(entry.pci for entry in entries if is_selected(entry))
    except OSError as unknown:
        failures.append(CniError(TRY_AGAIN, "some ledger entries cannot be read", str(unknown)))
    with ThreadPoolExecutor(_MOST_THREADS, "give back") as pool:
        outcomes = pool.map(lambda pci: _try_detach(node, pci, is_selected), pcis)
        failures += [failure for failure in outcomes if failure is not None]
    if failures:
        raise failures[-1]


def _try_detach(node: Node, pci: str, is_selected: Callable[[LedgerEntry], bool]) -> CniError | None:
    """Lock a VF and release it if its entry still matches; return the error if it could not be released."""
    try:
        with hold(node.run, pci, _LOCK_S):
            entry = node.ledger.read(pci)
            if entry is not None and is_selected(entry):
                _detach_and_log(node, replace(entry, deleted=True))
    except RecordError as unreadable:
        _log.error("ledger entry is ignored", reason=str(unreadable))
    except CniError as error:
        return error
    except OSError as error:
        return CniError(TRY_AGAIN, f"vf {pci} cannot be released", str(error))
    return None


def _detach_and_log(node: Node, entry: LedgerEntry) -> None:
    free = detach(node, entry)
    event = _log.bind(pod=entry.pod, uid=entry.uid, pci=entry.pci, container=entry.container)
    if free:
        event.info("vf released")
    else:
        event.warning("vf is restored but still in use", reason="a process still has its rdma device open")


def detach(node: Node, entry: LedgerEntry) -> bool:
    """Restore a VF and remove its entry; raise CniError 11 if that is not possible now.

    The caller holds the VF's lock. Return False for a VF that is restored but in use: a process still has its RDMA
    device open. Its entry stays `returning`, so that no other sandbox gets it.
    """
    try:
        return _detach(node, entry)
    except BaseException:
        give_way(node, entry)
        raise


def _detach(node: Node, entry: LedgerEntry) -> bool:
    same_boot = entry.boot == node.boot
    # The PF may have refused a setting to an ADD that did not finish.
    in_doubt = entry.in_doubt or entry.phase == "taking"
    entry = replace(_with_reservation(node, entry) if same_boot else entry, phase="returning", in_doubt=in_doubt)
    # A full disk, or an entry that has become too long, must not stop the release: the old entry names the same holder,
    # and is removed at the end.
    with suppress(OSError, RecordError):
        node.ledger.write(entry)
    with ThreadPoolExecutor(1) as pool:
        addresses = _AddressReturn(pool, partial(_return_addresses, node, entry, same_boot=same_boot))
        on_host = move_out(node, entry, addresses.begin) if same_boot else node.sysfs.exists(entry.pci)
        addresses.begin()
        free = _free_and_restore(node, entry, same_boot=same_boot) if on_host else True
        addresses.finish()
    if free:
        node.ledger.remove(entry.pci)
    else:
        in_doubt = free is None and node.ledger.is_in_doubt(entry.pci)
        node.ledger.write(replace(entry, addresses=(), ipam=None, in_doubt=in_doubt))
    return bool(free)


def _with_reservation(node: Node, entry: LedgerEntry) -> LedgerEntry:
    """Return a VF's entry with the largest min rate that its PF may have, which counts until the VF is restored.

    A server that was killed after raising the rate recorded it only in the pod's rates record. Without the pod record,
    which names the VFs, the largest rate in the rates record counts.
    """
    try:
        record = node.ledger.rates(entry.uid)
        if record is None:
            return entry
        by_pci = rates_by_pci(node.ledger.pod(entry.uid), record)
    except (OSError, RecordError):
        return entry
    rates = [by_pci[entry.pci]] if entry.pci in by_pci else record.rates.rates
    largest_mbps = max((vf_rates.min_tx_rate or 0 for vf_rates in rates), default=0)
    if largest_mbps <= entry.reserved_mbps:
        return entry
    return replace(entry, set=replace(entry.set, min_tx_rate=largest_mbps), share=False)


def _free_and_restore(node: Node, entry: LedgerEntry, *, same_boot: bool) -> bool | None:
    """Restore the state of a VF on the host; return whether the pod's processes have stopped using it.

    Return None if the VF may not be fully restored, because a process uses a device that a rebind would take away.
    Users are checked first, because a rebind creates a new netdev. An entry of an earlier boot is closed by a reset:
    what that boot found is not restored, and its processes ended with it.
    """
    try:
        pf, vf = node.sysfs.current_pf(entry.pci, entry.pf, entry.vf)
        entry = replace(entry, pf=pf, vf=vf)
        if not same_boot:
            original_settings.reset(node, entry)
            return True
        left_behind.remove_other_devices(node, entry)
        free = rdma_users.free_device(node.sysfs, entry, partial(original_settings.restore_unbound, node, entry))
        _restore(node, entry)
    except InUseError as error:
        _log.warning("vf stays unavailable", pci=entry.pci, pod=entry.pod, reason=str(error))
        return None
    except OSError as error:
        raise CniError(TRY_AGAIN, f"vf {entry.pci} cannot be restored", str(error)) from error
    return free


def _restore(node: Node, entry: LedgerEntry) -> None:
    """Restore a VF, and rebind its driver if something from the pod would stay; raise OSError or CniError."""
    was_rebound = left_behind.rebind_by_offer(node, entry)
    restore.restore(node, entry)
    kinds = left_behind.clear(node, entry)
    if kinds and not was_rebound:
        rebind(node, entry, "the pod left settings that cannot be restored", kinds=kinds)
        restore.restore(node, entry)
        kinds = left_behind.clear(node, entry)
    if kinds:
        _log.warning("vf's new netdev lacks settings of the host", pci=entry.pci, pod=entry.pod, kinds=kinds)


class _AddressReturn:
    """Release a VF's addresses in parallel with the other steps, from the moment when the pod cannot use them."""

    def __init__(self, pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        self._pool = pool
        self._work = work
        self._future: Future[None] | None = None

    def begin(self) -> "Future[None]":
        self._future = self._future or self._pool.submit(self._work)
        return self._future

    def finish(self) -> None:
        """Wait for the end of the work, and raise its error."""
        self.begin().result()


def _return_addresses(node: Node, entry: LedgerEntry, *, same_boot: bool) -> None:
    """Call the IPAM plugin's DEL; its failure does not matter if ADD got no addresses from it."""
    if entry.ipam is None:
        return
    try:
        path = entry.netns.path if same_boot else ""
        ipam.remove(entry.ipam, ipam.IpamCall(entry.container, path, "", node.run, entry.pci))
    except CniError as error:
        if entry.addresses:
            raise
        _log.warning("ipam plugin failed for a vf without addresses", pci=entry.pci, reason=str(error))
