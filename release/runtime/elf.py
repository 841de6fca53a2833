"""Read which shared libraries an ELF file needs (System V ABI, chapters 4 and 5: DT_NEEDED, DT_SONAME)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from release.source import ReleaseError

_MAGIC = b"\x7fELF\x02\x01"  # 64 bit, little-endian
_MACHINES = {62: "amd64", 183: "arm64"}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME = 0, 1, 5, 14


@dataclass(frozen=True, slots=True)
class Elf:
    """What an ELF file is for, the name by which others need it, and the names that it needs."""

    arch: str
    soname: str | None
    needs: tuple[str, ...]


def is_elf(content: bytes) -> bool:
    return content.startswith(b"\x7fELF")


def read(name: str, content: bytes) -> Elf:
    """Read an ELF file; raise ReleaseError for one that is of neither architecture."""
    if not content.startswith(_MAGIC):
        raise ReleaseError(f"ELF file {name!r}: it is not 64 bit and little-endian")
    (machine,) = struct.unpack_from("<H", content, 18)
    if machine not in _MACHINES:
        raise ReleaseError(f"ELF file {name!r}: machine {machine} must be one of {_MACHINES}")
    segments = list(_segments(content))
    entries = [
        entry for kind, offset, _, size in segments if kind == _PT_DYNAMIC for entry in _dynamic(content, offset, size)
    ]
    text = next((_offset(segments, value) for tag, value in entries if tag == _DT_STRTAB), 0)
    names = {
        tag: [_string(content, text + value) for found, value in entries if found == tag]
        for tag in (_DT_NEEDED, _DT_SONAME)
    }
    return Elf(_MACHINES[machine], next(iter(names[_DT_SONAME]), None), tuple(names[_DT_NEEDED]))


def _segments(content: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield each program header: its type, offset in the file, address and size in the file."""
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for number in range(count):
        kind, _, offset, address, _, in_file = struct.unpack_from("<IIQQQQ", content, start + number * size)
        yield kind, offset, address, in_file


def _dynamic(content: bytes, offset: int, size: int) -> Iterator[tuple[int, int]]:
    for tag, value in struct.iter_unpack("<QQ", content[offset : offset + size // 16 * 16]):
        if tag == _DT_NULL:
            return
        yield tag, value


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Return where an address of the loaded file lies in the file."""
    return next(
        offset + address - start
        for kind, offset, start, size in segments
        if kind == _PT_LOAD and start <= address < start + size
    )


def _string(content: bytes, offset: int) -> str:
    return content[offset : content.index(b"\0", offset)].decode()
