"""Report faults that keep this node's pods from getting VFs, and foreign files in the record folders.

STATUS reports neither, because runtimes apply it to the network of all pods (`cni.cmd_status`).
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import structlog

from cni.server.inactive_ports import InactivePorts
from cni.server.metrics import Metrics
from cni.vf import own_ipam
from cni.vf.node import INIT_PENDING, Node, is_prepared
from mooring.annotations.inventory import NODE_PROGRAMS
from mooring.errors import RecordError
from mooring.files import is_text_of, write_shared
from mooring.folders import IsName, foreign_entries
from mooring.nic.pci import is_address
from mooring.records import (
    extract,
    hardware_result,
    ledger,
    pod_record,
    rates_exchange,
    rates_record,
    run_folder,
    sandbox_marks,
)
from mooring.records.vf_faults import NAME, ForeignEntry, VfFaults, dump_vf_faults

_log = structlog.get_logger()
_BLOCK = 4096
# The folder in which runtimes look for plugins by default.
_PLUGINS = Path("/opt/cni/bin")


class FaultReport:
    """Reports the faults of one node; ``node`` creates the Node for a check, ``ipam_files`` list its IPAM plugins."""

    def __init__(
        self, node: Callable[[], Node], metrics: Metrics, ipam_files: tuple[str, ...] | None, *, awaits_init: bool
    ) -> None:
        self._node = node
        self._metrics = metrics
        self._ipam_files = ipam_files
        self._awaits_init = awaits_init
        self._last_report = VfFaults()
        self._ports = InactivePorts()

    def run(self, stop: threading.Event, interval_s: float) -> None:
        """Check now, then every ``interval_s`` seconds until ``stop`` is set."""
        while not stop.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001 - the top of this loop: the next check may succeed
                _log.exception("checking for faults failed unexpectedly")
            stop.wait(interval_s)

    def look(self) -> None:
        """Check for faults once, and report them: metrics, log, and a file for the advertiser."""
        node = self._node()
        unavailable = "; ".join((*_folders(node), *_offer(node), *self._init_fault(node)))
        foreign = tuple(_foreign(node))
        ports = tuple(self._ports.find(node))
        report = VfFaults(unavailable, tuple(self._plugins()), foreign, len(foreign), ports)
        self._metrics.vf_faults(bool(unavailable) + len(report.faults), len(foreign), len(ports))
        if report != self._last_report:
            self._log_new(report)
        self._last_report = report
        path, text = node.run / NAME, dump_vf_faults(report)
        try:
            if path.parent.is_dir() and not is_text_of(path, text):
                write_shared(path, text)
        except OSError as error:
            _log.warning("cannot write the faults for the advertiser", reason=str(error))

    def _log_new(self, report: VfFaults) -> None:
        for fault in filter(None, (report.unavailable, *report.faults)):
            if fault not in (self._last_report.unavailable, *self._last_report.faults):
                _log.error("pods cannot get VFs", reason=fault)
        for port in report.inactive_ports:
            if port not in self._last_report.inactive_ports:
                labels = {"pod": port.pod, "uid": port.uid, "pci": port.pci, "pf": port.pf}
                _log.warning("port of a vf in a pod is not active", **labels, vf=port.vf, state=port.state)
        for entry in report.foreign:
            if entry not in self._last_report.foreign:
                _log.warning("foreign entry is ignored", path=entry.path, reason=entry.why)

    def _init_fault(self, node: Node) -> Iterator[str]:
        if self._awaits_init and not is_prepared(node):
            yield INIT_PENDING

    def _plugins(self) -> Iterator[str]:
        """Yield a text for each IPAM plugin in this node's own files that is not installed."""
        for kind in own_ipam.types(self._ipam_files or ()):
            if not (_PLUGINS / kind).is_file():
                yield f"ipam plugin {kind!r} is not in {str(_PLUGINS)!r}"


def _folders(node: Node) -> Iterator[str]:
    for name, folder in (("state", node.ledger.state), ("run", node.run)):
        try:
            _try_to_write(folder)
        except OSError as error:
            yield f"{name} folder {str(folder)!r} is not writable: {error.strerror}"


def _try_to_write(folder: Path) -> None:
    """Write a block to an unnamed file in the folder (or its nearest parent); raise OSError, also for a full disk."""
    nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
    with tempfile.TemporaryFile(dir=nearest, buffering=0) as probe:
        probe.write(bytes(_BLOCK))
        os.fsync(probe.fileno())


def _offer(node: Node) -> Iterator[str]:
    try:
        node.ledger.pf_offer("")
    except (RecordError, OSError) as unreadable:
        yield f"the node's offer cannot be read: {unreadable}"


def _foreign(node: Node) -> Iterator[ForeignEntry]:
    for folder, is_name in _record_folders(node).items():
        for name, reason in foreign_entries(folder, is_name).items():
            yield ForeignEntry(str(folder / name) if name else str(folder), reason)
    for name, error in node.ledger.content().unreadable.items():
        if name:
            yield ForeignEntry(str(node.ledger.state / ledger.FOLDER / name), str(error))


def _record_folders(node: Node) -> Mapping[Path, IsName]:
    """Return the folders of records, each with the check of its file names."""
    state, run = node.ledger.state, node.run
    return {
        state / ledger.FOLDER: ledger.IS_NAME,
        state / pod_record.FOLDER: lambda name: pod_record.IS_NAME(name) or pod_record.IS_NOTE(name),
        state / rates_record.FOLDER: rates_record.IS_NAME,
        state / hardware_result.FOLDER: hardware_result.IS_NAME,
        run / hardware_result.EXTRACT_FOLDER: hardware_result.IS_NAME,
        run / sandbox_marks.FOLDER: sandbox_marks.is_name,
        run / extract.VFS: ledger.IS_NAME,
        run / extract.PODS: pod_record.IS_NAME,
        run / rates_exchange.STATES: rates_record.IS_NAME,
        run / run_folder.VERSIONS: NODE_PROGRAMS.__contains__,
        run / run_folder.IN_PREPARATION: is_address,
        run / run_folder.WITHOUT_GUID: is_address,
    }
