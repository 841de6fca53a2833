"""Mark the RunPodSandbox calls that the CRI shim forwards, so that an ADD can check that it belongs to one.

A pod record outlives the pod's first sandbox. With the record alone, a kubelet that uses the runtime's socket directly
could create another sandbox with the pod's VFs, for containers without their devices. So the shim marks each call while
it forwards it:

    <run>/sandboxes/<pod uid>.<random number>     flock held by the shim; empty, then the container id of the first ADD

The lock belongs to the shim's open file and ends with the shim, so a mark with a free lock is invalid. The first ADD
writes its container id into the existing file, because a new file would not have the lock. Further ADDs (Multus makes
one per network) need the same container id. The shim removes the mark when the call ends.

Shims of earlier versions write no marks, and their pods must still be attached. So a shim that writes marks records
that in two places:

    <state>/sandbox-marks        a shim of this node writes marks; survives reboots
    <run>/sandboxes/.shim        a hard link to ``<run>/version/mooring-cri-shim`` as that shim wrote it

Every shim writes its version as a new file when it starts. Marks are required while that file is the linked one, or if
it does not exist because no shim has started in this boot. Otherwise the last started shim writes no marks, and none
are required.
"""

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

from mooring.annotations.inventory import CRI_SHIM
from mooring.files import make_folder, read_record, write_file, write_shared
from mooring.folders import is_record, record_names
from mooring.locks import hold
from mooring.records.pod_record import uid_as_file_name
from mooring.records.run_folder import VERSIONS

FOLDER = "sandboxes"
PROMISE = "sandbox-marks"
_LINK = ".shim"
_LOCK_S = 5.0
_LONGEST_ID = 256
# Of the random number, in hexadecimal digits.
_DIGITS = 16
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,63}}\.[0-9a-f]{{{_DIGITS}}}", re.ASCII)

# The result of claiming a pod's mark: the ADD belongs to a forwarded call; to none; to a call whose shim has ended; the
# mark is for another sandbox.
Claim = Literal["granted", "none", "ended", "taken"]


def promise_marks(state: Path, run: Path, version: str) -> None:
    """Write the shim's version, record that it marks its calls, and remove marks of ended shims.

    When such a shim replaces another one, there is no moment without this record. Try everything, then raise the first
    OSError.
    """
    failures = []
    for part in (
        partial(_link_version, run, version),
        partial(_promise, state, version),
        partial(_remove_stale_marks, run),
    ):
        try:
            part()
        except OSError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _link_version(run: Path, version: str) -> None:
    version_file, folder = run / VERSIONS / CRI_SHIM, _folder(run)
    make_folder(version_file.parent, 0o755)
    next_link, second_name = folder / f"{_LINK}.next", version_file.with_name(f".{CRI_SHIM}.{os.getpid()}")
    write_shared(next_link, version, mode=0o644)
    second_name.unlink(missing_ok=True)
    os.link(next_link, second_name)
    try:
        second_name.replace(version_file)
    finally:
        second_name.unlink(missing_ok=True)
    next_link.replace(folder / _LINK)


def _promise(state: Path, version: str) -> None:
    if not is_record(state / PROMISE):
        write_file(state / PROMISE, version)


def _remove_stale_marks(run: Path) -> None:
    for path in _folder(run).iterdir():
        if path.name not in (_LINK, f"{_LINK}.next") and is_record(path) and not _is_live(path):
            path.unlink(missing_ok=True)


def are_needed(state: Path, run: Path) -> bool:
    """Return whether an ADD needs a mark; False if the last shim started in this boot writes none."""
    if not (state / PROMISE).exists():
        return False
    version_file, links = run / VERSIONS / CRI_SHIM, (run / FOLDER / f"{_LINK}.next", run / FOLDER / _LINK)
    while (last := _identity(version_file)) is not None:
        if last in [_identity(link) for link in links]:
            return True
        # Read again if a shim started in between, because that changes both.
        if last == _identity(version_file):
            return False
    return True


@contextmanager
def mark_call(run: Path, uid: str) -> Iterator[None]:
    """Mark a call for a pod within the context; raise RecordError for a uid that cannot be a file name."""
    name = uid_as_file_name(uid, FOLDER)
    path, descriptor = _make(_folder(run), name)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _make(folder: Path, uid: str) -> tuple[Path, int]:
    """Create and lock a mark; try again if a starting shim has removed it, because it was not locked yet."""
    while True:
        path = folder / f"{uid}.{secrets.token_hex(_DIGITS // 2)}"
        # Names that begin with a dot are not marks, so no ADD sees the file before it is locked.
        hidden_path = path.with_name(f".{path.name}")
        descriptor = os.open(hidden_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden_path.rename(path)
        except (BlockingIOError, FileNotFoundError):
            os.close(descriptor)
            hidden_path.unlink(missing_ok=True)
        except BaseException:
            os.close(descriptor)
            hidden_path.unlink(missing_ok=True)
            raise
        else:
            return path, descriptor


def is_marked(run: Path, uid: str) -> bool:
    """Return whether any shim has a call for the pod in progress."""
    return any(map(_is_live, _marks(run, uid)))


def claim(run: Path, uid: str, container: str) -> Claim:
    """Claim a pod's mark for a sandbox; ADD does this before it changes anything. Raise LockBusyError or OSError."""
    with hold(run, FOLDER, _LOCK_S):
        marks = {path: _claimant(path) for path in _marks(run, uid)}
        live = {path: by for path, by in marks.items() if by is not None}
        if container in live.values():
            return "granted"
        if not live:
            return "ended" if marks else "none"
        return "granted" if any(_write(path, container) for path, by in live.items() if not by) else "taken"


def is_name(name: str) -> bool:
    """Return whether a file name is that of a mark."""
    return _NAME.fullmatch(name) is not None


def _marks(run: Path, uid: str) -> list[Path]:
    names = record_names(run / FOLDER, lambda name: name.startswith(f"{uid}.") and is_name(name))
    return [run / FOLDER / name for name in names]


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, None without one."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _folder(run: Path) -> Path:
    folder = run / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _is_live(path: Path) -> bool:
    """Return whether a process holds a mark's lock. The test takes a shared lock, so that concurrent tests agree."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _claimant(path: Path) -> str | None:
    """Return the container id in a mark, empty before the first ADD, None if its call has ended."""
    if not _is_live(path):
        return None
    text = read_record(path)
    return None if text is None else text[:_LONGEST_ID]


def _write(path: Path, container: str) -> bool:
    """Write a container id durably into a mark; return False if its call has ended.

    A write of less than a page is atomic, even if the process is killed.
    """
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, container.encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return True
    return False
