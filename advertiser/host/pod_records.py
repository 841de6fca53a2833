"""Read which VFs and GPUs the pods have that the CRI shim has recorded on this node."""

from collections.abc import Iterator
from pathlib import Path

import structlog

from advertiser.formats.extended_resources import HeldVf
from advertiser.inventory.facts import AssignedVfKey
from mooring.errors import ContractError, RecordError
from mooring.files import ForeignFileError
from mooring.folders import read_folder
from mooring.gpu.assignment import assigned_gpus
from mooring.records import pod_record
from mooring.records.pod_record import PodRecord, read_pod_record

_log = structlog.get_logger()


def recorded_vfs(state: Path) -> frozenset[str]:
    """Return the PCI addresses of all VFs in pod records, also of pods that do not have them yet.

    Raise RecordError or OSError.
    """
    found: set[str] = set()
    for _, record in _records(state):
        if isinstance(record, RecordError | OSError):
            raise record
        found.update(vf.pci for vf in record.assignment.vfs)
    return frozenset(found)


def assigned_vfs(records: Path) -> frozenset[AssignedVfKey]:
    """Return the VFs of the recorded pods, each by pod uid, PF, index and PCI address; raise OSError.

    A record that cannot be read is logged and skipped, so its VFs appear as held by that pod.
    """
    found: set[AssignedVfKey] = set()
    for name, record in _records(records):
        if isinstance(record, RecordError | OSError):
            _log.error("pod record cannot be read", path=str(records / pod_record.FOLDER / name), reason=str(record))
            continue
        found.update((record.assignment.uid, vf.pf, vf.vf, vf.pci) for vf in record.assignment.vfs)
    return frozenset(found)


def held_vfs(records: Path) -> frozenset[HeldVf] | None:
    """Return the VFs of the recorded pods; None if there are no records yet since boot. Raise OSError.

    A record that cannot be read is skipped; `assigned_vfs` logs it.
    """
    if not (records / pod_record.FOLDER).is_dir():
        return None
    readable = (record for _, record in _records(records) if isinstance(record, PodRecord))
    return frozenset(HeldVf(vf.pf, vf.pci, vf.min_tx_rate) for record in readable for vf in record.assignment.vfs)


def assigned_gpus_of(records: Path) -> frozenset[str]:
    """Return the PCI addresses of the recorded pods' GPUs; raise OSError.

    A record that cannot be read is skipped.
    """
    found: set[str] = set()
    for name, record in _records(records):
        try:
            gpus = assigned_gpus(record.assignment) if isinstance(record, PodRecord) else None
        except ContractError as error:
            _log.error("pod record cannot be read", path=str(records / pod_record.FOLDER / name), reason=str(error))
            continue
        found.update(gpus.units if gpus is not None else ())
    return frozenset(found)


def _records(records: Path) -> Iterator[tuple[str, PodRecord | RecordError | OSError]]:
    """Yield file name and record, or the error why it cannot be read; other files are skipped."""
    for name, text in read_folder(records / pod_record.FOLDER, pod_record.IS_NAME):
        if isinstance(text, str):
            yield name, _read(name, text)
        elif not isinstance(text, ForeignFileError):
            yield name, text


def _read(name: str, text: str) -> PodRecord | RecordError:
    try:
        return read_pod_record(text, f"{pod_record.FOLDER}/{name}")
    except RecordError as error:
        return error
