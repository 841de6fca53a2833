"""Debian packages are taken by their hashes, and read without the programs of dpkg."""

import hashlib
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from release.locked import REPOSITORY
from release.members import Member
from release.runtime.debian import LOCK, Package, files, read_lock, resolve
from release.runtime.lock import newest
from release.source import ReleaseError


def _deb(content: bytes) -> bytes:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        file = tarfile.TarInfo("./usr/bin/a")
        file.size, file.mode = len(content), 0o755
        archive.addfile(file, io.BytesIO(content))
        link = tarfile.TarInfo("./bin")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
        archive.addfile(link)
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": lzma.compress(tar.getvalue())}
    parts = [b"!<arch>\n"]
    for name, data in members.items():
        parts.append(
            f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    return b"".join(parts)


def test_the_files_of_a_package_are_read(tmp_path: Path) -> None:
    """With their modes; links lead to them."""
    deb = _deb(b"program")
    package = Package("a", "1:2-3+b1", "arm64", hashlib.sha256(deb).hexdigest())
    (tmp_path / "a_1%3a2-3+b1_arm64.deb").write_bytes(deb)
    found = files([package], tmp_path)
    assert found == {"usr/bin/a": Member(b"program", 0o755), "bin": Member(link="usr/bin")}
    assert resolve(found, "bin/a") == found["usr/bin/a"]
    assert resolve(found, "bin/b") is None


def test_a_package_with_other_contents_is_refused(tmp_path: Path) -> None:
    """As is one that is not there."""
    package = Package("a", "1", "amd64", "0" * 64)
    with pytest.raises(ReleaseError, match="release/fetch runtime"):
        files([package], tmp_path)
    (tmp_path / package.file).write_bytes(_deb(b"other"))
    with pytest.raises(ReleaseError, match="its SHA-256 is"):
        files([package], tmp_path)


def test_the_lock_has_each_package_for_each_architecture() -> None:
    """A lock that lacks one is refused."""
    text = (REPOSITORY / LOCK).read_text()
    assert len(read_lock(text)) > 20
    with pytest.raises(ReleaseError, match="its packages for arm64 are"):
        read_lock(text.replace("zlib1g 1:1.2.13.dfsg-1 arm64", "zlib1g 1:1.2.13.dfsg-1 armhf"))


def test_a_new_lock_is_made_of_what_apt_shows() -> None:
    """A paragraph a package; other fields do not matter."""
    first = "Package: a\nVersion: 1\nArchitecture: all\nDescription: b: c\n more: d\nSHA256: ff\n"
    shown = f"{first}\nPackage: b\nVersion: 2\nArchitecture: arm64\nSHA256: ee\n"
    assert list(newest(shown)) == [Package("a", "1", "all", "ff"), Package("b", "2", "arm64", "ee")]
