"""Small files that survive a crash at any moment: whole in their old form, whole in their new one, or absent.

Each write is a temporary file, fsync, rename, fsync of the folder; root only (0600). Callers hold their own locks.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

_TEMPORARY = ".tmp"


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


def remove_file(path: Path) -> None:
    """Remove ``path`` durably; do nothing if it is absent."""
    path.unlink(missing_ok=True)
    if path.parent.exists():
        sync_folder(path.parent)


def read_file(path: Path) -> str | None:
    """Return a file's text, None if it is absent; bytes that are not UTF-8 become U+FFFD, which no record accepts."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def read_own_file(path: Path) -> str | None:
    """Return the text of a file that only root, or this process' user, may have written; None if it is absent.

    Raise PermissionError for a file or folder that others own or may write to.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for status, what in ((os.fstat(file.fileno()), path), (path.parent.stat(), path.parent)):
                if not _is_own(status):
                    raise PermissionError(errno.EPERM, "others than root own it or may write to it", str(what))
            return file.read()
    except FileNotFoundError:
        return None


def _is_own(status: os.stat_result) -> bool:
    """Return whether only root and this process' user may write to what ``status`` describes; root's group may too."""
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    return status.st_uid in (0, os.geteuid()) and not by_group and not status.st_mode & stat.S_IWOTH


def record_paths(folder: Path) -> Iterator[Path]:
    """Yield the records in a folder by name; leftovers of interrupted writes are skipped."""
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.name[0] != ".")


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
