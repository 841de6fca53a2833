"""The unit under a real systemd of the test's own: what confines it leaves it what it needs."""

import json
import subprocess
import sys

import pytest


@pytest.mark.root
@pytest.mark.systemd
def test_a_shim_that_is_stopped_is_bypassed_and_has_the_kubelet_back() -> None:
    """A kubelet with one connection has its calls answered again within half a minute, and is not restarted."""
    flags = ("--json", "--only", "fail", "--rate", "20", "--seconds", "45")
    command = [sys.executable, "-m", "bench.shim_upgrade", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["calls"] == 900
    failed = sum(seen["failed"].values())
    assert 0 < failed < 20 * 30, seen
