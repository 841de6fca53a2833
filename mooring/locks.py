"""Locks that end with their holder: flock on files that are never removed.

``<run>/locks/<pci>``, one per VF and one per PF. Order: VFs, then PFs, each by PCI address. `mooring-advertiser init`
alone tries a VF's lock under its PF's, for a second at most. If lock files were unlinked, one program could hold an
unlinked file and another a new one: both would hold "the" lock.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

FOLDER = "locks"
_POLL_S = 0.01


class LockBusyError(TimeoutError):
    """Another process holds the lock for longer than the limit; the text names it."""


@contextmanager
def hold(run: Path, pci: str, limit_s: float) -> Iterator[int]:
    """Hold the lock of one PCI function; raise LockBusyError after ``limit_s`` seconds of waiting.

    Yields the lock's descriptor: a program that inherits it holds the lock as well, even after this process ends.
    """
    folder = run / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / pci, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(descriptor, pci, time.monotonic() + limit_s)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def hold_all(run: Path, pcis: Sequence[str], limit_s: float) -> Iterator[None]:
    """Hold the locks of several functions of one kind, taken in the order of their addresses.

    Raise LockBusyError after ``limit_s`` seconds of waiting for all of them together.
    """
    deadline = time.monotonic() + limit_s
    with ExitStack() as stack:
        for pci in sorted(set(pcis)):
            stack.enter_context(hold(run, pci, deadline - time.monotonic()))
        yield


@contextmanager
def share(path: Path) -> Iterator[None]:
    """Hold the lock file at ``path`` together with others, for `is_shared`; raise OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_shared(path: Path) -> bool:
    """Return whether a process holds the lock file at ``path``; raise OSError where there is none.

    A descriptor that can only read will do (flock(2)): the file may be on a mount that is read-only here.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _take(descriptor: int, pci: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockBusyError(f"the lock of {pci!r} is held by another call") from None
            time.sleep(_POLL_S)
        else:
            return
