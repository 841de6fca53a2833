"""What two processes say to each other when one takes a socket over: at ``<path>.handover``, one packet a message.

    taker → holder   {"handover": 1}
    holder → taker   {"pid": …, "notify": "/run/systemd/notify", "watchdog_s": 15.0}, with the lock's descriptor; or
                     {"refused": "…"}
    taker → holder   {"serving": true}: it serves at its own name, and the runtime has answered through it
    holder → taker   {"yours": true}: the lock is the taker's alone now, and systemd knows it as the main process

Either may leave at any time; until the last message the holder is in charge. The lock's descriptor is the very one
(SCM_RIGHTS), so that there is no moment at which a third process could take it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROTOCOL = 1
MOST_BYTES = 4096
# From its greeting until it serves a process has so many seconds: ExecReload= has 90 (DefaultTimeoutStartSec).
LIMIT_S = 30.0


def meeting_place(path: Path) -> Path:
    """Return where the process in charge of ``path`` is asked for it."""
    return path.with_name(f"{path.name}.handover")


def dump(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


def read(packet: bytes) -> Mapping[str, Any]:
    """Return a message; raise ConnectionError for the end of the connection, ValueError for what is no message."""
    if not packet:
        raise ConnectionError("the other process closed the connection")
    message: Mapping[str, Any] = dict(json.loads(packet))
    return message
