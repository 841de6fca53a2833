"""A set of small non-negative integers, written as ranges: ``0-9,20-119``.

VF indexes and VLAN ids have this form in documents. The set is stored as one integer whose bit ``i`` is 1 if ``i`` is
in the set. It takes 40 bytes for 240 VFs, while a frozenset needs 8 KiB, and union and difference are single
operations.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# SR-IOV counts VFs in 16 bits (PCIe base specification, SR-IOV capability, NumVFs).
LAST = 0xFFFF
_RANGE = re.compile(r"(0|[1-9][0-9]{0,4})(?:-(0|[1-9][0-9]{0,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Indexes:
    """An immutable set of integers from 0 to 65535."""

    mask: int = 0

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "Indexes":
        mask = 0
        for index in indexes:
            if not 0 <= index <= LAST:
                raise ValueError(f"index {index!r} is not from 0 to {LAST}")
            mask |= 1 << index
        return cls(mask)

    @classmethod
    def parse(cls, text: str) -> "Indexes":
        """Read ``0-9,20``; ranges must ascend and must not touch. Raise ValueError with the broken rule."""
        mask, next_free = 0, 0
        for part in text.split(",") if text else ():
            first, last = _ends(part)
            if first < next_free:
                raise ValueError(f"range {part!r} does not ascend from the range before it")
            mask |= ((1 << (last - first + 1)) - 1) << first
            next_free = last + 1
        return cls(mask)

    def __str__(self) -> str:
        return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self._runs())

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, index: int) -> bool:
        return index >= 0 and bool(self.mask >> index & 1)

    def __iter__(self) -> Iterator[int]:
        mask = self.mask
        while mask:
            low = mask & -mask
            yield low.bit_length() - 1
            mask ^= low

    def __or__(self, other: "Indexes") -> "Indexes":
        return Indexes(self.mask | other.mask)

    def __and__(self, other: "Indexes") -> "Indexes":
        return Indexes(self.mask & other.mask)

    def __sub__(self, other: "Indexes") -> "Indexes":
        return Indexes(self.mask & ~other.mask)

    def _runs(self) -> Iterator[tuple[int, int]]:
        rest, base = self.mask, 0
        while rest:
            gap = (rest & -rest).bit_length() - 1
            rest >>= gap
            run = (~rest & (rest + 1)).bit_length() - 1
            yield base + gap, base + gap + run - 1
            rest >>= run
            base += gap + run


def _ends(part: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is not a range such as '7' or '0-9'")
    first = int(match[1])
    last = int(match[2]) if match[2] is not None else first
    if last < first or last > LAST:
        raise ValueError(f"range {part!r} does not ascend within 0 to {LAST}")
    return first, last
