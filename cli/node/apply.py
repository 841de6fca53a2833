"""Apply changes to a host's files and undo them, durably, atomically and idempotently."""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cli.node import runtime, venv
from cli.node.look import below, state_of
from cli.node.plan.states import Change, Edit, File, Link, PathChange, RuntimeCopy, State, edited, restored
from mooring.files import sync_folder

_NONE: Mapping[str, bytes] = {}
_NEW, _SAVED = ".mooring-new", ".mooring-saved"


def apply(root: Path, change: Change) -> None:
    """Make a change; on OSError or NodeError the path is unchanged."""
    if isinstance(change, PathChange):
        put(below(root, change.path), change.after)
    elif isinstance(change, Edit):
        _rewrite(root, change, edited)
    elif isinstance(change, RuntimeCopy):
        runtime.copy(root, change)
    else:
        venv.build(root, change)


def undo(root: Path, change: Change) -> None:
    """Undo a change, or do nothing if it was not made; keep a copy of a file that others have changed since."""
    if isinstance(change, PathChange):
        _put_back(root, change)
    elif isinstance(change, Edit):
        _rewrite(root, change, restored)
    else:
        folder = below(root, change.folder)
        venv.remove(folder)
        _remove_made(root, folder.parent, change.made)


def _put_back(root: Path, change: PathChange) -> None:
    path, now = below(root, change.path), state_of(root, change.path)
    if isinstance(now, File) and now not in (change.before, change.after):
        path.replace(path.with_name(f"{path.name}{_SAVED}"))
    if now == change.before:
        _clear(path)
    else:
        put(path, change.before)
    if change.before is None:
        _remove_made(root, path.parent, change.made)


def put(path: Path, state: State, owner: tuple[int, int] = (-1, -1), attributes: Mapping[str, bytes] = _NONE) -> None:
    """Write a file or link at a path, or remove it if ``state`` is None; remove temporary files of killed runs.

    ``owner`` is user and group id of a file, -1 for the process's own. ``attributes`` are extended attributes; those
    that cannot be set are skipped.
    """
    new = _clear(path)
    if state is None:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if isinstance(state, Link):
        new.symlink_to(state.target)
    else:
        _write(new, state, owner, attributes)
    new.replace(path)
    sync_folder(path.parent)


def _clear(path: Path) -> Path:
    """Return the temporary path of a new file, which is renamed into place later; remove an old temporary file."""
    new = path.with_name(f".{path.name}{_NEW}")
    if path.parent.is_dir():
        new.unlink(missing_ok=True)
    return new


def _write(path: Path, state: File, owner: tuple[int, int], attributes: Mapping[str, bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor with its mode already set
        os.fchown(descriptor, *owner)
        os.fchmod(descriptor, state.mode)
        for name, value in attributes.items():
            with suppress(OSError):
                os.setxattr(descriptor, name, value)
        file.write(state.text.encode(errors="surrogateescape"))
        file.flush()
        os.fsync(descriptor)


def _rewrite(root: Path, change: Edit, way: Callable[[Edit, str], str]) -> None:
    """Change a passage of a file that others own, following links; do nothing if the file does not exist."""
    path = below(root, change.path, through=True)
    if not path.is_file():
        return
    was, text = path.stat(), path.read_bytes().decode(errors="surrogateescape")
    # Extended attributes hold SELinux labels and access lists.
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    put(path, File(way(change, text), stat.S_IMODE(was.st_mode)), (was.st_uid, was.st_gid), attributes)


def _remove_made(root: Path, folder: Path, made: str | None) -> None:
    """Remove created folders from ``folder`` up to ``made``; stop at a folder that is not empty."""
    if made is None:
        return
    while folder.is_relative_to(below(root, made)) and remove_empty(folder):
        folder = folder.parent


def remove_empty(folder: Path) -> bool:
    """Remove a folder if it is empty; return whether it does not exist afterwards."""
    if not folder.is_dir():
        return True
    if any(folder.iterdir()):
        return False
    folder.rmdir()
    return True
