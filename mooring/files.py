"""Write and read small files that survive a crash at any moment: a file is complete, old or new, or absent.

Each write is a temporary file, fsync, rename, and fsync of the folder. Files are for root only (0600). Callers do their
own locking.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from mooring.parsing import MAX_BYTES

# The default size limit of a file: larger than any file of ours, and small enough for a node's daemons.
MOST_BYTES = 4 << 20
_PORTION = 1 << 16
# The replacement for bytes that are not UTF-8; no document of ours contains it.
NOT_UTF_8 = "\N{REPLACEMENT CHARACTER}"
_TEMPORARY = ".tmp"
# Errors for a path that does not exist, or that leads through a file.
_ABSENCE_ERRORS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# Identifies the version of a file: inode number, time of the last change in nanoseconds, size.
Stamp = tuple[int, int, int]


def write_file(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` durably; on OSError the old content is unchanged."""
    _place(path, text)
    sync_folder(path.parent)


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write several files into one folder durably; on OSError each file is either old or new.

    One fsync of the folder serves all files, which saves most of the time.
    """
    for name, text in texts.items():
        _place(folder / name, text)
    sync_folder(folder)


def _place(path: Path, text: str) -> None:
    """Replace a file atomically; the change is durable only after an fsync of the folder."""
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
    """Create a folder with this mode and with a group that new files in it inherit (setgid).

    Existing files get the group, too. In a user namespace without that group the files keep root's group, and only root
    can read them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if group is not None:
        for path in (folder, *folder.iterdir()):
            with _ignore_group_errors():
                os.chown(path, -1, group, follow_symlinks=False)
    # After chown, which clears the setgid bit.
    folder.chmod(mode if group is None else mode | stat.S_ISGID)


def write_shared(path: Path, text: str, mode: int = 0o640) -> None:
    """Write ``text`` to ``path`` atomically for readers in the folder's group; without fsync, so not durably."""
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
def _ignore_group_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL, errno.ENOENT):
            raise


def remove_file(path: Path) -> None:
    """Remove ``path`` durably; do nothing if it is absent."""
    path.unlink(missing_ok=True)
    if path.parent.exists():
        sync_folder(path.parent)


class ForeignFileError(OSError):
    """The entry at a path was not written by these programs: not a file, too large, or owned by another user."""


def read_file(path: Path, limit: int = MOST_BYTES) -> str | None:
    """Return a file's text, None if it is absent; bytes that are not UTF-8 become `NOT_UTF_8`.

    Links are followed, because ConfigMap volumes consist of links. Raise ForeignFileError for other kinds of entries,
    from which a read may never return, and for more than ``limit`` bytes.
    """
    content = read_bytes(path, limit)
    return None if content is None else content.decode(errors="replace")


def read_bytes(path: Path, limit: int = MOST_BYTES) -> bytes | None:
    """Return a file's bytes, with the rules of `read_file`."""
    try:
        return _read(path, limit, os.O_RDONLY, lambda _: None)
    except FileNotFoundError:
        return None


def read_record(path: Path, limit: int = MAX_BYTES) -> str | None:
    """Return the text of a file that one of these programs has written, None if it is absent.

    Raise ForeignFileError for a link, and for a file that neither root nor this process's user owns.
    """
    try:
        content = _read(path, limit, os.O_RDONLY | os.O_NOFOLLOW, lambda status: _check_owner(path, status))
    except OSError as error:
        if is_nowhere(error):
            return None
        raise
    return content.decode(errors="replace")


def is_nowhere(error: OSError) -> bool:
    """Return whether the error means that the path does not exist, also if a part of it is not a folder."""
    return not isinstance(error, ForeignFileError) and error.errno in _ABSENCE_ERRORS


def is_text_of(path: Path, text: str | None) -> bool:
    """Return whether a file has this text or, if ``text`` is None, is absent; raise OSError if that is unknown.

    Return False if the entry at the path is not such a file; the next write replaces it.
    """
    try:
        return read_record(path) == text
    except ForeignFileError:
        return False


def read_own_file(path: Path) -> str | None:
    """Return the text of a file that only root or this process's user can write; None if it is absent.

    Raise PermissionError if other users own the file or its folder, or can write to it.
    """

    def check(status: os.stat_result) -> None:
        for entry_status, entry in ((status, path), (path.parent.stat(), path.parent)):
            if not _is_own(entry_status):
                raise PermissionError(errno.EPERM, "users other than root own it or can write to it", str(entry))

    try:
        content = _read(path, MOST_BYTES, os.O_RDONLY, check)
    except FileNotFoundError:
        return None
    return content.decode(errors="replace")


def _is_own(status: os.stat_result) -> bool:
    """Return whether only root, root's group and this process's user can write to the file of ``status``."""
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    return status.st_uid in (0, os.geteuid()) and not by_group and not status.st_mode & stat.S_IWOTH


def read_foreign_file(path: Path, limit: int, folder: int | None = None) -> str | None:
    """Return the text of a file that a program with fewer privileges writes, None if it is absent.

    Raise OSError for a link, pipe or device, which could redirect or block the reader, and for more than ``limit``
    bytes. ``folder`` is the descriptor of a folder to which ``path`` is relative.
    """
    try:
        content = _read(path, limit, os.O_RDONLY | os.O_NOFOLLOW, lambda _: None, folder)
    except FileNotFoundError:
        return None
    return content.decode(errors="replace")


def why_foreign(path: Path) -> ForeignFileError | None:
    """Return why the entry at a path cannot be from a program of ours, None if it can; raise OSError."""
    status = path.lstat()
    try:
        _check_kind(path, status, MAX_BYTES)
        _check_owner(path, status)
    except ForeignFileError as error:
        return error
    return None


def _read(
    path: Path, limit: int, flags: int, check: Callable[[os.stat_result], None], folder: int | None = None
) -> bytes:
    """Read a whole regular file. Devices are not even opened, because opening a watchdog device starts it."""
    follows = not flags & os.O_NOFOLLOW
    _check_kind(path, os.stat(path, dir_fd=folder, follow_symlinks=follows), limit)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        _check_kind(path, status, limit)
        check(status)
        content = bytearray()
        while len(content) <= limit and (part := os.read(descriptor, min(_PORTION, limit + 1 - len(content)))):
            content += part
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise ForeignFileError(errno.EFBIG, f"longer than {limit} bytes", str(path))
    return bytes(content)


def _check_kind(path: Path, status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "of an unknown kind")
        raise ForeignFileError(errno.EINVAL, f"{kind}, not a regular file", str(path))
    if status.st_size > limit:
        raise ForeignFileError(errno.EFBIG, f"longer than {limit} bytes", str(path))


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise ForeignFileError(errno.EPERM, f"owned by uid {status.st_uid}, not by root", str(path))


@contextmanager
def open_foreign_folder(folder: Path) -> Iterator[int | None]:
    """Open a folder that a program with fewer privileges writes, for `read_foreign_file`; yield None if it is absent.

    Raise OSError for a link and for everything that is not a folder.
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


def stamps(folder: int, limit: int) -> Mapping[str, Stamp]:
    """Return the stamps of the records in an open folder, by name; read at most ``limit`` entries.

    Records are regular files with names that end in ``.json``; other entries are skipped.
    """
    stamp_of_name: dict[str, Stamp] = {}
    with os.scandir(folder) as entries:
        for entry in islice(entries, limit):
            if entry.name.endswith(".json") and entry.name[0] != "." and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                stamp_of_name[entry.name] = (status.st_ino, status.st_ctime_ns, status.st_size)
    return stamp_of_name


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
