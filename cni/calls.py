"""Answer one CNI call: the same code in the warm server and in a single process of its own."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from cni import netns
from cni.attach import attach
from cni.conf import Conf, read_conf
from cni.giveback import RETURNS_S, Node, give_back
from cni.ledger import Ledger
from cni.plan import chosen, entitled
from cni.result import Attached, add_result, passed_on
from cni.skel import (
    IO_FAILURE,
    REFUSED,
    TRY_AGAIN,
    Call,
    CniError,
    check_version,
    error_answer,
    read_call,
    version_answer,
    version_of,
)
from cni.sysfs import Sysfs
from mooring.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.ledger import LedgerEntry
from mooring.locks import LockBusyError, hold, hold_all
from mooring.podrecord import PodRecord
from mooring.vfport import VfPort

_log = structlog.get_logger()
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes to standard output, the exit status (0 or 1), and the error code in the text (0: none)."""

    text: str
    status: int
    code: int = 0


def answer(
    environment: Mapping[str, str], stdin: bytes, port: Callable[[], VfPort], defaults: Mapping[str, str] | None = None
) -> Answer:
    """Answer a call; whatever goes wrong is an error object of the specification.

    ``defaults`` are the node's own folders and name, for what the network configuration leaves out.
    """
    version = ""
    try:
        call = read_call(environment, stdin)
        version = version_of(call.conf)
        return Answer(_dispatch(call, version, port, defaults or {}), 0)
    except CniError as refused:
        return _refusal(refused, version)
    except (LockBusyError, RecordError) as refused:
        code = REFUSED if isinstance(refused, RecordError) else TRY_AGAIN
        return _refusal(CniError(code, str(refused)), version)
    except Exception as broken:  # noqa: BLE001 - the top of the program: the runtime reads JSON, never a traceback
        _log.exception("call failed unexpectedly")
        return _refusal(CniError(IO_FAILURE, f"{type(broken).__name__}: {broken}"), version)


def _refusal(error: CniError, version: str) -> Answer:
    _log.warning("call refused", code=error.code, reason=str(error))
    return Answer(error_answer(error, version or version_of({})), 1, error.code)


def _dispatch(call: Call, version: str, port: Callable[[], VfPort], defaults: Mapping[str, str]) -> str:
    if call.command == "VERSION":
        return version_answer(call.conf)
    check_version(call.command, call.conf)
    conf = read_conf(call, {**defaults, **call.conf}, version)
    node = Node(Sysfs(Path(conf.sysfs)), Ledger(Path(conf.state)), Path(conf.run), port(), BOOT_ID.read_text().strip())
    if call.command == "DEL":
        delete(node, call.container)
        return ""
    return json.dumps(_add(node, call, conf))


def _add(node: Node, call: Call, conf: Conf) -> dict[str, object]:
    uid = call.args.get("K8S_POD_UID", "")
    record = entitled(call, conf, node.ledger.pod(uid) if uid else None)
    vfs = chosen(record, conf) if record is not None else ()
    if record is None or not vfs:
        return passed_on(conf.previous, conf.version)
    attached = _take_and_attach(node, call, conf, record, vfs)
    _log.info("vfs attached", pod=record.pod, uid=uid, container=call.container, vfs={vf.pci: vf.pf for vf in vfs})
    return add_result(conf.previous, conf.version, call.netns or "", attached)


def _take_and_attach(
    node: Node, call: Call, conf: Conf, record: PodRecord, vfs: Sequence[AssignedVf]
) -> list[Attached]:
    """Wait until no other sandbox has one of the VFs, then attach them; raise CniError 11 naming the holder."""
    pcis = [vf.pci for vf in vfs]
    deadline = time.monotonic() + conf.hold_s
    while True:
        with hold_all(node.run, pcis, _LOCK_S):
            holder = _free_what_can_be_freed(node, call, pcis)
            if holder is None:
                return attach(node, call, conf, record, vfs)
        if time.monotonic() >= deadline:
            what = f"vf {holder.pci} is still held by pod {holder.pod!r} (uid {holder.uid}, {holder.phase})"
            raise CniError(TRY_AGAIN, what)
        time.sleep(_POLL_S)


def _free_what_can_be_freed(node: Node, call: Call, pcis: Sequence[str]) -> LedgerEntry | None:
    """Give back what this sandbox or a dead one left; return the entry of a VF that a live one has, if any."""
    for pci in pcis:
        entry = node.ledger.read(pci)
        if entry is None:
            continue
        same_boot = entry.boot == node.boot
        alive = same_boot and (netns.is_same(entry.netns.path, entry.netns.cookie) or not _is_home(node, entry))
        if alive and entry.container != call.container:
            return entry
        give_back(node, entry)
    return None


def _is_home(node: Node, entry: LedgerEntry) -> bool:
    """Say whether a VF whose namespace has no path any more has come back: a process may still keep it there."""
    return not node.sysfs.exists(entry.pci) or node.sysfs.await_netdev(entry.pci, RETURNS_S) is not None


def delete(node: Node, container: str) -> None:
    """Give back every VF that the ledger gives to this sandbox; raise the last CniError after trying all."""
    failure: CniError | None = None
    for listed in [entry for entry in node.ledger.entries() if entry.container == container]:
        with hold(node.run, listed.pci, _LOCK_S):
            entry = node.ledger.read(listed.pci)
            if entry is None or entry.container != container:
                continue
            try:
                give_back(node, entry)
                _log.info("vf given back", pod=entry.pod, uid=entry.uid, pci=entry.pci)
            except CniError as stuck:
                failure = stuck
            except OSError as stuck:
                failure = CniError(TRY_AGAIN, f"vf {entry.pci} cannot be given back", str(stuck))
    if failure is not None:
        raise failure
