"""The faults that keep pods of this node from getting VFs, ``<run>/extract/vf-faults.json``: by mooring-cni's server.

    {"v":1,"unavailable":"state folder '/var/lib/mooring' is not writable: …","faults":["…"],"count":1,
      "foreign":[{"path":"/var/lib/mooring/vfs/x","why":"a named pipe, not a regular file"}],
      "inactive_ports":[{"pod":"ns/p","uid":"8c2f…","pf":"ib0","vf":3,"pci":"0000:3b:00.5","state":"INIT"}]}

``unavailable`` is why no pod can get a VF now, empty if pods can; ``faults`` affect some VFs. ``foreign`` are entries
in the record folders that are not records, at most 50 of ``count``. ``inactive_ports`` are InfiniBand VFs in pods whose
port has not become active, absent if there are none. The advertiser derives the inventory's `out`, the
node's condition and metrics from it. The server replaces the file when its findings change. Readers ignore unknown
fields, because the programs can be of different versions while a node is upgraded.
"""

from dataclasses import asdict, dataclass

from mooring import names
from mooring.errors import RecordError
from mooring.indexes import LAST
from mooring.parsing import Fields, Value, dump, parse
from mooring.records.extract import FOLDER

NAME = f"{FOLDER}/vf-faults.json"
_MOST_ENTRIES, _MOST_PORTS, _LONGEST = 50, 4096, 512
_MOST_COUNT = 1 << 24


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """An entry at a path that is not a record, and why it is not."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class InactivePort:
    """A VF in a pod whose port is in ``state`` long after ADD; ``pod`` is namespace/name."""

    pod: str
    uid: str
    pf: str
    vf: int
    pci: str
    state: str


@dataclass(frozen=True, slots=True)
class VfFaults:
    """The faults of a node's VFs, and the foreign entries in its record folders."""

    unavailable: str = ""
    faults: tuple[str, ...] = ()
    foreign: tuple[ForeignEntry, ...] = ()
    count: int = 0
    inactive_ports: tuple[InactivePort, ...] = ()


def read_vf_faults(text: str) -> VfFaults:
    """Read the file's text; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return VfFaults(
        unavailable=document.required("unavailable").string(_LONGEST),
        faults=tuple(fault.string(_LONGEST) for fault in document.required("faults").items(_MOST_ENTRIES)),
        foreign=tuple(map(_foreign, document.required("foreign").items(_MOST_ENTRIES))),
        count=document.required("count").integer(0, _MOST_COUNT),
        inactive_ports=document.optional("inactive_ports", _ports) or (),
    )


def dump_vf_faults(report: VfFaults) -> str:
    """Return the file's text; omit entries, and parts of texts, beyond the limits."""
    foreign = [{"path": entry.path[:_LONGEST], "why": entry.why[:_LONGEST]} for entry in report.foreign[:_MOST_ENTRIES]]
    faults = [fault[:_LONGEST] for fault in report.faults[:_MOST_ENTRIES]]
    unavailable = report.unavailable[:_LONGEST]
    ports = [asdict(port) for port in report.inactive_ports[:_MOST_PORTS]]
    document = {"v": 1, "unavailable": unavailable, "faults": faults, "foreign": foreign, "count": report.count}
    return dump(document | ({"inactive_ports": ports} if ports else {}))


def _ports(value: Value) -> tuple[InactivePort, ...]:
    return tuple(_port(item.fields()) for item in value.items(_MOST_PORTS))


def _port(document: Fields) -> InactivePort:
    return InactivePort(
        pod=document.required("pod").string(_LONGEST),
        uid=names.uid(document.required("uid")),
        pf=names.interface(document.required("pf")),
        vf=document.required("vf").integer(0, LAST),
        pci=names.address(document.required("pci")),
        state=document.required("state").string(_LONGEST),
    )


def _foreign(value: Value) -> ForeignEntry:
    fields = value.fields()
    return ForeignEntry(*(fields.required(name).string(_LONGEST) for name in ("path", "why")))
