"""Take a socket over from the process that owns it: the side of the new process."""

import os
import socket
from pathlib import Path
from typing import BinaryIO

from cri_shim.handover.messages import LIMIT_S, MOST_BYTES, PROTOCOL, dump, meeting_place, read
from cri_shim.listen import ListenError
from cri_shim.notify import Systemd


class Predecessor:
    """The process that owns ``path``; ``lock`` is its lock, ``systemd`` is how it notifies systemd."""

    def __init__(self, path: Path) -> None:
        """Connect to the process; raise ListenError if there is none, or it refuses."""
        self._path = path
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        # A process that is handing over to another one answers only if that fails.
        self._connection.settimeout(LIMIT_S)
        try:
            self._connection.connect(str(meeting_place(path)))
            self.pid, self.lock, self.systemd = self._meet()
        except (FileNotFoundError, ConnectionRefusedError):
            self._connection.close()
            raise ListenError(
                f"socket {str(path)!r} has no server that can hand it over: restart mooring-cri-shim"
            ) from None
        except (OSError, ValueError, KeyError) as reason:
            self._connection.close()
            raise ListenError(f"the process that serves {str(path)!r} cannot hand it over: {reason}") from reason

    def _meet(self) -> tuple[int, BinaryIO, Systemd]:
        self._connection.send(dump({"handover": PROTOCOL}))
        packet, descriptors, _, _ = socket.recv_fds(self._connection, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        greeting = read(packet)
        if "refused" in greeting:
            raise PermissionError(greeting["refused"])
        if not descriptors:
            raise ValueError("it did not send its lock")
        lock = os.fdopen(descriptors[0], "rb")
        return int(greeting["pid"]), lock, Systemd(greeting["notify"], greeting["watchdog_s"])

    def take_charge(self) -> None:
        """Report that this process serves, and wait until it owns the socket; raise ListenError."""
        try:
            self._connection.send(dump({"serving": True}))
            read(self._connection.recv(MOST_BYTES))
        except (OSError, ValueError) as reason:
            raise ListenError(f"process {self.pid} did not hand over {str(self._path)!r}: {reason}") from reason

    def leave(self) -> None:
        """Close the connection; before `take_charge` this changes nothing."""
        self._connection.close()
