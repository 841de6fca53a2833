"""The shim's systemd unit as it is shipped, run by a real systemd on the lab kernel."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.systemd]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
SCENARIO = Path(__file__).parent / "inside/systemd_scenario.py"


@pytest.mark.slow
def test_systemd_keeps_the_shim_and_starts_it_before_the_kubelet(lab: Lab) -> None:
    """Killed or hanging it comes back, ready for a kubelet that starts with it; it holds no capability.

    A reload makes another process the main one; one that fails leaves all as it was; a stop ends every process.
    """
    done = lab(f"PYTHONPATH=. {sys.executable} {SCENARIO}", timeout_s=280)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"kubelet"')))
    assert seen["kubelet"] == "answered"
    assert len(set(seen["pids"])) == 3
    assert seen["restarts"] == "2"
    assert int(seen["capabilities"], 16) == 0
    assert (seen["socket_mode"], seen["state_mode"]) == ("0o600", "0o700")
    assert seen["reload"] == [0, "", True, True]
    assert seen["wrong_reload"] == [1, True, True]
    assert seen["state_then"] == "active"
    assert seen["processes_left"] == ""
    assert (seen["result"], seen["socket_left"], seen["run_left"]) == ("success", False, True)
