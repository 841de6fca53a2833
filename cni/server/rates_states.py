"""Show the advertiser which changed rates are in force (`mooring.records.rates_exchange`)."""

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
    """Take over the states of the server before, which was of this boot; raise OSError.

    Those that an older one has gone past are not true any more: then nothing is known until `RatesStates.write`. To be
    called before this server's own version is written.
    """
    if is_of_last_server(run):
        claim_states(run, version("mooring"))
    else:
        disclaim_states(run)
        shutil.rmtree(run / STATES, ignore_errors=True)


class RatesStates:
    """The states in the run folder; keeps what it has written, so that nothing is written twice."""

    def __init__(self) -> None:
        self._written: Mapping[str, RatesState] | None = None
        self._refused = ""

    def write(self, run: Path, states: Mapping[str, RatesState]) -> None:
        """Make the files these; a failure is logged once, and the next call tries again."""
        folder = run / STATES
        if self._written == states and folder.is_dir():
            return
        try:
            if folder.is_dir():
                _replace(folder, states)
            elif folder.parent.is_dir():
                _make(folder, states)
            else:
                return
            claim_states(run, version("mooring"))
        except OSError as refused:
            if str(refused) != self._refused:
                _log.error("cannot write the states of rates for the advertiser", reason=str(refused))
            self._refused = str(refused)
            return
        self._written, self._refused = dict(states), ""


def was_in_force(run: Path, uid: str, generation: int) -> bool:
    """Return whether an earlier server of this boot has put a generation in force: it stays so."""
    name = f"{uid}.json"
    try:
        text = read_record(run / STATES / name)
        state = None if text is None else read_state(text, name)
    except (RecordError, OSError):
        return False
    return state is not None and state.in_force and state.generation == generation


def _make(folder: Path, states: Mapping[str, RatesState]) -> None:
    """Make the folder with all that is in it at once: a reader takes its absence for ignorance."""
    unnamed = folder.with_name(f".{folder.name}")
    shutil.rmtree(unnamed, ignore_errors=True)
    make_folder(unnamed, 0o750, READERS)
    for uid, state in states.items():
        write_shared(unnamed / f"{uid}.json", dump_state(state))
    unnamed.rename(folder)


def _replace(folder: Path, states: Mapping[str, RatesState]) -> None:
    for name in record_names(folder, IS_NAME):
        if name.removesuffix(".json") not in states:
            (folder / name).unlink(missing_ok=True)
    for uid, state in states.items():
        path, text = folder / f"{uid}.json", dump_state(state)
        if not is_text_of(path, text):
            write_shared(path, text)
