"""Whose the states of changed rates are: of this server, or of one before that an older one has followed."""

from importlib.metadata import version
from pathlib import Path

import pytest

from cni.server.extracts import make_folders
from cni.server.rates_states import RatesStates, take_over, was_in_force
from mooring.annotations.inventory import CNI
from mooring.records.rates_exchange import RatesState
from mooring.records.rates_server import claim_states, is_of_last_server
from mooring.records.run_folder import VERSIONS

STATE = {"u1": RatesState("ns/p", 1, in_force=True)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_folders(tmp_path)
    return tmp_path


def start(run: Path, server: str = "") -> None:
    """Start a server as `mooring-cni serve` does; one of an older version only says its own."""
    if not server:
        take_over(run)
    (run / VERSIONS / CNI).write_text(server or version("mooring"))


def test_the_first_server_of_a_boot_changes_rates(run: Path) -> None:
    """Nothing is known of any pod yet, and no older server has set anything."""
    assert is_of_last_server(run)
    start(run)
    assert is_of_last_server(run)


@pytest.mark.parametrize("before", ["", "a version before, which changed rates"])
def test_a_server_that_follows_one_that_changed_rates_goes_on_with_its_states(run: Path, before: str) -> None:
    """At no moment does the node seem to change none."""
    RatesStates().write(run, STATE)
    if before:
        claim_states(run, before)
    (run / VERSIONS / CNI).write_text(before or version("mooring"))
    assert is_of_last_server(run)
    start(run)
    assert (is_of_last_server(run), was_in_force(run, "u1", 1)) == (True, True)


def test_what_was_in_force_before_an_older_server_is_not_known(run: Path) -> None:
    """It has set the assignment's rates where a sandbox was made again: each VF is looked at once more."""
    start(run)
    RatesStates().write(run, STATE)
    start(run, "older")
    assert not is_of_last_server(run)
    start(run)
    assert not was_in_force(run, "u1", 1)
    assert not is_of_last_server(run)
    RatesStates().write(run, STATE)
    assert is_of_last_server(run)
