"""The messages of a handover between two processes, at ``<path>.handover``, one packet for each message.

    taker → holder   {"handover": 1}
    holder → taker   {"pid": …, "notify": "/run/systemd/notify", "watchdog_s": 15.0}, with the lock's descriptor; or
                     {"refused": "…"}
    taker → holder   {"serving": true}: it serves at its own name, and the runtime has answered through it
    holder → taker   {"yours": true}: only the taker has the lock now, and it is systemd's main process

Either side may disconnect at any time; the holder owns the socket until the last message. The holder passes its own
descriptor of the lock (SCM_RIGHTS), so that no third process can take the lock in between.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mooring.parsing import decode

PROTOCOL = 1
MOST_BYTES = 4096
# Seconds for the whole handover; ExecReload= has 90 (DefaultTimeoutStartSec).
LIMIT_S = 30.0


def meeting_place(path: Path) -> Path:
    """Return the path of the socket at which the owner of ``path`` accepts handovers."""
    return path.with_name(f"{path.name}.handover")


def dump(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


def read(packet: bytes) -> Mapping[str, Any]:
    """Decode a message; raise ConnectionError if the connection ended, ValueError if it is not a message."""
    if not packet:
        raise ConnectionError("the other process closed the connection")
    message = decode(packet)
    if type(message) is not dict:
        raise ValueError(f"message {packet[:100]!r} is not a JSON object")
    return message
