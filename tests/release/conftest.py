"""Two releases of this repository's commit, made at different places under different circumstances."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from release import cache
from release.locked import REPOSITORY


@dataclass(frozen=True, slots=True)
class Releases:
    """Two folders that should hold the same."""

    first: Path
    second: Path


def make(out: Path, *flags: str, **circumstances: str) -> "subprocess.CompletedProcess[str]":
    """Run `./run release` without its set-up, which needs a network."""
    command = [sys.executable, "-m", "release", "--out", str(out), *flags]
    environment = {**os.environ, **circumstances}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=250
    )


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """Another time zone, language, mask of modes, seed of hashes and temporary folder must not matter."""
    folder = tmp_path_factory.mktemp("releases")
    found = Releases(folder / "one/dist", folder / "two/dist")
    (folder / "tmp").mkdir()
    wheels = ("--wheels", str(cache.wheels(os.environ)), "--without-images")
    done = [make(found.first, *wheels, TZ="UTC", PYTHONHASHSEED="1")]
    previous = os.umask(0o077)
    try:
        other = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2", "TMPDIR": str(folder / "tmp")}
        done.append(make(found.second, *wheels, **other))
    finally:
        os.umask(previous)
    assert [one.returncode for one in done] == [0, 0], "".join(one.stdout + one.stderr for one in done)
    return found
