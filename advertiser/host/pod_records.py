"""The VFs of the pods that the CRI shim has recorded on this node: a sandbox may be about to get them."""

from pathlib import Path

from mooring import podrecord
from mooring.files import read_file, record_paths
from mooring.podrecord import read_pod_record


def recorded_vfs(state: Path) -> frozenset[str]:
    """Return the PCI addresses; raise RecordError or OSError for a record that cannot be read."""
    found: set[str] = set()
    for path in record_paths(state / podrecord.FOLDER):
        text = read_file(path)
        if text is not None:
            record = read_pod_record(text, podrecord.pod_record_name(path.stem))
            found.update(vf.pci for vf in record.assignment.vfs)
    return frozenset(found)
