"""Make changes on a host's files and take them back: each durable, whole or not at all, and free to be repeated."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cli.node import venv
from cli.node.look import below, state_of
from cli.node.states import Change, Edited, File, Link, Placed, State, edited, restored
from mooring.files import sync_folder

_NEW, _SAVED = ".mooring-new", ".mooring-saved"


def apply(root: Path, change: Change) -> None:
    """Make a change; raise OSError or NodeError with the path as it was."""
    if isinstance(change, Placed):
        _put(below(root, change.path), change.after)
    elif isinstance(change, Edited):
        _rewrite(root, change, edited)
    else:
        venv.build(root, change)


def undo(root: Path, change: Change) -> None:
    """Take a change back, or nothing where it was not made; what somebody else has changed since is kept aside."""
    if isinstance(change, Placed):
        _put_back(root, change)
    elif isinstance(change, Edited):
        _rewrite(root, change, restored)
    else:
        folder = below(root, change.folder)
        venv.remove(folder)
        _remove_made(root, folder.parent, change.made)


def _put_back(root: Path, change: Placed) -> None:
    path, now = below(root, change.path), state_of(root, change.path)
    if isinstance(now, File) and now not in (change.before, change.after):
        path.replace(path.with_name(f"{path.name}{_SAVED}"))
    _put(path, change.before)
    if change.before is None:
        _remove_made(root, path.parent, change.made)


def _put(path: Path, state: State) -> None:
    if state is None:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}{_NEW}")
    new.unlink(missing_ok=True)
    if isinstance(state, Link):
        new.symlink_to(state.target)
    else:
        _write(new, state)
    new.replace(path)
    sync_folder(path.parent)


def _write(path: Path, state: File) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor with its mode already set
        os.fchmod(descriptor, state.mode)
        file.write(state.text.encode(errors="surrogateescape"))
        file.flush()
        os.fsync(descriptor)


def _rewrite(root: Path, change: Edited, way: Callable[[Edited, str], str]) -> None:
    """Change a passage of somebody else's file, through its links; a file that is gone needs nothing any more."""
    path = below(root, change.path).resolve()
    if not path.is_file():
        return
    text = path.read_bytes().decode(errors="surrogateescape")
    if (new := way(change, text)) != text:
        owner = path.stat()
        _put(path, File(new, stat.S_IMODE(owner.st_mode)))
        os.chown(path, owner.st_uid, owner.st_gid)


def _remove_made(root: Path, folder: Path, made: str | None) -> None:
    """Remove the folders that were made, from ``folder`` up to ``made``; one that is not empty ends it."""
    if made is None:
        return
    with suppress(OSError):
        while folder.is_relative_to(below(root, made)):
            folder.rmdir()
            folder = folder.parent
