"""Make VFs on a PF without any, for the test alone, and time it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.hardware.commands import names_in, run, text_of

_BOUND_S, _POLL_S = 60.0, 0.02


@contextmanager
def temporary_vfs(function: Path, count: int) -> Iterator[dict[str, object]]:
    """Make VFs and remove them at the end; yield the times in seconds, to which that of the removal is added.

    Raise NodeError if the PF has VFs: they may be in use, and their number cannot be changed without removing all.
    """
    path = function / "sriov_numvfs"
    present = text_of(path)
    if present != "0":
        raise NodeError(f"option make_vfs: {count!r}, and sriov_numvfs of the PF is {present!r}: it has to be '0'")
    times: dict[str, object] = {"vfs": count, "autoprobe": text_of(function / "sriov_drivers_autoprobe")}
    times["make-s"] = _write(path, count)
    try:
        began = time.monotonic()
        while (bound := _bound(function)) < count and time.monotonic() - began < _BOUND_S:
            time.sleep(_POLL_S)
        times |= {"bound": bound, "bound-more-s": round(time.monotonic() - began, 3)}
        yield times
    finally:
        times["remove-s"] = _write(path, 0)


def _write(path: Path, count: int) -> float:
    began = time.monotonic()
    # In a process of its own: the driver may take minutes, and a stop of the test must not leave it half done.
    run(("sh", "-c", 'echo "$1" >"$2"', "sh", str(count), str(path)))
    return round(time.monotonic() - began, 3)


def _bound(function: Path) -> int:
    vfs = [name for name in names_in(function) if name.startswith("virtfn")]
    return sum((function / name / "driver").exists() for name in vfs)
