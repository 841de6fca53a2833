"""The ledger ``<state>/vfs/<pci>.json``: one entry for each assigned VF, written before the first change to the VF.

    {"v":1,"pci":"0000:3b:00.2","pf":"enp59s0f0","vf":0,"phase":"held","boot":"5f1c…","uid":"8c2f…","pod":"ns/name",
     "container":"<sandbox id>","ifname":"net1","netns":{"path":"/var/run/netns/cni-…","cookie":4711},
     "original":{"name":"enp59s0f0v0","altnames":["…"],"mtu":1500,"netdev_mac":"…","mac":"…","vlan":0,…},
     "set":{"min_tx_rate":15000,…},"addresses":["10.0.0.2/24"],"ipam":{"ifname":"net1","conf":{…}},
     "attachment":{"name":"mooring","ifname":"eth0","network":"rail0"}}

Only mooring-cni writes it. The shim reads whether a sandbox holds a VF, and the advertiser who holds which VF.

What it is: an undo log with one record per VF. The phase defines what can differ from ``original``:

    no entry     nothing: the VF is on the host      ``taking``     anything: an ADD runs, or was killed
    ``held``     everything that ADD changes         ``returning``  anything: a release runs, or was killed

    no entry → taking → held → returning → no entry; taking → returning if an ADD fails or was killed;
    no entry → returning if a VF without an entry is found in a pod (`cni.vf.detach.unrecorded`)

Four fields are rare. ``"share":true``: the min_tx_rate is the operator's default share (`mooring.records.node_offer`),
which reserves nothing and does not count in sums. ``"reset_at":"2026-11-22T14:00:00Z"``: when the PF last lost the
settings, for example by a reload of its driver, and they were set again. ``"deleted":true``: the runtime has called DEL
or GC for the container, so the VF can be taken from any namespace into which the pod has moved it.
``"rdma_only":true``: the pod requested only the RDMA device; the VF's netdev, if it has one, stays on the host and is
down.

Beside an entry there can be the note ``<state>/in-doubt/<pci>``, an empty file: the PF has rejected a setting, so the
settings that it reports may not be in force (`mooring.nic.write_again`). They are written again before another pod gets
the VF. It is no field of the entry, because release 0.1.0 rejects entries with fields that it does not know. A note
without an entry means nothing.

Why it is correct. The entry is on disk before the first change to its VF, and is removed after the last change is
undone. So after a crash at any moment there is either nothing to undo, or an entry that describes what to undo.
``original`` is read once, before the first change, and never overwritten. Undoing needs only the entry and the kernel's
current state, no count of completed steps, and can be repeated any number of times. A writer of an entry holds the VF's
lock (`mooring.locks`), which the kernel releases when the holder dies. Files are replaced atomically (`mooring.files`),
so readers need no lock, and with a full disk the old file stays. Nothing is identified by a name that can be reused. A
VF is identified by its PCI address, from which its PF and its devices are found under their current names. A namespace
is identified by its cookie (SO_NETNS_COOKIE), because paths and inode numbers are reused at once. Namespaces, processes
and settings belong to one ``boot``.

What it costs. The VFs of an ADD are entered together, and later marked `held` together: one fsync for each file, and
one for the folder. Each VF with addresses from IPAM is written once more as soon as it has them. A release is one write
and one removal, each with an fsync of the folder. A query about one VF reads one small file. DEL, CHECK, GC and the
reconciler read all entries, one for each VF in use.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mooring import names
from mooring.errors import RecordError
from mooring.indexes import LAST
from mooring.nic.pci import NOT_AN_ADDRESS, is_address
from mooring.nic.settings import SETTING_NAMES, VfSettings, read_found_settings
from mooring.parsing import Value, dump, parse

FOLDER = "vfs"
IN_DOUBT = "in-doubt"
Phase = Literal["taking", "held", "returning"]
IS_NAME = names.with_suffix(is_address)
_PHASES: tuple[Phase, Phase, Phase] = ("taking", "held", "returning")
_PLAIN = ("pf", "vf", "phase", "boot", "uid", "pod", "container", "ifname")
_OPTIONAL = ("set", "addresses", "ipam", "rdma", "attachment", "share", "reset_at", "deleted", "rdma_only")
_FIELDS = frozenset((*_PLAIN, *_OPTIONAL, "v", "pci", "netns", "original"))
_ORIGINAL = frozenset(
    (*SETTING_NAMES, "name", "altnames", "mtu", "netdev_mac", "up", "users", "flags", "txqueuelen", "parent", "netdev")
)
_ATTACHMENT = ("name", "ifname", "network")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_MOST_ENTRIES = 64
# The limit of a netdev's state of one kind: an alias has up to 255 bytes, each written as two digits.
_LONGEST_TEXT = 1024
# PATH_MAX.
_LONGEST_PATH = 4096
# PID_MAX_LIMIT of a 64-bit kernel, and more monitors than any host runs.
_MOST_PID, _MOST_PIDS = 1 << 22, 4096


@dataclass(frozen=True, slots=True)
class Netns:
    """A network namespace: the path from the runtime, and the kernel's cookie, which is never reused."""

    path: str
    cookie: int


@dataclass(frozen=True, slots=True)
class Original:
    """A VF's original state: name, altnames, MTU, MAC and up state of its netdev, and its settings.

    ``name`` is None for a VF without a netdev. ``flags`` are the IFF_* flags of the netdev that a pod can change;
    ``txqueuelen`` is in packets. ``users`` are the host's own processes (monitors) that had the RDMA device open, so
    that they are not mistaken for the pod's when the VF is restored. ``parent`` is the PCI address that the kernel
    reports for the netdev (IFLA_PARENT_DEV_NAME), which no pod can change; None if the kernel reports none, and in
    entries of earlier versions. ``netdev`` is other state of the netdev that a pod could change, as opaque texts by
    kind (`cni.kernel.netdev.netdev_state`); empty in entries of earlier versions.
    """

    name: str | None = None
    altnames: tuple[str, ...] = ()
    mtu: int | None = None
    netdev_mac: str | None = None
    up: bool = False
    settings: VfSettings = field(default_factory=VfSettings)
    users: tuple[int, ...] = ()
    flags: int | None = None
    txqueuelen: int | None = None
    parent: str | None = None
    netdev: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Ipam:
    """The IPAM call that allocated the addresses, to release them: CNI_IFNAME, its conf, and the plugins' folders."""

    ifname: str
    conf: Mapping[str, object] = field(hash=False)
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attachment:
    """The CNI call that attached a VF: its configuration's ``name``, CNI_IFNAME, and Mooring's network of the VF."""

    name: str
    ifname: str
    network: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The ledger's entry for one VF; the module's docstring describes the fields, and the note for ``in_doubt``."""

    pci: str
    pf: str
    vf: int
    phase: Phase
    boot: str
    uid: str
    pod: str
    container: str
    ifname: str
    netns: Netns
    original: Original
    set: VfSettings = field(default_factory=VfSettings)
    addresses: tuple[str, ...] = ()
    ipam: Ipam | None = None
    rdma: str | None = None
    attachment: Attachment | None = None
    share: bool = False
    reset_at: str | None = None
    deleted: bool = False
    rdma_only: bool = False
    in_doubt: bool = False

    @property
    def has_interface(self) -> bool:
        """Whether the pod has a network interface for the VF."""
        return self.original.name is not None and not self.rdma_only

    @property
    def reserved_mbps(self) -> int:
        """The Mb/s that the VF reserves of its PF's line rate: its min_tx_rate, unless that is a default share."""
        return 0 if self.share else self.set.min_tx_rate or 0


def ledger_name(address: str) -> str:
    """Return an entry's path below the state folder; raise RecordError if ``address`` is not a PCI address."""
    if not is_address(address):
        raise RecordError(FOLDER, "", f"{address!r} {NOT_AN_ADDRESS}")
    return f"{FOLDER}/{address}.json"


def doubt_name(address: str) -> str:
    """Return the path of the note of a VF in doubt, below the state folder."""
    return f"{IN_DOUBT}/{address}"


def read_ledger_entry(text: str, name: str) -> LedgerEntry:
    """Read the entry stored under ``name``; raise RecordError, also if it belongs to another VF."""
    whole = parse(text, name, RecordError).version(1)
    document = whole.fields(_FIELDS)
    entry = LedgerEntry(
        pci=names.address(document.required("pci")),
        pf=names.interface(document.required("pf")),
        vf=document.required("vf").integer(0, LAST),
        phase=document.required("phase").choice(*_PHASES),
        boot=document.required("boot").string(longest=64),
        uid=names.uid(document.required("uid")),
        pod=document.required("pod").string(longest=512),
        container=document.required("container").string(longest=256),
        ifname=names.interface(document.required("ifname")),
        netns=_netns(document.required("netns")),
        original=_original(document.required("original")),
        set=document.optional("set", lambda value: read_found_settings(value.fields(SETTING_NAMES))) or VfSettings(),
        addresses=document.optional("addresses", _strings) or (),
        ipam=document.optional("ipam", _ipam),
        rdma=document.optional("rdma", names.rdma),
        attachment=document.optional("attachment", _attachment),
        share=document.optional("share", Value.boolean) or False,
        reset_at=document.optional("reset_at", lambda at: at.match(_TIME, "a time such as '2026-11-22T14:00:00Z'")),
        deleted=document.optional("deleted", Value.boolean) or False,
        rdma_only=document.optional("rdma_only", Value.boolean) or False,
    )
    if ledger_name(entry.pci) != name:
        whole.fail(f"holds the entry of {entry.pci!r}")
    return entry


def dump_ledger_entry(entry: LedgerEntry) -> str:
    document: dict[str, object] = {
        "v": 1,
        "netns": {"path": entry.netns.path, "cookie": entry.netns.cookie},
        "original": _dump_original(entry.original),
        "set": entry.set.to_fields(),
    }
    for name in ("pci", *_PLAIN):
        document[name] = getattr(entry, name)
    if entry.addresses:
        document["addresses"] = list(entry.addresses)
    if entry.ipam is not None:
        document["ipam"] = {
            "ifname": entry.ipam.ifname,
            "conf": dict(entry.ipam.conf),
            "path": list(entry.ipam.path),
        }
    if entry.rdma is not None:
        document["rdma"] = entry.rdma
    if entry.attachment is not None:
        document["attachment"] = {name: getattr(entry.attachment, name) for name in _ATTACHMENT}
    for name in ("share", "deleted", "rdma_only"):
        if getattr(entry, name):
            document[name] = True
    if entry.reset_at is not None:
        document["reset_at"] = entry.reset_at
    return dump(document)


def _netns(value: Value) -> Netns:
    document = value.fields({"path", "cookie"})
    return Netns(
        path=document.required("path").string(longest=_LONGEST_PATH),
        cookie=document.required("cookie").integer(0, 2**64 - 1),
    )


def _original(value: Value) -> Original:
    document = value.fields(_ORIGINAL)
    return Original(
        name=document.optional("name", names.interface),
        altnames=document.optional("altnames", _strings) or (),
        mtu=document.optional("mtu", lambda mtu: mtu.integer(0, 2**31 - 1)),
        netdev_mac=document.optional("netdev_mac", lambda mac: mac.string(longest=64)),
        up=document.optional("up", Value.boolean) or False,
        settings=read_found_settings(document),
        users=document.optional("users", _pids) or (),
        flags=document.optional("flags", _u32),
        txqueuelen=document.optional("txqueuelen", _u32),
        parent=document.optional("parent", names.address),
        netdev=document.optional("netdev", _texts) or {},
    )


def _ipam(value: Value) -> Ipam:
    document = value.fields({"ifname", "conf", "path"})
    return Ipam(
        ifname=names.interface(document.required("ifname")),
        conf=dict(document.required("conf").fields().raw),
        path=document.optional("path", _paths) or (),
    )


def _attachment(value: Value) -> Attachment:
    document = value.fields(_ATTACHMENT)
    return Attachment(
        name=document.required("name").string(longest=256),
        ifname=names.interface(document.required("ifname")),
        network=names.network(document.required("network")),
    )


def _strings(value: Value) -> tuple[str, ...]:
    return tuple(item.string(longest=256) for item in value.items(_MOST_ENTRIES))


def _paths(value: Value) -> tuple[str, ...]:
    return tuple(item.string(longest=_LONGEST_PATH) for item in value.items(_MOST_ENTRIES))


def _texts(value: Value) -> Mapping[str, str]:
    return {kind: text.string(longest=_LONGEST_TEXT) for kind, text in value.fields().items()}


def _u32(value: Value) -> int:
    return value.integer(0, 2**32 - 1)


def _pids(value: Value) -> tuple[int, ...]:
    return tuple(item.integer(0, _MOST_PID) for item in value.items(_MOST_PIDS))


def _dump_original(original: Original) -> dict[str, object]:
    fields = {
        "name": original.name,
        "altnames": list(original.altnames) or None,
        "mtu": original.mtu,
        "netdev_mac": original.netdev_mac,
        "up": True if original.up else None,
        "users": list(original.users) or None,
        "flags": original.flags,
        "txqueuelen": original.txqueuelen,
        "parent": original.parent,
        "netdev": dict(original.netdev) or None,
    }
    return original.settings.to_fields() | {name: value for name, value in fields.items() if value is not None}
