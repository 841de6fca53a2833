"""The VFs of the pods that the CRI shim has recorded on this node."""

from collections.abc import Iterator
from pathlib import Path

import structlog

from advertiser.formats.extended_resources import HeldVf
from advertiser.inventory.facts import AssignedVfKey
from mooring.errors import ContractError, RecordError
from mooring.files import read_file, record_paths
from mooring.gpu.assignment import assigned_gpus
from mooring.records import pod_record
from mooring.records.pod_record import PodRecord, read_pod_record

_log = structlog.get_logger()


def recorded_vfs(state: Path) -> frozenset[str]:
    """Return the PCI addresses: a sandbox may be about to get them. Raise RecordError or OSError."""
    return frozenset(vf.pci for path in _paths(state) if (record := _read(path)) for vf in record.assignment.vfs)


def assigned_vfs(records: Path) -> frozenset[AssignedVfKey]:
    """Return the VFs of the pods that are to run here, by all of their names.

    A record that cannot be read explains no VF: its VFs show up as held by that pod. Raise OSError.
    """
    found: set[AssignedVfKey] = set()
    for path in _paths(records):
        try:
            record = _read(path)
        except RecordError as broken:
            _log.error("pod record cannot be read", path=str(path), reason=str(broken))
            continue
        if record is not None:
            found.update((record.assignment.uid, vf.pf, vf.vf, vf.pci) for vf in record.assignment.vfs)
    return frozenset(found)


def held_vfs(records: Path) -> frozenset[HeldVf] | None:
    """Return the VFs of the pods that are to run here, None where nobody has recorded any yet since the boot.

    A record that cannot be read counts as nothing. Raise OSError.
    """
    if not (records / pod_record.FOLDER).is_dir():
        return None
    found: set[HeldVf] = set()
    for path in _paths(records):
        try:
            record = _read(path)
        except RecordError:
            # Told by `assigned_vfs`.
            continue
        if record is not None:
            found.update(HeldVf(vf.pf, vf.pci, vf.min_tx_rate) for vf in record.assignment.vfs)
    return frozenset(found)


def assigned_gpus_of(records: Path) -> frozenset[str]:
    """Return the PCI addresses of the GPUs of the pods that are to run here; raise OSError."""
    found: set[str] = set()
    for path in _paths(records):
        try:
            record = _read(path)
            gpus = None if record is None else assigned_gpus(record.assignment)
        except ContractError as broken:
            _log.error("pod record cannot be read", path=str(path), reason=str(broken))
            continue
        found.update(gpus.units if gpus is not None else ())
    return frozenset(found)


def _paths(records: Path) -> Iterator[Path]:
    return record_paths(records / pod_record.FOLDER)


def _read(path: Path) -> PodRecord | None:
    text = read_file(path)
    return None if text is None else read_pod_record(text, pod_record.pod_record_name(path.stem))
