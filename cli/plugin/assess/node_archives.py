"""Read the captures of nodes. Their makers may be anybody: each is bounded, and one that breaks a rule is skipped.

An archive is read into memory (`captured_tree`), so none of its names or links reaches the machine's files.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

from advertiser.formats import capture_record, use_record
from advertiser.formats.capture_record import restore_record
from advertiser.formats.use_record import read_use
from advertiser.host.sysfs import read_functions
from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts, Host
from advertiser.inventory.offer import EVERYTHING
from cli.plugin.assess.captured_tree import Folder, Link, add, tree_at
from cli.plugin.assess.snapshot import NodeCapture
from mooring.errors import ContractError
from mooring.nic.vf_users import HostFacts

SUFFIX = ".tar.gz"
_PREFIX = "mooring-"
# A node with 4,096 VFs has some 120,000 entries; one with 128 VFs has 4,000.
MOST_MEMBERS = 200_000
MOST_BYTES = 128 << 20
# An attribute of sysfs is a page; the two records are larger.
_MOST_FILE_BYTES, MOST_RECORD_BYTES = 4096, 8 << 20
_RECORDS = (capture_record.FILE, use_record.FILE)


class ArchiveError(ValueError):
    """A capture cannot be used; the message says why."""


def archives_in(folder: Path) -> list[Path]:
    """Return the archives of a folder in order; raise OSError."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))


def node_of(archive: Path, nodes: Iterable[str]) -> str:
    """Return the node that an archive's name says: ``NODE.tar.gz``, or ``mooring-NODE.tar.gz`` as capture names it."""
    name = archive.name.removesuffix(SUFFIX)
    short = name.removeprefix(_PREFIX)
    known = set(nodes)
    return next((one for one in (name, short) if one in known), short)


def read_capture(archive: IO[bytes], node: str) -> NodeCapture:
    """Return what an archive has of the node; raise ArchiveError."""
    try:
        return _read(_unpack(archive), node)
    # tarfile raises ValueError for numbers in headers of sparse files.
    except (tarfile.TarError, zlib.error, EOFError, OSError, ContractError, ValueError) as error:
        raise ArchiveError(str(error)) from error


def _read(root: Folder, node: str) -> NodeCapture:
    host = Host("", read_functions(tree_at(root) / "sys"))
    captured, used = (_text(root, name) for name in _RECORDS)
    host = host if captured is None else restore_record(host, captured)
    use = None if used is None else read_use(used)
    if use is not None:
        # As in the capture: the kernel's facts are on another machine.
        host = replace(host, uses=HostFacts(pods=use.host))
    return NodeCapture(host, build_inventory(host, EVERYTHING, ClusterFacts(), node), use)


def _text(root: Folder, name: str) -> str | None:
    content = root.get(name)
    return content.decode(errors="replace") if isinstance(content, bytes) else None


class _Bounded(io.RawIOBase):
    """The unpacked bytes of an archive, up to a limit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = MOST_BYTES

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise ArchiveError(f"more than {MOST_BYTES} bytes unpacked")
        found = self._file.read(size)
        self._left -= len(found)
        return found


def opened_members(archive: IO[bytes]) -> tarfile.TarFile:
    """Return the members of an archive, to be read in order and within the limit of bytes."""
    return tarfile.open(fileobj=_Bounded(archive), mode="r|")


def _unpack(archive: IO[bytes]) -> Folder:
    root: Folder = {}
    with opened_members(archive) as members:
        for number, member in enumerate(members, start=1):
            if number > MOST_MEMBERS:
                raise ArchiveError(f"more than {MOST_MEMBERS} members")
            if not add(root, _parts(member.name), _entry(members, member)):
                raise ArchiveError(f"member {member.name!r} is there twice, or below one that is not a folder")
    return root


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or not parts:
        raise ArchiveError(f"member {name!r} is outside of the archive")
    return parts


def _entry(members: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | Link | None:
    if member.isdir():
        return None
    if member.issym():
        return Link(member.linkname)
    most = MOST_RECORD_BYTES if member.name in _RECORDS else _MOST_FILE_BYTES
    if member.size > most:
        raise ArchiveError(f"member {member.name!r} has {member.size} bytes, the most is {most}")
    content = members.extractfile(member) if member.isreg() else None
    if content is None:
        raise ArchiveError(f"member {member.name!r} is neither a file, a folder nor a link")
    return content.read()
