"""Write and read the archive of a support bundle: a gzip-compressed tar of plain files with short names.

A bundle is read by people who did not make it. So only what the writer makes is accepted (ustar headers, plain files
below one folder; the folders of a bundle that was repacked are passed over), each size is checked before anything is
read, and no name becomes a path: members are kept in one unlinked file.
"""

import gzip
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cli.plugin.bundle.layout import (
    FOLDER,
    LONGEST_NAME,
    MEMBER,
    MOST_MEMBER_BYTES,
    MOST_MEMBERS,
    MOST_UNPACKED_BYTES,
    BundleError,
)

_BLOCK, _CHUNK = tarfile.BLOCKSIZE, 1 << 16
_UNREADABLE = (OSError, EOFError, zlib.error)


class BundleWriter:
    """Adds members, all with the same time, so that equal contents give equal archives."""

    def __init__(self, file: IO[bytes], taken_at: int) -> None:
        self._taken_at = taken_at
        self._gzip = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=taken_at)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.USTAR_FORMAT)
        self._bytes = 0
        self._members: set[str] = set()

    def add(self, name: str, content: bytes) -> None:
        """Add a member; raise BundleError for one that a reader would refuse."""
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(content), self._taken_at, 0o600
        self._bytes += _padded(member.size) + _BLOCK
        self._members.add(name)
        if why := _excess(self._bytes, len(self._members)) or _fault(member, ()):
            raise BundleError(f"support bundle: {why}")
        self._tar.addfile(member, io.BytesIO(content))

    def close(self) -> None:
        self._tar.close()
        self._gzip.close()


@contextmanager
def writing(path: Path, taken_at: int) -> Iterator[BundleWriter]:
    """Create a file that only its owner reads, and leave nothing if it fails; raise BundleError if it exists."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise BundleError(f"file {str(path)!r} exists already: name another one by -o") from None
    except OSError as error:
        raise BundleError(f"file {str(path)!r} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            writer = BundleWriter(file, taken_at)
            yield writer
            writer.close()
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class BundleFile:
    """The members of an archive that was read and found to be sound."""

    def __init__(self, path: Path, contents: IO[bytes], places: dict[str, tuple[int, int]]) -> None:
        self.path = path
        self._contents = contents
        self._places = places

    def names(self) -> list[str]:
        """Return the names of the members."""
        return list(self._places)

    def read(self, name: str) -> bytes:
        """Return a member's content; raise BundleError without it."""
        if name not in self._places:
            raise BundleError(f"bundle {str(self.path)!r}: member {name!r} is missing")
        begin, size = self._places[name]
        self._contents.seek(begin)
        return self._contents.read(size)


@contextmanager
def reading(path: Path) -> Iterator[BundleFile]:
    """Read an archive as a whole; raise BundleError for the first rule that it breaks."""
    with tempfile.TemporaryFile(prefix="mooring-bundle-") as contents:
        try:
            with gzip.open(path, "rb") as archive:
                places = _index(path, archive, contents)
        except FileNotFoundError:
            raise BundleError(f"bundle {str(path)!r} does not exist") from None
        except _UNREADABLE as unreadable:
            raise BundleError(f"bundle {str(path)!r} cannot be read: {unreadable}") from unreadable
        yield BundleFile(path, contents, places)


def _index(path: Path, archive: gzip.GzipFile, contents: IO[bytes]) -> dict[str, tuple[int, int]]:
    """Copy the members, and return where each is: offset and size."""
    places: dict[str, tuple[int, int]] = {}
    unpacked = members = 0
    while (header := archive.read(_BLOCK)).strip(b"\0"):
        member = _header(path, header)
        unpacked += _padded(max(member.size, 0)) + _BLOCK
        members += 1
        is_folder = member.isdir() and member.size == 0
        if why := _excess(unpacked, members) or ("" if is_folder else _fault(member, places)):
            raise BundleError(f"bundle {str(path)!r}: {why}")
        if not is_folder:
            places[member.name] = (contents.tell(), member.size)
            _copy(archive, contents, member.size)
            _copy(archive, io.BytesIO(), _padded(member.size) - member.size)
    return places


def _header(path: Path, block: bytes) -> tarfile.TarInfo:
    """Read one header. What would describe the next one, such as a long name, is a member that is not plain."""
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as wrong:
        raise BundleError(f"bundle {str(path)!r} cannot be read: {wrong}") from wrong


def _fault(member: tarfile.TarInfo, known: Container[str]) -> str:
    """Return why a member is not accepted; empty if it is."""
    name, size = member.name, member.size
    if not MEMBER.fullmatch(name) or len(name) > LONGEST_NAME:
        return f"member {name[:LONGEST_NAME]!r} is not below {FOLDER}/ by a plain name"
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return f"member {name!r} is not a plain file"
    if not 0 <= size <= MOST_MEMBER_BYTES:
        return f"member {name!r} has {size} bytes, the most is {MOST_MEMBER_BYTES}"
    return f"member {name!r} is there twice" if name in known else ""


def _excess(unpacked: int, members: int) -> str:
    if unpacked > MOST_UNPACKED_BYTES:
        return f"more than {MOST_UNPACKED_BYTES} bytes unpacked"
    return f"more than {MOST_MEMBERS} members" if members > MOST_MEMBERS else ""


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _copy(archive: gzip.GzipFile, target: IO[bytes], size: int) -> None:
    while size:
        part = archive.read(min(size, _CHUNK))
        if not part:
            raise EOFError("the archive ends early")
        target.write(part)
        size -= len(part)
