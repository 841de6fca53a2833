"""Whether the CNI server of a node changes rates: ``extract/rates-server`` in the run folder.

It has the version of the server that the states of rates there (`mooring.records.rates_exchange`) are of. A server of
an earlier version, which an operator has gone back to, leaves both as they are and sets the assignment's rates whenever
a sandbox is made again; but each server writes its version into the run folder, and that is another one then.
"""

from pathlib import Path

from mooring.annotations.inventory import CNI
from mooring.files import ForeignFileError, is_text_of, read_record, remove_file, write_shared
from mooring.records import extract
from mooring.records.run_folder import VERSIONS

SERVER = f"{extract.FOLDER}/rates-server"


def is_of_last_server(run: Path) -> bool:
    """Return whether the server that started last in this boot changes rates; true before any has started."""
    try:
        started = read_record(run / VERSIONS / CNI)
    except ForeignFileError:
        return False
    return started is None or is_text_of(run / SERVER, started)


def claim_states(run: Path, version: str) -> None:
    """Say that the states are those of the server of a version; raise OSError."""
    if not is_text_of(run / SERVER, version):
        write_shared(run / SERVER, version)


def disclaim_states(run: Path) -> None:
    """Say that the states are nobody's; raise OSError."""
    remove_file(run / SERVER)
