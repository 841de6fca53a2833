"""Report the program's state to systemd with the protocol of sd_notify(3): one datagram for each message."""

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Systemd:
    """How to notify systemd: $NOTIFY_SOCKET, and the interval of watchdog messages in seconds (None: no watchdog)."""

    socket: str | None = None
    watchdog_s: float | None = None


def notify(address: str | None, state: str) -> None:
    """Send ``state`` (``READY=1``, ``WATCHDOG=1``, ``MAINPID=…``) to $NOTIFY_SOCKET; do nothing without one."""
    if not address:
        return
    # A leading "@" means the abstract namespace, written as a NUL byte.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect(target)
        sender.send(state.encode())


def watchdog_interval_s(timeout_us: str | None) -> float | None:
    """Return the interval of WATCHDOG=1 for $WATCHDOG_USEC: half the timeout, as sd_watchdog_enabled(3) advises."""
    return int(timeout_us) / 2e6 if timeout_us and timeout_us.isdigit() and int(timeout_us) else None
