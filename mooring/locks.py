"""Locks that end with their holder: flock on files that are never removed.

The files are ``<run>/locks/<pci>``, one per VF and one per PF. The locking order is VFs, then PFs, each by PCI address.
Only `mooring-advertiser init` tries a VF's lock while it holds the PF's, for one second at most. Lock files are never
unlinked: otherwise one program could hold an unlinked file and another one a new file of the same name.
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
    """Another process held the lock for longer than the limit; the message names the lock."""


@contextmanager
def hold(run: Path, pci: str, limit_s: float) -> Iterator[int]:
    """Hold the lock of one PCI function; raise LockBusyError after waiting ``limit_s`` seconds.

    Yield the lock's descriptor: a program that inherits it also holds the lock, even after this process has ended.
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
def hold_locks(run: Path, pcis: Sequence[str], limit_s: float) -> Iterator[None]:
    """Hold the locks of several functions of one kind (VFs or PFs), taken in the order of their addresses.

    Raise LockBusyError after waiting ``limit_s`` seconds in total.
    """
    deadline = time.monotonic() + limit_s
    with ExitStack() as stack:
        for pci in sorted(set(pcis)):
            stack.enter_context(hold(run, pci, deadline - time.monotonic()))
        yield


@contextmanager
def share(path: Path) -> Iterator[None]:
    """Hold a shared lock on the file at ``path``, which `is_shared` detects; raise OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_shared(path: Path) -> bool:
    """Return whether a process holds the lock file at ``path``; raise OSError if it does not exist.

    A read-only descriptor suffices (flock(2)), because the file may be on a read-only mount.
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
