"""Which kernel the lab boots: the one that MOORING_LAB_KERNEL names, or that of the present sources. None is booted."""

import os
import subprocess
from pathlib import Path

import pytest

from bench.host.lab import find_lab

LAB = Path(__file__).parents[2] / "devcluster/lab"
# A stand-in for a kernel: the guest's output is its own path.
KERNEL = """#!/bin/sh
for word; do case $word in labshare=*) share=${word#*=} ;; esac; done
echo "$0" >$share/output; echo 0 >$share/status
"""


def make_kernel(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(KERNEL)
    path.chmod(0o755)
    return path


@pytest.fixture(name="own")
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the kernel of the present sources would be; there is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MOORING_LAB_KERNEL", raising=False)
    asked = subprocess.run([LAB / "build", "--path"], capture_output=True, text=True, check=True, timeout=60)
    return Path(asked.stdout.strip())


def boot(**more: str) -> "subprocess.CompletedProcess[str]":
    command, environment = (LAB / "run", "-"), os.environ | more
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_kernel_that_is_named_is_the_lab_without_one_of_the_present_sources(tmp_path: Path, own: Path) -> None:
    assert find_lab({}) is None
    named = make_kernel(tmp_path / "sid")
    assert find_lab({"MOORING_LAB_KERNEL": str(named)}) == LAB / "run"
    done = boot(MOORING_LAB_KERNEL=str(named))
    assert (done.returncode, done.stdout) == (0, f"{named}\n"), done.stderr
    assert not own.exists()


def test_without_a_name_it_is_that_of_the_present_sources(own: Path) -> None:
    make_kernel(own)
    assert find_lab({}) == LAB / "run"
    assert boot().stdout == f"{own}\n"


@pytest.mark.parametrize(
    ("named", "told"),
    [("", "MOORING_LAB_KERNEL is empty: it names a lab kernel"), ("/nowhere/linux", "no lab kernel at /nowhere/linux")],
)
def test_a_name_without_a_kernel_boots_no_other_and_skips_nothing(own: Path, named: str, told: str) -> None:
    """As when the build that should have printed the name failed."""
    make_kernel(own)
    assert find_lab({"MOORING_LAB_KERNEL": named}) == LAB / "run"
    done = boot(MOORING_LAB_KERNEL=named)
    assert done.returncode == 3
    assert told in done.stderr
    assert done.stdout == ""
