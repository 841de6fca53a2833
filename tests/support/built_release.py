"""The release of this commit for this machine's architecture, made once for all test runs of a machine.

It lies in the cache of `release/fetch`, by the commit's id: what is not committed is not in it. CI's lanes share it.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from release import cache
from release.locked import REPOSITORY

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_KEPT_S = 3 * 3600


def built_release(of: str = "HEAD") -> Path:
    """Return the folder that `./run release --arch` writes of a commit; its images are in it."""
    command = ["git", "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY), "rev-parse", of]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    releases = cache.folder(os.environ) / "releases"
    releases.mkdir(parents=True, exist_ok=True)
    with (releases / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = releases / commit
        if not found.exists():
            _remove_old(releases)
            _make(found, commit)
        os.utime(found)
    return found


def _make(folder: Path, commit: str) -> None:
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    command = [sys.executable, "-m", "release", "--out", str(fresh), "--commit", commit, "--arch", ARCH]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    fresh.rename(folder)


def _remove_old(releases: Path) -> None:
    """Remove those of commits that nobody tests any more: each is some hundred megabytes."""
    for path in releases.iterdir():
        if path.is_dir() and path.stat().st_mtime < time.time() - _KEPT_S:
            shutil.rmtree(path)
