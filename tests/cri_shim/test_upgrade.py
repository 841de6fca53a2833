"""The shim replaced under load by a real systemd of the test's own: `mooring-node upgrade` drops no call."""

import json
import subprocess
import sys

import pytest


@pytest.mark.root
@pytest.mark.systemd
def test_an_upgrade_drops_no_call_and_ends_the_old_process() -> None:
    """An ExecSync and an event stream are open meanwhile; afterwards the unit has one process, the new one."""
    flags = ("--json", "--only", "upgrade", "--rate", "50", "--seconds", "8")
    command = [sys.executable, "-m", "bench.shim_upgrade", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["calls"], seen["failed"], seen["unserved_s"]) == (400, {}, 0.0)
    assert (seen["exec_sync"], seen["stream"], seen["events_lost"]) == ("answered", "open", 0)
