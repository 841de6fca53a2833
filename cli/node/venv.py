"""Build a release: a virtual environment in a separate folder, from a wheelhouse, without network access.

The name of a release consists of its version and a digest of the wheels, so an existing release is not built again. A
release whose build was killed lacks its last file and is built again.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.look import below
from cli.node.plan.states import VenvBuild
from cli.node.plan.steps import COMPLETE
from mooring.files import sync_folder, write_file

_DIGEST_CHARS = 8
_SHOWN_CHARS = 2000
_libc = ctypes.CDLL(None, use_errno=True)


def release_of(wheelhouse: Path) -> str:
    """Return the release name of a folder of wheels; raise NodeError unless its Mooring has this version."""
    wheels, ours = [path.name for path in wheelhouse.glob("mooring-*.whl")], version("mooring")
    if len(wheels) != 1:
        advice = (
            "name its folder with --wheelhouse, and fill it with `pip wheel --wheel-dir` as in docs/install-node.md"
        )
        raise NodeError(f"wheelhouse {str(wheelhouse)!r} has {len(wheels)} wheels of mooring instead of one: {advice}")
    held = wheels[0].split("-")[1]
    if held != ours:
        raise NodeError(
            f"wheelhouse {str(wheelhouse)!r} has mooring {held}, but this is {ours}: run the mooring-node of the same "
            "release"
        )
    digest = hashlib.sha256()
    for wheel in sorted(wheelhouse.glob("*.whl")):
        digest.update(f"{wheel.name}\0".encode() + hashlib.sha256(wheel.read_bytes()).digest())
    return f"{held}-{digest.hexdigest()[:_DIGEST_CHARS]}"


def build(root: Path, change: VenvBuild) -> None:
    """Build a release below ``root``; raise NodeError with pip's message."""
    folder = below(root, change.folder)
    remove(folder)
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _run(change.python, "-I", "-m", "venv", str(folder))
    python, wheels = str(folder / "bin/python"), ("--no-index", "--find-links", change.wheelhouse)
    _run(python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wheels, change.requirement)
    _settle(root, folder)
    complete(folder)


def complete(folder: Path) -> None:
    """Write a release's last file once all others are on the disk; raise OSError.

    syncfs(2) is called in the C library: Python does not have it, and `sync` of busybox knows no `--file-system`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(descriptor) != 0:
            raise OSError(number := ctypes.get_errno(), os.strerror(number), str(folder))
    finally:
        os.close(descriptor)
    write_file(folder / COMPLETE, f"{version('mooring')}\n")


def remove(folder: Path) -> None:
    """Remove a release, first the file that is written last, so that a partly removed release does not count as one."""
    if not folder.exists():
        return
    (folder / COMPLETE).unlink(missing_ok=True)
    sync_folder(folder)
    shutil.rmtree(folder)


def _settle(root: Path, folder: Path) -> None:
    """Replace paths below ``root`` in the scripts by the host's own paths."""
    if root == Path("/"):
        return
    prefix = str(root).rstrip("/").encode()
    for path in (folder / "pyvenv.cfg", *(folder / "bin").iterdir()):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes().replace(prefix + b"/", b"/"))


def _run(*command: str) -> None:
    done: subprocess.CompletedProcess[str] = _captured(command)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-_SHOWN_CHARS:]
        raise NodeError(f"{command[0]} {' '.join(command[2:5])} ended with {done.returncode}: {said}")


def _captured(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
