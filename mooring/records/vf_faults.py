"""What keeps pods of this node from VFs, ``<run>/extract/vf-faults.json``: written by mooring-cni's server.

    {"v":1,"unavailable":"state folder '/var/lib/mooring' is not writable: …","faults":["…"],"count":1,
      "foreign":[{"path":"/var/lib/mooring/vfs/x","why":"a named pipe, not a regular file"}]}

``unavailable`` is why no pod can be given a VF now, empty if one can; ``faults`` keep some VFs. ``foreign`` is what
lies in the folders of the records and is none, at most 50 of ``count``. From it the advertiser makes the inventory's
`out`, the node's condition and metrics. The server replaces the file whole when it has found something else.
A field that a reader does not know is ignored: the programs may be of different versions while a node is upgraded.
"""

from dataclasses import dataclass

from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.records.extract import FOLDER

NAME = f"{FOLDER}/vf-faults.json"
_MOST, _LONGEST = 50, 512
_MOST_COUNT = 1 << 24


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """What lies at a path and is no record, and why it is none."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class VfFaults:
    """What is wrong on a node with its VFs, and with the folders of their records."""

    unavailable: str = ""
    faults: tuple[str, ...] = ()
    foreign: tuple[ForeignEntry, ...] = ()
    count: int = 0


def read_vf_faults(text: str) -> VfFaults:
    """Read the file's text; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return VfFaults(
        unavailable=document.required("unavailable").string(_LONGEST),
        faults=tuple(fault.string(_LONGEST) for fault in document.required("faults").items(_MOST)),
        foreign=tuple(map(_foreign, document.required("foreign").items(_MOST))),
        count=document.required("count").integer(0, _MOST_COUNT),
    )


def dump_vf_faults(found: VfFaults) -> str:
    """Write it, with what is too long or too much left out."""
    foreign = [{"path": each.path[:_LONGEST], "why": each.why[:_LONGEST]} for each in found.foreign[:_MOST]]
    faults = [fault[:_LONGEST] for fault in found.faults[:_MOST]]
    unavailable = found.unavailable[:_LONGEST]
    return dump({"v": 1, "unavailable": unavailable, "faults": faults, "foreign": foreign, "count": found.count})


def _foreign(value: Value) -> ForeignEntry:
    fields = value.fields()
    return ForeignEntry(*(fields.required(name).string(_LONGEST) for name in ("path", "why")))
