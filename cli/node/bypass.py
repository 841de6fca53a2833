"""Store the operator's decision that the kubelet bypasses the shim and uses the runtime directly.

The decision is in a file beside the journal, readable by root only, so it survives a reboot, and all commands honour
it:

    {"v":1,"state":"on","since":"2026-11-22T14:00:00Z"}

``state`` is `turning on` before the first change, and `turning off` before the first change back. After a run that was
killed, the same command continues from there and restarts the kubelet.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from cli.node.apply import put
from cli.node.errors import NodeError
from cli.node.look import below
from cli.node.plan.states import File
from mooring.files import read_file
from mooring.parsing import decode

FILE = "/var/lib/mooring/install/bypass.json"
State = Literal["turning on", "on", "turning off"]
_ROOT_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Bypass:
    """A bypass; ``since`` is when it was turned on, in RFC 3339."""

    state: State
    since: str


def read(root: Path) -> Bypass | None:
    """Return a host's bypass, None without one; raise NodeError if it cannot be read."""
    path = below(root, FILE)
    try:
        if (text := read_file(path)) is None:
            return None
        document = decode(text)
        if document["v"] != 1 or document["state"] not in get_args(State):
            raise ValueError(f"version {document['v']!r}, state {document['state']!r}")
        return Bypass(document["state"], str(document["since"]))
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise NodeError(f"bypass {str(path)!r} cannot be read: {wrong!r}") from wrong


def write(root: Path, bypass: Bypass) -> None:
    document = {"v": 1, "state": bypass.state, "since": bypass.since}
    put(below(root, FILE), File(json.dumps(document), _ROOT_ONLY))


def remove(root: Path) -> None:
    put(below(root, FILE), None)
