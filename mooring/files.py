"""Small files that survive a crash at any moment: whole in their old form, whole in their new one, or absent.

Each write is a temporary file, fsync, rename, fsync of the folder; root only (0600). Callers hold their own locks.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from mooring.parsing import MAX_BYTES

# Larger than any file that is read whole, and small enough for a node's daemons.
MOST_BYTES = 4 << 20
_PORTION = 1 << 16
# What bytes that are not UTF-8 become: no document of ours has it.
NOT_UTF_8 = "\N{REPLACEMENT CHARACTER}"
_TEMPORARY = ".tmp"
# Of a path through what is no folder, or leads nowhere: no program of ours has written there.
_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# What differs once a file is replaced: inode number, time of its last change in nanoseconds, size.
Stamp = tuple[int, int, int]


def write_file(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` durably; raise OSError with the old content untouched."""
    _place(path, text)
    sync_folder(path.parent)


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Put several files into one folder durably; raise OSError with each file either old or new.

    They share the folder's fsync, and with it most of the time.
    """
    for name, text in texts.items():
        _place(folder / name, text)
    sync_folder(folder)


def _place(path: Path, text: str) -> None:
    """Replace a file atomically; it is durable only after an fsync of its folder."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor with its mode already set
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_folder(folder: Path, mode: int, group: int | None = None) -> None:
    """Make a folder for others than root too: of this mode, and of a group that all files made in it get (setgid).

    Files that are there already get the group as well. A user namespace without that group leaves root's: then only
    root reads them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if group is not None:
        for path in (folder, *folder.iterdir()):
            with _without_that_group():
                os.chown(path, -1, group, follow_symlinks=False)
    # After chown, which clears the bit.
    folder.chmod(mode if group is None else mode | stat.S_ISGID)


def write_shared(path: Path, text: str, mode: int = 0o640) -> None:
    """Put ``text`` at ``path`` for readers in the folder's group, by rename; it need not survive a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _without_that_group() -> Iterator[None]:
    try:
        yield
    except OSError as refused:
        if refused.errno not in (errno.EPERM, errno.EINVAL, errno.ENOENT):
            raise


def remove_file(path: Path) -> None:
    """Remove ``path`` durably; do nothing if it is absent."""
    path.unlink(missing_ok=True)
    if path.parent.exists():
        sync_folder(path.parent)


class ForeignFileError(OSError):
    """What is at a path is nothing that these programs write there: no file, too large, or another user's."""


def read_file(path: Path, most: int = MOST_BYTES) -> str | None:
    """Return a file's text, None if it is absent; bytes that are not UTF-8 become `NOT_UTF_8`.

    Links are followed: a volume of a ConfigMap consists of them. Raise ForeignFileError for what is no file, which
    would have its reader wait for ever, and for more than ``most`` bytes.
    """
    content = read_bytes(path, most)
    return None if content is None else content.decode(errors="replace")


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """Return what a file holds, as `read_file` does."""
    try:
        return _read(path, most, os.O_RDONLY, lambda _: None)
    except FileNotFoundError:
        return None


def read_record(path: Path, most: int = MAX_BYTES) -> str | None:
    """Return the text of a file that one of these programs has written, None if it is absent.

    Raise ForeignFileError for a link, and for a file of another user than root and this process' own.
    """
    try:
        content = _read(path, most, os.O_RDONLY | os.O_NOFOLLOW, lambda status: _check_owner(path, status))
    except OSError as refused:
        if is_nowhere(refused):
            return None
        raise
    return content.decode(errors="replace")


def is_nowhere(refused: OSError) -> bool:
    """Return whether a path could not be reached as it does not exist, whatever is in the place of its folders."""
    return not isinstance(refused, ForeignFileError) and refused.errno in _NOWHERE


def is_text_of(path: Path, text: str | None) -> bool:
    """Return whether a file has this text, or is absent where that is None; raise OSError if that is unknown.

    It is not, where something is in its place: what is written next replaces that.
    """
    try:
        return read_record(path) == text
    except ForeignFileError:
        return False


def read_own_file(path: Path) -> str | None:
    """Return the text of a file that only root, or this process' user, may have written; None if it is absent.

    Raise PermissionError for a file or folder that others own or may write to.
    """

    def check(status: os.stat_result) -> None:
        for found, what in ((status, path), (path.parent.stat(), path.parent)):
            if not _is_own(found):
                raise PermissionError(errno.EPERM, "others than root own it or may write to it", str(what))

    try:
        content = _read(path, MOST_BYTES, os.O_RDONLY, check)
    except FileNotFoundError:
        return None
    return content.decode(errors="replace")


def _is_own(status: os.stat_result) -> bool:
    """Return whether only root and this process' user may write to what ``status`` describes; root's group may too."""
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    return status.st_uid in (0, os.geteuid()) and not by_group and not status.st_mode & stat.S_IWOTH


def read_foreign_file(path: Path, most: int, folder: int | None = None) -> str | None:
    """Return the text of a file that a program with fewer rights writes, None if it is absent.

    Raise OSError for a link, a pipe or a device, which would have its reader read another file or wait for ever, and
    for more than ``most`` bytes. ``folder`` is an open one, to which ``path`` is relative.
    """
    try:
        content = _read(path, most, os.O_RDONLY | os.O_NOFOLLOW, lambda _: None, folder)
    except FileNotFoundError:
        return None
    return content.decode(errors="replace")


def why_foreign(path: Path) -> ForeignFileError | None:
    """Return why no program of ours has written what is at a path, None if one may have; raise OSError."""
    status = path.lstat()
    try:
        _check_kind(path, status, MAX_BYTES)
        _check_owner(path, status)
    except ForeignFileError as foreign:
        return foreign
    return None


def _read(
    path: Path, most: int, flags: int, check: Callable[[os.stat_result], None], folder: int | None = None
) -> bytes:
    """Read a regular file whole. A device is not even opened: that of a watchdog starts it."""
    follows = not flags & os.O_NOFOLLOW
    _check_kind(path, os.stat(path, dir_fd=folder, follow_symlinks=follows), most)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        _check_kind(path, status, most)
        check(status)
        content = bytearray()
        while len(content) <= most and (part := os.read(descriptor, min(_PORTION, most + 1 - len(content)))):
            content += part
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ForeignFileError(errno.EFBIG, f"longer than {most} bytes", str(path))
    return bytes(content)


def _check_kind(path: Path, status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "of an unknown kind")
        raise ForeignFileError(errno.EINVAL, f"{kind}, not a regular file", str(path))
    if status.st_size > most:
        raise ForeignFileError(errno.EFBIG, f"longer than {most} bytes", str(path))


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise ForeignFileError(errno.EPERM, f"owned by uid {status.st_uid}, not by root", str(path))


@contextmanager
def open_foreign_folder(folder: Path) -> Iterator[int | None]:
    """Open a folder that a program with fewer rights writes, for `read_foreign_file`; yield None if it is absent.

    Raise OSError for a link and for anything else than a folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def stamps(folder: int, most: int) -> Mapping[str, Stamp]:
    """Return the stamps of the records in an open folder by name; no more than ``most`` of its entries are looked at.

    The names end in ``.json``; links and anything but files are passed over.
    """
    found: dict[str, Stamp] = {}
    with os.scandir(folder) as entries:
        for entry in islice(entries, most):
            if entry.name.endswith(".json") and entry.name[0] != "." and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found[entry.name] = (status.st_ino, status.st_ctime_ns, status.st_size)
    return found


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
