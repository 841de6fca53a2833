"""Two releases of this repository's commit, made at different places under different circumstances."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from release.locked import REPOSITORY
from tests.support.built_release import ARCH, built_release


@dataclass(frozen=True, slots=True)
class Releases:
    """Two folders that should hold the same; images are only in the first."""

    first: Path
    second: Path


def make(out: Path, *flags: str, **circumstances: str) -> "subprocess.CompletedProcess[str]":
    """Run `./run release` without its set-up, which needs a network."""
    command = [sys.executable, "-m", "release", "--out", str(out), *flags]
    environment = {**os.environ, **circumstances}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=480
    )


def make_elsewhere(folder: Path, *flags: str) -> Path:
    """Make a release with another time zone, language, mask of modes, seed of hashes and temporary folder."""
    (folder / "tmp").mkdir(parents=True)
    previous = os.umask(0o077)
    try:
        other = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2", "TMPDIR": str(folder / "tmp")}
        done = make(folder / "dist", *flags, **other)
    finally:
        os.umask(previous)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """The release that all tests of this commit have, and one that was made elsewhere."""
    folder = tmp_path_factory.mktemp("release") / "two"
    return Releases(built_release(), make_elsewhere(folder, "--without-images", "--arch", ARCH))
