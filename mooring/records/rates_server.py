"""Record whether a node's CNI server changes rates: ``extract/rates-server`` in the run folder.

The file has the version of the server that wrote the states of rates there (`mooring.records.rates_exchange`). After a
downgrade, a server of an earlier version changes neither the file nor the states, and sets the assignment's rates
whenever it recreates a sandbox. But each server writes its own version into the run folder, which then differs.
"""

from pathlib import Path

from mooring.annotations.inventory import CNI
from mooring.files import ForeignFileError, is_text_of, read_record, remove_file, write_shared
from mooring.records import extract
from mooring.records.run_folder import VERSIONS

SERVER = f"{extract.FOLDER}/rates-server"


def is_of_last_server(run: Path) -> bool:
    """Return whether the last server started in this boot changes rates; True if none has started."""
    try:
        last_version = read_record(run / VERSIONS / CNI)
    except ForeignFileError:
        return False
    return last_version is None or is_text_of(run / SERVER, last_version)


def claim_states(run: Path, version: str) -> None:
    """Record that the server with this version has written the states; raise OSError."""
    if not is_text_of(run / SERVER, version):
        write_shared(run / SERVER, version)


def disclaim_states(run: Path) -> None:
    """Record that no server owns the states; raise OSError."""
    remove_file(run / SERVER)
