"""`python -m bench.fleet`: its small part, and with --long all of it, with three releases of containerd."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.built_release import built_release

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

_RUNTIMES = ("1.6", "1.7", "2")


def run(*flags: str) -> str:
    done = subprocess.run([sys.executable, "-m", "bench.fleet", *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_fleet_survives_a_full_disk_a_reboot_a_wrong_offer_and_kills_and_nothing_is_left(
    request: pytest.FixtureRequest,
) -> None:
    """Three hosts, one of each misfortune: files and units are as before at the end, pods' VFs were not touched."""
    seed = request.config.getoption("--seed") or 0
    assert "hosts are as before" in run("--hosts=3", "--kills=2", "--at-once=2", f"--seed={seed}")


@pytest.fixture
def releases(request: pytest.FixtureRequest) -> list[Path]:
    """The releases of this commit and of the one before it; skips the test without --long."""
    if not request.config.getoption("--long"):
        pytest.skip("runs with --long")
    return [built_release("HEAD~1"), built_release()]


@pytest.mark.containerd
@pytest.mark.wheels
@pytest.mark.kubectl
@pytest.mark.recent_kubectl
@pytest.mark.timeout(5400)
def test_a_fleet_whose_pods_have_vfs_of_three_containerds_is_upgraded_and_returned(releases: list[Path]) -> None:
    """Through the installer's pods: pods keep running with their devices, and no kubelet restarts more than once."""
    printed = run("--hosts=20", "--containerd", *_RUNTIMES, "--releases", *map(str, releases))
    assert "hosts are as before" in printed
    assert printed.count("pods with VFs came and went") == len(("upgrade", "return"))
