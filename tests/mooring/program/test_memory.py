"""What freed objects have left in the heap is given back to the kernel."""

from pathlib import Path

from mooring.program.memory import trim_memory

_EACH, _MANY = 1 << 12, 20_000


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


def test_memory_below_what_is_still_used_is_given_back() -> None:
    """80 MiB of which each 100th piece stays: the heap's top does not come down by itself."""
    pieces = [bytearray(b"x" * _EACH) for _ in range(_MANY)]
    kept = pieces[::100]
    del pieces
    before_mib = _resident_mib()
    trim_memory()
    assert before_mib - _resident_mib() > 0.5 * _EACH * _MANY / (1 << 20)
    assert all(piece == b"x" * _EACH for piece in kept)
