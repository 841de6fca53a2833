"""mooring-init.service, its path and its udev rule, under a real systemd and udevd on the lab kernel."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.systemd, pytest.mark.udev]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
SCENARIO = Path(__file__).parent / "inside/init_scenario.py"


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_vfs_come_back_after_their_pfs_driver_was_reloaded(lab: Lab) -> None:
    """Without anything but systemd and udevd, also those of which the ledger has an entry; by three tries at most."""
    done = lab(f"PYTHONPATH=. {sys.executable} {SCENARIO}", timeout_s=580)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"seen"')))["seen"]
    assert seen["without_offer"] == [0, 0]
    assert seen["handed_over"] == [0, [2, 2]]
    assert seen["unbound"] == [-1, 2]
    assert seen["reloaded"] == [[2, 2], "inactive", True]
    vfs, runs = seen["both"]
    assert (vfs, runs in (1, 2)) == ([2, 2], True)
    assert seen["many"] == [[2, 2], "active"]
    status, said = seen["late_offer"]
    assert (status, "mooring-init.service: pfs[0] of the offer has init" in said) == (1, True)
    assert seen["third_try"] == [3, "inactive"]
