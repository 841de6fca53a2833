"""What devcluster's programs print and return when they cannot start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def start(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"devcluster.{program}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


@pytest.mark.parametrize(("program", "name"), [("controllers", "controllers"), ("runtime", "fake-runtime")])
def test_wrong_options_are_said_in_one_line(program: str, name: str, tmp_path: Path) -> None:
    """Exit status 2, as for wrong usage, and no traceback."""
    done = start(program, "--config", str(tmp_path / "none.yaml"))
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line) == (2, f"{name}: configuration file '{tmp_path}/none.yaml' does not exist")


@pytest.mark.parametrize("program", ["controllers", "kubelet"])
def test_a_kubeconfig_that_cannot_be_used_is_logged(program: str, tmp_path: Path) -> None:
    """The exit status is 1, with one event and no traceback."""
    done = start(program, "--kubeconfig", str(tmp_path / "none"))
    (event,) = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, event["program"], event["event"]) == (1, program, "ended")
    assert f"kubeconfig '{tmp_path}/none' cannot be used" in event["reason"]
