"""The Debian packages of the runtime: their lock, and their files as values.

`debian.lock` has a line for each package: name, version, architecture, SHA-256. `release/fetch runtime` downloads what
it names, `release/fetch runtime-lock` writes a new one.
"""

import hashlib
import io
import lzma
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from release.members import Member
from release.source import ReleaseError

ARCHITECTURES = ("amd64", "arm64")
# Each package with its licence (SPDX), as its file `copyright` has it; the whole texts are in the runtime.
PACKAGES = {
    "python3.11-minimal": "PSF-2.0",
    "libpython3.11-minimal": "PSF-2.0",
    "libpython3.11-stdlib": "PSF-2.0",
    "libc6": "LGPL-2.1-or-later",
    "libssl3": "Apache-2.0",
    "libffi8": "MIT",
    "zlib1g": "Zlib",
    "libexpat1": "MIT",
    "libbz2-1.0": "bzip2-1.0.6",
    "liblzma5": "LicenseRef-public-domain",
    "libsqlite3-0": "LicenseRef-public-domain",
    "libuuid1": "BSD-3-Clause",
    "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
    # Only for texts of licences: of the two libraries before, and those that other packages refer to.
    "gcc-12-base": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "base-files": "GPL-2.0-or-later",
    # Only for images.
    "ca-certificates": "MPL-2.0 AND GPL-2.0-or-later",
}
LOCK = "release/runtime/debian.lock"
_AR = b"!<arch>\n"


@dataclass(frozen=True, slots=True)
class Package:
    """A package as the lock has it; ``arch`` is ``all`` for one without code."""

    name: str
    version: str
    arch: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.arch} {self.sha256}"

    @property
    def file(self) -> str:
        """The name that apt gives the downloaded file."""
        return f"{self.name}_{quote(self.version, safe='+~-.')}_{self.arch}.deb".replace("%3A", "%3a")

    @property
    def licence(self) -> str:
        return PACKAGES[self.name]


def read_lock(text: str) -> list[Package]:
    """Return the packages of a lock; raise ReleaseError unless it has each package once for each architecture."""
    packages = [Package(*line.split()) for line in text.splitlines() if line and not line.startswith("#")]
    for arch in ARCHITECTURES:
        if sorted(names := [one.name for one in of_arch(packages, arch)]) != sorted(PACKAGES):
            raise ReleaseError(f"{LOCK}: its packages for {arch} are {names!r}, and must be {list(PACKAGES)!r}")
    return packages


def of_arch(packages: Iterable[Package], arch: str) -> list[Package]:
    """Return the packages that a runtime of one architecture is made of."""
    return [one for one in packages if one.arch in (arch, "all")]


def files(packages: Iterable[Package], folder: Path) -> dict[str, Member]:
    """Return the files and links of packages in one root folder; raise ReleaseError for an absent one."""
    return {path: member for package in packages for path, member in _files_of(package, folder)}


def resolve(members: Mapping[str, Member], path: str) -> Member | None:
    """Return the file that a path leads to through links, None without one."""
    for _ in range(40):  # as the kernel has it (MAXSYMLINKS)
        member = members.get(path)
        if member is not None and not member.link:
            return member
        linked = next((one for one in _parents(path) if one in members and members[one].link), None)
        if linked is None:
            return None
        target = posixpath.join("/", posixpath.dirname(linked), members[linked].link)
        path = posixpath.normpath(target + path[len(linked) :]).lstrip("/")
    return None


def _parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = posixpath.dirname(path)


def _files_of(package: Package, folder: Path) -> Iterator[tuple[str, Member]]:
    path = folder / package.file
    if not path.exists():
        raise ReleaseError(f"package {package.file!r}: not in {str(folder)!r}; release/fetch runtime puts it there")
    content = path.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != package.sha256:
        raise ReleaseError(f"package {str(path)!r}: its SHA-256 is {digest}, and must be {package.sha256}")
    with tarfile.open(fileobj=io.BytesIO(_data(package.file, content))) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if member.issym():
                yield name, Member(link=member.linkname)
            elif file := archive.extractfile(member):
                yield name, Member(file.read(), 0o755 if member.mode & 0o100 else 0o644)


def _data(name: str, content: bytes) -> bytes:
    """Return the tar of a package's files (deb(5): an archive of `ar`, whose member `data.tar.xz` it is)."""
    if not content.startswith(_AR):
        raise ReleaseError(f"package {name!r}: it is not an archive of ar")
    offset = len(_AR)
    while offset + 60 <= len(content):
        member, size = content[offset : offset + 16].decode().rstrip(" /"), int(content[offset + 48 : offset + 58])
        offset += 60
        if member == "data.tar.xz":
            return lzma.decompress(content[offset : offset + size])
        offset += size + size % 2
    raise ReleaseError(f"package {name!r}: it has no data.tar.xz, the form of Debian 12's packages")
