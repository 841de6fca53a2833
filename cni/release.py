"""DEL and GC: give back what the ledger gives to a sandbox, and what it should have given to it.

The assignment is no input here: a finished pod's sandbox may be removed days later, when its VF is another pod's. What
counts is who the ledger says has a VF, and what lies in the sandbox's own namespace.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from cni import ipam, stray
from cni.conf import Conf
from cni.giveback import give_back
from cni.node import Node
from cni.skel import BAD_CONFIG, TRY_AGAIN, Call, CniError
from mooring.errors import RecordError
from mooring.ledger import LedgerEntry
from mooring.locks import hold

_log = structlog.get_logger()
_LOCK_S = 30.0
_AT_ONCE = 8


def delete(node: Node, call: Call, conf: Conf) -> None:
    """Give back every VF of a sandbox, or of one network in it; raise the last CniError after trying all."""
    stray.enter(node, call, conf)
    _give_back_all(node, node.ledger.entries(call.container), lambda entry: _is_of(entry, call, conf))


def collect(node: Node, call: Call, conf: Conf) -> None:
    """GC: give back every VF of this configuration whose attachment the runtime does not name any more.

    A plugin for addresses is told the interfaces that are left by the names that it knows: each VF's own.
    """
    if not conf.collects:
        return
    valid = conf.valid
    if valid is None:
        raise CniError(BAD_CONFIG, "configuration field 'cni.dev/valid-attachments' is missing: GC would take every VF")
    failures: list[CniError] = []
    try:
        _give_back_all(node, node.ledger.entries(), lambda entry: _is_stale(entry, conf, valid))
    except CniError as failed:
        failures.append(failed)
    attachments = [
        {"containerID": entry.container, "ifname": entry.ipam.ifname}
        for entry in node.ledger.entries()
        if entry.ipam is not None and _is_ours(entry, conf)
    ]
    for asked in conf.every_ipam():
        told = conf.delegated(asked) | {"cniVersion": conf.version, "cni.dev/valid-attachments": attachments}
        try:
            ipam.tell("GC", told, call.path)
        except CniError as failed:
            failures.append(failed)
    if failures:
        raise CniError(failures[0].code, "; ".join(str(failure) for failure in failures))


def _give_back_all(node: Node, entries: Iterable[LedgerEntry], wanted: Callable[[LedgerEntry], bool]) -> None:
    """Give VFs back side by side: one that a process will not let go of takes seconds."""
    pcis: list[str] = []
    failures: list[CniError] = []
    try:
        # What came before the error stays.
        pcis.extend(entry.pci for entry in entries if wanted(entry))
    except OSError as unknown:
        failures.append(CniError(TRY_AGAIN, "the ledger cannot be read whole", str(unknown)))
    with ThreadPoolExecutor(_AT_ONCE, "give back") as returns:
        tried = returns.map(lambda pci: _try_one(node, pci, wanted), pcis)
        failures += [failure for failure in tried if failure is not None]
    if failures:
        raise failures[-1]


def _try_one(node: Node, pci: str, wanted: Callable[[LedgerEntry], bool]) -> CniError | None:
    """Give a VF back if it is still wanted when its lock is ours; return why it could not be done."""
    try:
        with hold(node.run, pci, _LOCK_S):
            entry = node.ledger.read(pci)
            if entry is not None and wanted(entry):
                _give_back(node, entry)
    except RecordError as unreadable:
        _log.error("ledger entry is passed over", reason=str(unreadable))
    except CniError as stuck:
        return stuck
    except OSError as stuck:
        return CniError(TRY_AGAIN, f"vf {pci} cannot be given back", str(stuck))
    return None


def _give_back(node: Node, entry: LedgerEntry) -> None:
    free = give_back(node, entry)
    event = _log.bind(pod=entry.pod, uid=entry.uid, pci=entry.pci, container=entry.container)
    if free:
        event.info("vf given back")
    else:
        event.warning("vf is restored but not free yet", reason="a process still has its RDMA device")


def _is_of(entry: LedgerEntry, call: Call, conf: Conf) -> bool:
    """Say whether a sandbox's DEL is for a VF: one of a delegate's network where the configuration names a network."""
    of_network = conf.network is None or entry.attachment is None or entry.attachment.network == conf.network
    return entry.container == call.container and of_network


def _is_ours(entry: LedgerEntry, conf: Conf) -> bool:
    """Say whether a VF was attached by this configuration; an entry that does not say so counts as ours."""
    return entry.attachment is None or entry.attachment.name == conf.name


def _is_stale(entry: LedgerEntry, conf: Conf, valid: frozenset[tuple[str, str]]) -> bool:
    by = entry.attachment
    if by is None or by.name != conf.name or (conf.network is not None and by.network != conf.network):
        return False
    return (entry.container, by.ifname) not in valid
