"""Read the CNI server's reports about changed rates of this node's pods."""

from collections.abc import Mapping
from pathlib import Path

import structlog

from mooring.errors import RecordError
from mooring.folders import read_folder
from mooring.records.rates_exchange import STATES, RatesState, read_state
from mooring.records.rates_record import IS_NAME

_log = structlog.get_logger()


def read_rates_states(run: Path) -> Mapping[str, RatesState] | None:
    """Return the reported states by pod uid, None if no server has reported since boot; raise OSError.

    Rates whose state cannot be read count as not in force.
    """
    folder = run / STATES
    if not folder.is_dir():
        return None
    found: dict[str, RatesState] = {}
    for name, text in read_folder(folder, IS_NAME):
        try:
            if isinstance(text, OSError):
                raise text
            found[name.removesuffix(".json")] = read_state(text, name)
        except (RecordError, OSError) as error:
            _log.error("state of changed rates cannot be read", path=str(folder / name), reason=str(error))
    return found
