"""A small part of `python -m bench.fleet`: three hosts, one of each misfortune, installers killed by chance."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def test_a_fleet_survives_a_full_disk_a_reboot_a_wrong_offer_and_kills_and_nothing_is_left(
    request: pytest.FixtureRequest,
) -> None:
    """Its hosts' files and units are as before once it is removed; pods with VFs were not touched meanwhile."""
    seed = request.config.getoption("--seed") or 0
    command = [sys.executable, "-m", "bench.fleet", "--hosts=3", "--kills=2", "--at-once=2", f"--seed={seed}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hosts are as before" in done.stdout
