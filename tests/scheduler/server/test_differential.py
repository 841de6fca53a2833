"""A few random pods, decided about by ours and by a real kube-scheduler; `bench.differential` takes many more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.apiserver
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("flags", [(), ("--self",)], ids=["ours", "kube-scheduler itself"])
def test_random_pods_are_decided_about_as_by_kube_scheduler(flags: tuple[str, ...]) -> None:
    """Bound where it can be, for the same victims, or waiting for the same reasons."""
    if not (Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kube-scheduler").exists():
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-scheduler")
    command = [sys.executable, "-m", "bench.differential", "--seed", "1", "--cases", "12", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 1: 12 cases, " in done.stdout
    assert "0 not decided; 0 differences" in done.stdout
