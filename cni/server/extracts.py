"""Create and maintain the folders that the server shares with the advertiser, which runs without root.

The server creates them at its start, because only it may give a folder to the advertiser's group. Later each program
that writes a record also writes its extract. If a program was killed in between, the reconciler updates the extract.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import structlog

from cni.vf.node import Node
from mooring.errors import RecordError
from mooring.files import ForeignFileError, make_folder, write_shared
from mooring.folders import read_folder
from mooring.locks import LockBusyError, hold
from mooring.records import extract, hardware_result, ledger, pod_record
from mooring.records.ledger import LedgerEntry
from mooring.records.run_folder import ADVERTISER, IN_PREPARATION, READERS, READY, VERSIONS, WITHOUT_GUID

_log = structlog.get_logger()
# The extract of an unreadable entry: it is unreadable too.
_UNREADABLE = ""


def make_folders(run: Path) -> None:
    """Create the folders and give them to the advertiser's group; raise OSError."""
    make_folder(run / extract.FOLDER, 0o750, READERS)
    for folder in (extract.VFS, extract.PODS, hardware_result.EXTRACT_FOLDER):
        make_folder(run / folder, 0o750, READERS)
    make_folder(run / ADVERTISER, 0o770, READERS)
    for public in (VERSIONS, Path(READY).parent, IN_PREPARATION, WITHOUT_GUID):
        make_folder(run / public, 0o755)


def show_recorded_pods(state: Path, run: Path) -> None:
    """Write the extracts of pods that were recorded before the folder for extracts existed."""
    for name, text in read_folder(state / pod_record.FOLDER, pod_record.IS_NAME):
        try:
            if isinstance(text, str):
                write_shared(run / extract.PODS / name, text)
        except OSError as error:
            _log.warning("cannot write the extract of a pod record", entry=name, reason=str(error))


def show_hardware_results(state: Path, run: Path) -> None:
    """Show what hardware tests of earlier boots have found; the test itself shows what it finds in this one."""
    for name, text in read_folder(state / hardware_result.FOLDER, hardware_result.IS_NAME):
        try:
            if isinstance(text, str):
                write_shared(run / hardware_result.EXTRACT_FOLDER / name, text)
        except OSError as error:
            _log.warning("cannot write the extract of a hardware test", entry=name, reason=str(error))


def mend(node: Node, entries: Mapping[str, LedgerEntry], unreadable: Collection[str]) -> None:
    """Update the extracts to the ledger's present entries; skip VFs that a call is working on, and will update."""
    folder = node.run / extract.VFS
    if not folder.is_dir():
        return
    target = {pci: extract.vf_extract(entry) for pci, entry in entries.items()}
    target |= {name.removesuffix(".json"): _UNREADABLE for name in unreadable if ledger.IS_NAME(name)}
    texts = read_folder(folder, ledger.IS_NAME)
    current = {name.removesuffix(".json"): text for name, text in texts if isinstance(text, str)}
    for pci in target.keys() | current.keys():
        if current.get(pci) != target.get(pci):
            _mend(node, pci)


def _mend(node: Node, pci: str) -> None:
    try:
        with hold(node.run, pci, limit_s=0):
            try:
                entry = node.ledger.read(pci)
            except (RecordError, ForeignFileError):
                node.ledger.show(pci, _UNREADABLE)
                return
            node.ledger.show(pci, None if entry is None else extract.vf_extract(entry))
    except (LockBusyError, OSError) as error:
        _log.debug("extract will be updated later", pci=pci, reason=str(error))
