"""Find processes by their arguments, and end them with all their children: by pid, never by name alone."""

import contextlib
import itertools
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PROC = Path("/proc")


def started_with(option: str, value: str, proc: Path = PROC) -> list[int]:
    """Return the processes that have ``option`` and ``value`` as two successive arguments."""
    return [pid for pid in _pids(proc) if (option, value) in itertools.pairwise(_arguments(pid, proc))]


def with_children(pids: Iterable[int], proc: Path = PROC) -> list[int]:
    """Return ``pids`` and all their descendants, parents first."""
    parents = {pid: _parent(pid, proc) for pid in _pids(proc)}
    family = [pid for pid in pids if pid in parents]
    for pid in family:
        family.extend(child for child, parent in parents.items() if parent == pid and child not in family)
    return family


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pids(proc: Path) -> Iterator[int]:
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


def _arguments(pid: int, proc: Path) -> Sequence[str]:
    try:
        text = (proc / str(pid) / "cmdline").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return text.split("\0")


def _parent(pid: int, proc: Path) -> int:
    """Return the parent's pid from /proc/<pid>/stat: the second field after the name in brackets (proc(5))."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[1])
