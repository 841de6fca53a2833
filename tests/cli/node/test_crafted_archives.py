"""Archives of anyone, for both readers: `mooring-node install --bundle` and `kubectl mooring … --from`."""

import contextlib
import gzip
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import pytest

from cli.node.errors import NodeError
from cli.node.runtime import unpacked
from cli.plugin.bundle.archive import reading, writing
from cli.plugin.bundle.layout import BundleError
from tests.cli.node.runtimes import archive, whole
from tests.support.seeds import Part

# A name that either reader would accept.
NAME = "mooring-support/a"
READERS: tuple[Callable[[Path], AbstractContextManager[object]], ...] = (unpacked, reading)


def _member(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    return member


def _pax(records: bytes, kind: bytes = tarfile.XHDTYPE, size: int | None = None) -> bytes:
    """Return a header of an extension with these records, and a plain member that it describes."""
    header, plain = _member("PaxHeaders", kind), tarfile.TarInfo(NAME)
    header.size = len(records) if size is None else size
    content = records.ljust(-(-len(records) // 512) * 512, b"\0")
    return header.tobuf(tarfile.USTAR_FORMAT) + content + plain.tobuf(tarfile.USTAR_FORMAT)


def _base_256(number: int) -> bytes:
    """Return a member's header with this size in the binary form of GNU tar."""
    header = bytearray(tarfile.TarInfo(NAME).tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = bytes([0x80 if number >= 0 else 0xFF]) + (number % (1 << 88)).to_bytes(11, "big")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


HEADERS = {
    "a negative size": _pax(b"13 size=-512\n"),
    "a size to loop": _pax(b"14 size=-1024\n"),
    "a large size": _pax(b"32 size=99999999999999999999999\n"),
    "no number": _pax(b"12 size=abc\n"),
    "a length of zero": _pax(b"0 size=1\n"),
    "a length past the end": _pax(b"999999999999 size=1\n"),
    "no length": _pax(b"size=1\n"),
    "not UTF-8": _pax(b"11 path=\xff\xfe\n"),
    "a zero byte": _pax(b"12 path=a\0b\n"),
    "an encoding": _pax(b"21 hdrcharset=BINARY\n13 path=\xff\xff\xff\n"),
    "sparse": _pax(b"22 GNU.sparse.size=-1\n25 GNU.sparse.map=a,b,c,d\n"),
    "sparse 1.0": _pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n24 GNU.sparse.name=x.whl\n"),
    "a global header": _pax(b"13 size=-512\n", tarfile.XGLTYPE),
    "a long name": _pax(b"x" * 5000, tarfile.GNUTYPE_LONGNAME),
    "a header larger than the file": _pax(b"", size=(8 << 30) - 1),
    "a negative binary size": _base_256(-512),
    "a large binary size": _base_256(1 << 80),
    "a GNU sparse member": _member(NAME, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT),
}


@pytest.mark.parametrize("shape", HEADERS)
def test_a_crafted_header_is_refused_by_both_readers_of_archives(shape: str, tmp_path: Path) -> None:
    """tarfile takes sizes from such headers: a negative one ended in a loop, others in errors of many classes."""
    crafted = tmp_path / "crafted.tar.gz"
    crafted.write_bytes(gzip.compress(HEADERS[shape] + b"\0" * 10240))
    with pytest.raises(NodeError, match=r"^bundle '.*crafted\.tar\.gz'.*: "), unpacked(crafted):
        pass
    with pytest.raises(BundleError, match=r"^bundle '.*crafted\.tar\.gz'.*: "), reading(crafted):
        pass


def test_any_bytes_are_an_archive_or_refused(part: Part, tmp_path: Path) -> None:
    """Both readers get archives with a few bytes and blocks changed; with ``--long`` 20,000 of them."""
    random = part.random("archives")
    bundle, support, changed = (tmp_path / f"{name}.tar.gz" for name in ("bundle", "support", "changed"))
    archive(bundle, whole())
    with writing(support, 1) as writer:
        writer.add(NAME, b"a" * 700)
        writer.add("mooring-support/b", b"b")
    contents = [gzip.decompress(path.read_bytes()) for path in (bundle, support)]
    for _ in range(20_000 if part.whole else 200):
        for content, read in zip(contents, READERS, strict=True):
            packed = gzip.compress(_changed(random, content), 1)
            changed.write_bytes(_changed(random, packed) if random.random() < 0.3 else packed)
            with contextlib.suppress(NodeError, BundleError), read(changed):
                pass


def _changed(random: Random, content: bytes) -> bytes:
    """Return an archive with passages replaced, and the checksums of its headers made right, so that more is read."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 4)):
        begin = random.randrange(len(changed))
        passage = random.choice((b"\xff", b"\0", b"-1", b"x", b"L", b"S", b"777", b"\x80", random.randbytes(12), b""))
        changed[begin : begin + max(1, len(passage))] = passage
    for begin in range(0, len(changed) - 511, 512):
        block = changed[begin : begin + 512]
        if block[257:262] == b"ustar":
            block[148:156] = b"        "
            changed[begin + 148 : begin + 156] = b"%06o\0 " % sum(block)
    return bytes(changed)
