"""The state of this node's installation, ``<run>/extract/node-install.json``: written by `mooring-node fleet`, as root.

    {"v":1,"at":"2026-11-22T14:00:00Z","phase":"failed","release":"mooring-0.2.0-1f0c…","why":"no space left on device"}

``phase`` is `waiting` (for this node's turn), `working`, `installed`, `failed` or `removed`; ``why`` has the reason of
`waiting` and `failed`. The advertiser derives the node's condition from it. Without the file nobody installs this node
from the cluster. Readers ignore unknown fields, because the programs can be of different versions during an upgrade.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mooring.errors import RecordError
from mooring.parsing import dump, parse
from mooring.records.extract import FOLDER
from mooring.records.node_check import FORMAT, read_time

NAME = f"{FOLDER}/node-install.json"
Phase = Literal["waiting", "working", "installed", "failed", "removed"]
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class NodeInstall:
    """The state since ``at``, in UTC; ``release`` is the one that the cluster wants."""

    at: datetime
    phase: Phase
    release: str
    why: str = ""


def read_node_install(text: str) -> NodeInstall:
    """Read the file's text; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return NodeInstall(
        at=read_time(document.required("at")),
        phase=document.required("phase").choice("waiting", "working", "installed", "failed", "removed"),
        release=document.required("release").string(_LONGEST),
        why=document.required("why").string(_LONGEST),
    )


def dump_node_install(state: NodeInstall) -> str:
    """Return the file's text; the reason is cut to its limit."""
    at = state.at.strftime(FORMAT)
    return dump({"v": 1, "at": at, "phase": state.phase, "release": state.release, "why": state.why[:_LONGEST]})
