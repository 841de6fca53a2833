"""The record of a bypass of a failed shim, ``<run>/extract/shim-bypass.json``: written by mooring-shim-bypass.

    {"v":1,"since":"2026-11-22T14:00:00Z","why":"mooring-cri-shim has not served …"}

It exists from the moment when the socket becomes a link until the shim receives the kubelet's calls again. The
advertiser derives the node's condition from it, and `mooring-node check` a finding. Readers ignore unknown fields,
because the programs can be of different versions while a node is upgraded.
"""

from dataclasses import dataclass

from mooring.errors import RecordError
from mooring.parsing import dump, parse
from mooring.records.extract import FOLDER

NAME = f"{FOLDER}/shim-bypass.json"
_LONGEST_SINCE, _LONGEST = 32, 512


@dataclass(frozen=True, slots=True)
class ShimBypass:
    """A bypass; ``since`` is its start in RFC 3339, ``why`` the reason for the operator."""

    since: str
    why: str


def read_shim_bypass(text: str) -> ShimBypass:
    """Read the file's text; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return ShimBypass(document.required("since").string(_LONGEST_SINCE), document.required("why").string(_LONGEST))


def dump_shim_bypass(bypass: ShimBypass) -> str:
    return dump({"v": 1, "since": bypass.since, "why": bypass.why[:_LONGEST]})
