"""Which InfiniBand VFs could not be given a GUID in this boot: a file for each below the run folder, by PCI address.

`init` and mooring-cni write it when they fail and remove it when they succeed. The text is the reason. The advertiser
lists such a VF as out as long as its node GUID reads zero.
"""

from collections.abc import Mapping
from pathlib import Path

import structlog

from mooring.files import make_folder, remove_file, write_shared
from mooring.folders import read_folder
from mooring.nic.pci import is_address
from mooring.records.run_folder import WITHOUT_GUID

_log = structlog.get_logger()
_LONGEST = 150


def note(run: Path, pci: str, failure: str | None) -> None:
    """Record why a VF could not be given a GUID, or with None that it has one; log what cannot be recorded."""
    path = run / WITHOUT_GUID / pci
    try:
        if failure is None:
            if path.exists():
                remove_file(path)
            return
        make_folder(path.parent, 0o755)
        write_shared(path, failure[:_LONGEST], mode=0o644)
    except OSError as error:
        _log.warning("cannot record which vfs have no guid", pci=pci, reason=str(error))


def read_guid_failures(run: Path) -> Mapping[str, str]:
    """Return the reasons by PCI address; raise OSError for a folder that cannot be read."""
    return {pci: text for pci, text in read_folder(run / WITHOUT_GUID, is_address) if isinstance(text, str) and pci}
