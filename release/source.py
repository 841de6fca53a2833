"""The commit that is released: its files without what else lies in the work tree, its time, its version."""

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path


class ReleaseError(RuntimeError):
    """A release that cannot be made: what is missing or wrong, and the rule."""


@dataclass(frozen=True, slots=True)
class Source:
    """A commit's files in a folder of their own; ``epoch`` is its time in seconds, for every time in the release."""

    folder: Path
    commit: str
    epoch: int
    version: str


def export(repository: Path, folder: Path, commit: str = "HEAD") -> Source:
    """Write a commit's files to ``folder``; raise ReleaseError where there is no such commit."""
    identity = _git(repository, "rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    epoch = int(_git(repository, "show", "--no-patch", "--format=%ct", identity))
    folder.mkdir(parents=True, exist_ok=True)
    files = _git(repository, "archive", "--format=tar", identity)
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=files, check=True)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Source(folder, identity, epoch, str(project["version"]))


def _git(repository: Path, *arguments: str) -> bytes:
    # The clone of another user is still read: nothing in it is run.
    command = ["git", "-c", f"safe.directory={repository}", "-C", str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git {' '.join(arguments)} ended with {done.returncode}: {done.stderr.decode().strip()}")
    return done.stdout
