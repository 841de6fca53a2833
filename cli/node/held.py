"""Which pods of a host hold VFs, by the ledger of the CNI plugin."""

from collections.abc import Sequence
from pathlib import Path

from cli.node.look import below
from mooring.errors import RecordError
from mooring.files import read_file, record_paths
from mooring.records.ledger import ledger_name, read_ledger_entry

_VFS = "/var/lib/mooring/vfs"


def holders(root: Path) -> Sequence[str]:
    """Return a line for each VF that is not the host's: its pod and address, the address alone if that is not known."""
    return [_holder(path) for path in record_paths(below(root, _VFS))]


def _holder(path: Path) -> str:
    try:
        entry = read_ledger_entry(read_file(path) or "", ledger_name(path.stem))
    except (RecordError, OSError):
        return f"VF {path.stem}"
    return f"{entry.pod} has VF {entry.pci}"
