"""Install a release's runtime: a folder with an interpreter, a C library, the packages and Mooring.

`RELEASE.json` in it has the SHA-256 of every other file; the hash of that file is part of the release's name. Each file
is verified when it is copied. A folder whose copy was killed lacks its last file and is copied again.
"""

import gzip
import hashlib
import platform
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from cli.node.errors import NodeError
from cli.node.look import below
from cli.node.plan.states import RuntimeCopy
from cli.node.plan.steps import COMPLETE
from cli.node.venv import complete, remove
from mooring.files import read_bytes
from mooring.parsing import decode

RELEASE, SBOM, VERSION = "RELEASE.json", "sbom.cdx.json", 1
_LOADERS = {"amd64": "lib/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_DIGEST_CHARS = 12
# An upper limit; a runtime has about 150 MB.
_LARGEST_BYTES = 1 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Release:
    """What RELEASE.json says: the release's name, and the SHA-256 of each file by its path."""

    name: str
    files: Mapping[str, str]


def folder_name(of: str, text: bytes) -> str:
    """Return the name of the folder of a runtime, from its version and RELEASE.json."""
    return f"mooring-{of}-{hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]}"


def around(prefix: str) -> Path | None:
    """Return the runtime whose interpreter has this prefix, None if that is another Python."""
    top = Path(prefix).parent
    return top if (top / RELEASE).is_file() else None


def read_release(folder: Path) -> Release:
    """Read RELEASE.json; raise NodeError if it is invalid, or of another version or machine than this program."""
    path = folder / RELEASE
    try:
        if (text := read_bytes(path)) is None:
            raise FileNotFoundError(f"{str(path)!r} does not exist")
        document = decode(text)
        if document["v"] != VERSION:
            raise ValueError(f"version {document['v']!r} is not {VERSION}")
        held, arch, files = str(document["version"]), str(document["arch"]), dict(document["files"])
        for name, digest in files.items():
            _check_path(name)
            if not _DIGEST.fullmatch(digest):
                raise ValueError(f"the SHA-256 of {name!r} is {digest!r}")
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise NodeError(f"runtime {str(folder)!r}: {RELEASE} cannot be read: {wrong!r}") from wrong
    if held != version("mooring"):
        raise NodeError(
            f"runtime {str(folder)!r} is mooring {held!r}, but this is {version('mooring')}: run the mooring-node of "
            "the same release"
        )
    if arch != machine():
        raise NodeError(f"runtime {str(folder)!r} is for {arch!r}, but this machine is {machine()}")
    return Release(folder_name(held, text).removeprefix("mooring-"), files)


def machine() -> str:
    """Return this machine's architecture, by the name that runtimes have for it."""
    return _MACHINES.get(platform.machine(), platform.machine())


def _check_path(name: str) -> None:
    """Raise ValueError unless a name is a relative path that file systems accept: without NUL and lone surrogates."""
    path = PurePosixPath(name)
    is_plain = name.isprintable() and str(path) == name and not path.is_absolute() and ".." not in path.parts
    if not is_plain or name in (".", RELEASE, COMPLETE):
        raise ValueError(f"{name!r} is not the path of a file in the runtime")


def interpreter(top: str) -> tuple[str, ...]:
    """Return the command of the Python of a release installed at ``top``: its loader, which finds its C library."""
    python = f"{top}/python/bin/python3"
    options = ("--inhibit-cache", "--library-path", f"{top}/lib", "--argv0", python)
    return (f"{top}/{_LOADERS[machine()]}", *options, f"{python}.11")


def copy(root: Path, change: RuntimeCopy) -> None:
    """Copy a runtime below ``root``; raise NodeError if a file is missing, not as its hash, or not written."""
    source, folder = Path(change.source), below(root, change.folder)
    release = read_release(source)
    try:
        remove(folder)
        folder.mkdir(mode=0o755, parents=True)
        for name, digest in release.files.items():
            _copy_file(source / name, folder / name, digest)
        shutil.copyfile(source / RELEASE, folder / RELEASE)
        complete(folder)
    except OSError as error:
        raise NodeError(f"runtime: folder {str(folder)!r} cannot be written: {error}") from error


def _copy_file(source: Path, target: Path, digest: str) -> None:
    try:
        content = source.read_bytes()
        executable = bool(source.stat().st_mode & 0o100)
    except OSError as error:
        raise NodeError(f"runtime: file {str(source)!r} cannot be read: {error}") from error
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise NodeError(f"runtime: file {str(source)!r} has the SHA-256 {found!r}, not {digest!r}")
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(0o755 if executable else 0o644)


@contextmanager
def unpacked(bundle: Path, digest: str = "") -> Iterator[Path]:
    """Yield a temporary folder with the runtime of an archive; raise NodeError for an invalid archive.

    ``digest`` is the SHA-256 that the archive must have, empty if it is unknown.
    """
    if digest and not _DIGEST.fullmatch(digest):
        raise NodeError(f"option bundle_sha256: {digest!r} is not a SHA-256 (64 of 0-9 a-f)")
    with tempfile.TemporaryDirectory(prefix="mooring-bundle-") as folder:
        try:
            with bundle.open("rb") as file:
                if digest and (found := hashlib.file_digest(file, "sha256").hexdigest()) != digest:
                    raise NodeError(f"bundle {str(bundle)!r}: its SHA-256 is {found!r}, not {digest!r}")
                file.seek(0)
                with gzip.open(file) as archive:
                    top = _extract(bundle, archive, Path(folder))
        except (OSError, EOFError, zlib.error, tarfile.HeaderError) as wrong:
            raise NodeError(f"bundle {str(bundle)!r} cannot be read: {wrong}") from wrong
        yield Path(folder) / top


def _extract(bundle: Path, archive: gzip.GzipFile, folder: Path) -> str:
    """Write the plain files of an archive, all below one folder, whose name is returned; raise NodeError for others.

    Only plain headers are read: tarfile takes sizes from extensions too, negative ones included.
    """
    size, known = 0, set[str]()
    while (block := archive.read(tarfile.BLOCKSIZE)).strip(b"\0") or not known:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if member.name in known:
            raise NodeError(f"bundle {str(bundle)!r}: member {member.name!r} appears twice")
        _check_member(bundle, member)
        known.add(member.name)
        if (size := size + member.size) > _LARGEST_BYTES:
            raise NodeError(f"bundle {str(bundle)!r}: its files exceed the limit of {_LARGEST_BYTES} bytes")
        path = folder / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(member.size))
        path.chmod(0o755 if member.mode & 0o100 else 0o644)
        archive.read(-member.size % tarfile.BLOCKSIZE)
    tops = {name.partition("/")[0] for name in known}
    if len(tops) != 1:
        raise NodeError(f"bundle {str(bundle)!r}: it has {len(tops)} folders at its top instead of one")
    return tops.pop()


def _check_member(bundle: Path, member: tarfile.TarInfo) -> None:
    """Raise NodeError unless a member is a plain file below one folder."""
    parts = PurePosixPath(member.name).parts
    if len(parts) < 2 or ".." in parts or parts[0] == "/" or "/".join(parts) != member.name:
        raise NodeError(f"bundle {str(bundle)!r}: member {member.name!r} is not a file below one folder")
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
        raise NodeError(f"bundle {str(bundle)!r}: member {member.name!r} is not a plain file")
