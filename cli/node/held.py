"""List the pods of a host that hold VFs, from the CNI plugin's ledger."""

from collections.abc import Sequence
from pathlib import Path

from cli.node.look import below
from mooring.errors import RecordError
from mooring.folders import read_folder
from mooring.records.ledger import FOLDER, IS_NAME, read_ledger_entry

_VFS = "/var/lib/mooring/vfs"


def holders(root: Path) -> Sequence[str]:
    """Return a line for each held VF: its pod and PCI address, or only the address if the entry cannot be read."""
    return [_holder(name, text) for name, text in read_folder(below(root, _VFS), IS_NAME)]


def _holder(name: str, text: str | OSError) -> str:
    try:
        if isinstance(text, OSError):
            raise text
        entry = read_ledger_entry(text, f"{FOLDER}/{name}")
    except (RecordError, OSError):
        return f"VF {name.removesuffix('.json')}"
    return f"{entry.pod} has VF {entry.pci}"
