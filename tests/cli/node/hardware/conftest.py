"""Pods with a stand-in for perftest: network namespaces without any way between them, as on InfiniBand."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.node.hardware.pods import Folders, Pod
from cli.node.hardware.traffic.endpoints import Endpoint
from mooring.annotations.assignment import AssignedVf
from mooring.nic.settings import VfSettings

FAKE = Path(__file__).with_name("fake_perftest.py")
VF = AssignedVf("ib0", 2, "0000:3b:01.2", "infiniband", "default", VfSettings())


@pytest.fixture
def rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on the PATH; the file has its rate in Mb/s."""
    program = tmp_path / "bin" / "ib_write_bw"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    path = tmp_path / "rate"
    path.write_text("97000")
    monkeypatch.setenv("FAKE_RATE", str(path))
    return path


@pytest.fixture
def ends() -> Iterator[list[Endpoint]]:
    """Make four pods: each has its loopback interface, and no other."""
    names = [f"mooring-perftest-{os.getpid()}-{number}" for number in range(4)]
    with ExitStack() as stack:
        for name in names:
            subprocess.run(("ip", "netns", "add", name), check=True)
            stack.callback(subprocess.run, ("ip", "netns", "delete", name), check=True)
            subprocess.run(("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up"), check=True)
        yield [Endpoint(Pod(name, VF, Folders()), f"mlx5_{number}", 3) for number, name in enumerate(names)]
