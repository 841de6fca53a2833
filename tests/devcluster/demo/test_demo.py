"""The demonstration itself, as `./run demo` starts it: every promise held, exit status 0."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)
DEMO = (sys.executable, "-m", "devcluster.demo")
ROOT = Path(__file__).parents[3]


def play(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=550, cwd=ROOT)


@pytest.mark.containerd
@pytest.mark.slow
def test_every_promise_holds_with_containerd() -> None:
    """The demonstration runs three hosts with real containerd and runc behind the shim."""
    done = play(*DEMO, "--runtime", "containerd")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "all 9 promises held" in done.stdout
    assert "GPUs other than decided, or not below one switch with their VF: 0 (looked at 2)" in done.stdout


@pytest.mark.root
def test_every_promise_holds_with_the_fake_runtime() -> None:
    """The demonstration runs without containerd."""
    done = play(*DEMO, "--runtime", "small")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


@pytest.mark.root
@pytest.mark.slow
def test_every_promise_holds_in_a_user_namespace() -> None:
    """The demonstration runs without root, where the kernel allows user namespaces."""
    inside = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh", *DEMO)
    done = play("unshare", "--user", "--map-root-user", "--net", "--mount", "--", *inside)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
