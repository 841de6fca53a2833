"""Wake the scan loop when something on the host may have changed: a link, a PCI or RDMA device, a file in a folder.

The contents of events do not matter, because a scan reads the whole host again. So lost or merged messages do no harm.
inotify does not report changes of sysfs attributes, so two of the kernel's event streams are used instead.
"""

import asyncio
import ctypes
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

# RTMGRP_LINK in include/uapi/linux/rtnetlink.h.
_LINK_GROUP = 1
# NETLINK_KOBJECT_UEVENT in include/uapi/linux/netlink.h; its one group carries the kernel's own events.
_UEVENTS, _UEVENT_GROUP = 15, 1
# Drivers bound and unbound, RDMA and vdpa devices. Links are reported by RTNETLINK; block devices do not matter.
_SUBSYSTEMS = (b"SUBSYSTEM=pci\0", b"SUBSYSTEM=infiniband\0", b"SUBSYSTEM=infiniband_verbs\0", b"SUBSYSTEM=vdpa\0")
# IN_ONLYDIR and close-after-write, moved from, moved to, created, deleted: sys/inotify.h.
_FILE_CHANGES = 0x01000000 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200
_BUFFER = 1 << 16
# Changes often arrive in groups: one scan starts so many seconds after the first change, for all of them ...
_GATHER_S = 0.1
# ... but not less than so many seconds after the previous scan.
_BETWEEN_SCANS_S = 0.5
# Drivers announce first and finish later (speed after carrier, RDMA device after netdev): scan again after so many
# seconds.
_SETTLED_S = 1.0


class HostEvents:
    """Events of the network namespace in which the object was created, of the kernel's devices, and of ``folders``."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._changed = asyncio.Event()
        self._stack = ExitStack()
        self._unsettled = False
        self._scanned_s = float("-inf")

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._listen(opening, socket.NETLINK_ROUTE, _LINK_GROUP, lambda _: True)
            # Only the initial network namespace of a user namespace gets uevents; elsewhere the resync must suffice.
            with suppress(OSError):
                self._listen(opening, _UEVENTS, _UEVENT_GROUP, _is_of_a_device)
            self._inotify = _open_inotify()
            opening.callback(os.close, self._inotify)
            self._add_reader(opening, self._inotify, lambda: os.read(self._inotify, _BUFFER), lambda _: True)
            self._stack = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def notify(self) -> None:
        self._changed.set()

    async def wait(self, resync_s: float) -> None:
        """Wait until a scan is due: soon after an event, again after it has settled, or after ``resync_s`` seconds.

        If ``resync_s`` is shorter than the settling time, the scan after settling still happens.
        """
        self._watch_folders()
        now = asyncio.get_running_loop().time
        self._scanned_s = now()
        try:
            async with asyncio.timeout(min(_SETTLED_S, resync_s) if self._unsettled else resync_s):
                await self._changed.wait()
        except TimeoutError:
            self._unsettled = self._unsettled and resync_s < _SETTLED_S
            return
        self._unsettled = True
        await asyncio.sleep(max(_GATHER_S, self._scanned_s + _BETWEEN_SCANS_S - now()))
        self._changed.clear()

    def _listen(self, stack: ExitStack, family: int, group: int, matters: Callable[[bytes], bool]) -> None:
        listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, family)
        stack.enter_context(listener)
        listener.bind((0, group))
        self._add_reader(stack, listener.fileno(), lambda: listener.recv(_BUFFER), matters)

    def _add_reader(
        self, stack: ExitStack, descriptor: int, read: Callable[[], bytes], matters: Callable[[bytes], bool]
    ) -> None:
        def drain() -> None:
            try:
                while True:
                    if matters(read()):
                        self._changed.set()
            except BlockingIOError:
                return
            except OSError:
                # ENOBUFS: messages were lost, which counts as a change.
                self._changed.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, drain)
        stack.callback(loop.remove_reader, descriptor)

    def _watch_folders(self) -> None:
        """Watch the folders that exist now; watching a folder twice has no effect."""
        for folder in self._folders:
            _libc.inotify_add_watch(self._inotify, os.fsencode(folder), _FILE_CHANGES)


_libc = ctypes.CDLL(None, use_errno=True)


def _open_inotify() -> int:
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return descriptor


def _is_of_a_device(message: bytes) -> bool:
    return any(subsystem in message for subsystem in _SUBSYSTEMS)
