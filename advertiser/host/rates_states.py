"""What the CNI server says of the changed rates of this node's pods."""

from collections.abc import Mapping
from pathlib import Path

import structlog

from mooring.errors import RecordError
from mooring.files import read_file, record_paths
from mooring.records.rates_exchange import STATES, RatesState, read_state

_log = structlog.get_logger()


def read_rates_states(run: Path) -> Mapping[str, RatesState] | None:
    """Return the states by pod uid, None where no server has shown them since the boot; raise OSError.

    One that cannot be read counts as not in force.
    """
    folder = run / STATES
    if not folder.is_dir():
        return None
    found: dict[str, RatesState] = {}
    for path in record_paths(folder):
        try:
            text = read_file(path)
            if text is not None:
                found[path.stem] = read_state(text, path.name)
        except RecordError as broken:
            _log.error("state of changed rates cannot be read", path=str(path), reason=str(broken))
    return found
