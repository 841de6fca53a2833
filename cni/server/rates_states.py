"""Write for the advertiser which changed rates are in force (`mooring.records.rates_exchange`)."""

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import structlog

from mooring.errors import RecordError
from mooring.files import is_text_of, make_folder, read_record, write_shared
from mooring.folders import record_names
from mooring.records.rates_exchange import STATES, RatesState, dump_state, read_state
from mooring.records.rates_record import IS_NAME
from mooring.records.rates_server import claim_states, disclaim_states, is_of_last_server
from mooring.records.run_folder import READERS

_log = structlog.get_logger()


def take_over(run: Path) -> None:
    """Take over the states that the previous server of this boot wrote; raise OSError.

    If a server of an older version ran in between, the states may be wrong and are removed; nothing is known then until
    `RatesStates.write`. Call this before this server writes its own version.
    """
    if is_of_last_server(run):
        claim_states(run, version("mooring"))
    else:
        disclaim_states(run)
        shutil.rmtree(run / STATES, ignore_errors=True)


class RatesStates:
    """Writes the states to the run folder, and remembers them so that it does not write the same twice."""

    def __init__(self) -> None:
        self._last_states: Mapping[str, RatesState] | None = None
        self._last_error = ""

    def write(self, run: Path, states: Mapping[str, RatesState]) -> None:
        """Write the states by pod uid; log a failure once, and try again at the next call."""
        folder = run / STATES
        if self._last_states == states and folder.is_dir():
            return
        try:
            if folder.is_dir():
                _replace(folder, states)
            elif folder.parent.is_dir():
                _make(folder, states)
            else:
                return
            claim_states(run, version("mooring"))
        except OSError as error:
            if str(error) != self._last_error:
                _log.error("cannot write the states of rates for the advertiser", reason=str(error))
            self._last_error = str(error)
            return
        self._last_states, self._last_error = dict(states), ""


def was_in_force(run: Path, uid: str, generation: int) -> bool:
    """Return whether an earlier server of this boot put a generation in force, which then stays in force."""
    name = f"{uid}.json"
    try:
        text = read_record(run / STATES / name)
        state = None if text is None else read_state(text, name)
    except (RecordError, OSError):
        return False
    return state is not None and state.in_force and state.generation == generation


def _make(folder: Path, states: Mapping[str, RatesState]) -> None:
    """Create the folder with all its files at once: to readers, a missing folder means that nothing is known."""
    temporary = folder.with_name(f".{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    make_folder(temporary, 0o750, READERS)
    for uid, state in states.items():
        write_shared(temporary / f"{uid}.json", dump_state(state))
    temporary.rename(folder)


def _replace(folder: Path, states: Mapping[str, RatesState]) -> None:
    for name in record_names(folder, IS_NAME):
        if name.removesuffix(".json") not in states:
            (folder / name).unlink(missing_ok=True)
    for uid, state in states.items():
        path, text = folder / f"{uid}.json", dump_state(state)
        if not is_text_of(path, text):
            write_shared(path, text)
