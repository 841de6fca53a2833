"""Read a release's offline bundle: a tar of wheels, their SBOM, and SHA256SUMS with the hash of every other member.

The bundle is checked in memory before anything is written. Because it is installed as root, any deviation from a
release's form is an error.
"""

import hashlib
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.node.errors import NodeError

SUMS, SBOM, WHEELS = "SHA256SUMS", "sbom.cdx.json", "wheels"
# An upper limit; the programs' wheels have about 40 MiB.
_LARGEST_BYTES = 1024 * 1024 * 1024
_WHEEL = re.compile(rf"{WHEELS}/[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@contextmanager
def unpacked(bundle: Path, digest: str = "") -> Iterator[Path]:
    """Yield a temporary folder with the bundle's wheels; raise NodeError for an invalid bundle.

    ``digest`` is the SHA-256 that the bundle must have, empty if it is unknown.
    """
    wheels = checked(bundle, digest)
    with tempfile.TemporaryDirectory(prefix="mooring-bundle-") as folder:
        for name, content in wheels.items():
            (Path(folder) / name.removeprefix(f"{WHEELS}/")).write_bytes(content)
        yield Path(folder)


def checked(bundle: Path, digest: str = "") -> dict[str, bytes]:
    """Return the wheels of a bundle by member name; raise NodeError for the first rule that it breaks."""
    if digest and not _DIGEST.fullmatch(digest):
        raise NodeError(f"option bundle_sha256: {digest!r} is not a SHA-256 (64 of 0-9 a-f)")
    try:
        members = _members(bundle, digest)
    except OSError as wrong:
        raise NodeError(f"bundle {str(bundle)!r} cannot be read: {wrong}") from wrong
    _check(bundle, members)
    return {name: content for name, content in members.items() if _WHEEL.fullmatch(name)}


def _members(bundle: Path, digest: str) -> dict[str, bytes]:
    with bundle.open("rb") as file:
        if (size := file.seek(0, 2)) > _LARGEST_BYTES:
            raise NodeError(f"bundle {str(bundle)!r}: its {size} bytes exceed the limit of {_LARGEST_BYTES}")
        file.seek(0)
        if digest and (found := hashlib.file_digest(file, "sha256").hexdigest()) != digest:
            raise NodeError(f"bundle {str(bundle)!r}: its SHA-256 is {found!r}, not {digest!r}")
        file.seek(0)
        members: dict[str, bytes] = {}
        # Only plain headers: tarfile takes sizes from extensions too, negative ones included. No member is
        # compressed, so none is larger than the file.
        while (block := file.read(tarfile.BLOCKSIZE)).strip(b"\0") or not members:
            member = _header(bundle, block)
            _check_member(bundle, member, members)
            content = file.read(member.size)
            file.seek(-member.size % tarfile.BLOCKSIZE, 1)
            if len(content) != member.size:
                raise NodeError(f"bundle {str(bundle)!r}: member {member.name!r} ends early")
            members[member.name] = content
        return members


def _header(bundle: Path, block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as wrong:
        raise NodeError(f"bundle {str(bundle)!r} cannot be read: {wrong}") from wrong


def _check_member(bundle: Path, member: tarfile.TarInfo, known: dict[str, bytes]) -> None:
    if member.name not in (SUMS, SBOM) and not _WHEEL.fullmatch(member.name):
        raise NodeError(
            f"bundle {str(bundle)!r}: member {member.name!r} is not one of {SUMS}, {SBOM} and {WHEELS}/<name>.whl"
        )
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise NodeError(f"bundle {str(bundle)!r}: member {member.name!r} is not a plain file")
    if not 0 <= member.size <= _LARGEST_BYTES:
        raise NodeError(
            f"bundle {str(bundle)!r}: member {member.name!r} has {member.size} bytes, the most is {_LARGEST_BYTES}"
        )
    if member.name in known:
        raise NodeError(f"bundle {str(bundle)!r}: member {member.name!r} appears twice")


def _check(bundle: Path, members: dict[str, bytes]) -> None:
    """Compare every member with its hash; raise NodeError for one that differs, is missing or is not listed."""
    told = _sums(bundle, members.get(SUMS))
    for name in sorted(told.keys() ^ (members.keys() - {SUMS})):
        where, lacks = (SUMS, "the bundle") if name in told else ("the bundle", SUMS)
        raise NodeError(f"bundle {str(bundle)!r}: member {name!r} is in {where} but not in {lacks}")
    for name, digest in told.items():
        if (found := hashlib.sha256(members[name]).hexdigest()) != digest:
            raise NodeError(f"bundle {str(bundle)!r}: member {name!r} has the SHA-256 {found!r}, not {digest!r}")


def _sums(bundle: Path, content: bytes | None) -> dict[str, str]:
    if content is None:
        raise NodeError(f"bundle {str(bundle)!r}: member {SUMS!r} is missing, which has the hashes of all others")
    found: dict[str, str] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            where = f"bundle {str(bundle)!r}: line {number} of {SUMS}"
            raise NodeError(f"{where}: {line!r} is not '<SHA-256>  <member>', with each member once")
        found[match[2]] = match[1]
    return found
