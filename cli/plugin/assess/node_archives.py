"""Read the captures of nodes from a folder. Their makers may be anybody: each is bounded, and a bad one is skipped.

An archive is unpacked into a temporary folder, because discovery reads a sysfs tree. Only plain files, folders and
links that stay inside are accepted; links are made last, so that nothing is written through one.
"""

import gzip
import io
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO

from advertiser.formats import capture_record, use_record
from advertiser.formats.use_record import read_use
from advertiser.host.capture import with_capture_record
from advertiser.host.sysfs import read_functions
from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts, Host
from advertiser.inventory.offer import EVERYTHING
from cli.plugin.assess.snapshot import NodeCapture
from mooring.errors import ContractError
from mooring.files import read_file
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
    with tempfile.TemporaryDirectory(prefix="mooring-assess-") as folder:
        root = Path(folder)
        try:
            _unpack(archive, root)
            return _read(root, node)
        except (tarfile.TarError, zlib.error, EOFError, OSError, ContractError) as broken:
            raise ArchiveError(str(broken).replace(folder, "")) from broken


def _read(root: Path, node: str) -> NodeCapture:
    functions = read_functions(root / "sys")
    host = with_capture_record(Host("", functions), root / "sys")
    text = read_file(root / use_record.FILE, MOST_RECORD_BYTES)
    use = None if text is None else read_use(text)
    if use is not None:
        # As in the capture: the kernel's facts are on another machine.
        host = replace(host, uses=HostFacts(pods=use.host))
    return NodeCapture(host, build_inventory(host, EVERYTHING, ClusterFacts(), node), use)


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


def _unpack(archive: IO[bytes], root: Path) -> None:
    links: dict[Path, str] = {}
    with opened_members(archive) as members:
        for number, member in enumerate(members, start=1):
            path = root / _plain(member.name)
            if number > MOST_MEMBERS:
                raise ArchiveError(f"more than {MOST_MEMBERS} members")
            if member.issym():
                links[path] = member.linkname
            elif member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                _write(members, member, path)
            else:
                raise ArchiveError(f"member {member.name!r} is neither a file, a folder nor a link")
    _link(root, links)


def _plain(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ArchiveError(f"member {name!r} is outside of the archive")
    return path


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    most = MOST_RECORD_BYTES if member.name in _RECORDS else _MOST_FILE_BYTES
    if member.size > most:
        raise ArchiveError(f"member {member.name!r} has {member.size} bytes, the most is {most}")
    content = members.extractfile(member)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.read() if content is not None else b"")


def _link(root: Path, links: Mapping[Path, str]) -> None:
    for path, target in links.items():
        if any(parent in links for parent in path.parents):
            raise ArchiveError(f"member {path.name!r} is below a link")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    inside = root.resolve()
    for path in links:
        try:
            real = path.resolve()
        except RuntimeError as circle:
            raise ArchiveError(f"link {path.name!r} leads to itself") from circle
        if not real.is_relative_to(inside):
            raise ArchiveError(f"link {path.name!r} leads out of the archive")
