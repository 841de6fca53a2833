"""The scheduler's decision: the annotation ``mooring.dev/assignment``, written with the Binding.

    {"v":1,"uid":"<pod uid>","node":"n1","vfs":[{"pf":"enp4s0f0","vf":3,"pci":"0000:04:00.5","link":"ethernet",
      "network":"rail0","min_tx_rate":15000,"max_tx_rate":20000}]}

One entry per requested interface, in order; the node reads nothing else. Readers reject unknown fields, because a field
that they do not understand would be a setting that they do not apply. It never contains names whose numbers can change
(uverbsN, mlx5_N).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from mooring import names
from mooring.annotations.request import MOST_INTERFACES, containers, wants_netdev
from mooring.errors import AnnotationError
from mooring.indexes import LAST
from mooring.nic.settings import SETTING_NAMES, VfSettings, read_settings
from mooring.parsing import Value, dump, parse

# The oldest release that a cluster can have, and for each field of an entry the first release whose node programs read
# it. The scheduler writes a later one only for nodes of that release (`scheduler.plugins.device_rules.node_programs`).
OLDEST_RELEASE = "0.1.0"
FIRST_RELEASE = dict.fromkeys(
    (*SETTING_NAMES, "pf", "vf", "pci", "link", "network", "name", "containers", "netdev"), OLDEST_RELEASE
)


@dataclass(frozen=True, slots=True)
class PodInterface:
    """What a pod sees of a VF: the interface name that the user requested, if any, and its containers (None: all).

    ``netdev`` is as in the request: False gives the pod only the RDMA device.
    """

    name: str | None = None
    containers: tuple[str, ...] | None = None
    netdev: bool | None = None


# One instance of equal values: pods of a large cluster have some hundred thousand VFs.
pod_interface = lru_cache(maxsize=1 << 10)(PodInterface)


@dataclass(frozen=True, slots=True)
class AssignedVf:
    """One VF of an assignment: PF name, VF index, PCI address, and the settings to apply."""

    pf: str
    vf: int
    pci: str
    link: names.LinkType
    network: str
    settings: VfSettings = field(default_factory=VfSettings)
    interface: PodInterface = field(default_factory=pod_interface)

    @property
    def name(self) -> str | None:
        return self.interface.name

    @property
    def containers(self) -> tuple[str, ...] | None:
        return self.interface.containers

    @property
    def netdev(self) -> bool | None:
        return self.interface.netdev

    @property
    def min_tx_rate(self) -> int:
        """The rate that this VF reserves, in Mb/s."""
        return self.settings.min_tx_rate or 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """The VFs of the pod ``uid`` on the node ``node``; ``ext`` has other kinds of resource as plain JSON, by kind."""

    uid: str
    node: str
    vfs: tuple[AssignedVf, ...]
    ext: Mapping[str, object] = field(default_factory=dict, hash=False)


def read_assignment(text: str) -> Assignment:
    """Read the annotation's value; raise AnnotationError."""
    return read_assignment_value(parse(text, names.ASSIGNMENT, AnnotationError))


def read_assignment_value(whole: Value) -> Assignment:
    """Read an assignment inside another document; raise that document's error."""
    document = whole.version(1).fields({"v", "uid", "node", "vfs", "ext"})
    vfs = document.required("vfs")
    entries = tuple(_vf(item) for item in vfs.items(MOST_INTERFACES))
    _refuse_duplicates(vfs, entries)
    return Assignment(
        uid=names.uid(document.required("uid")),
        node=names.subdomain(document.required("node")),
        vfs=entries,
        ext=document.optional("ext", lambda ext: dict(ext.fields().raw)) or {},
    )


def dump_assignment(assignment: Assignment) -> str:
    """Return an assignment as the annotation's value; equal assignments give equal strings."""
    return dump(assignment_fields(assignment))


def assignment_fields(assignment: Assignment) -> dict[str, object]:
    """Return an assignment as the JSON object in its annotation and in the pod record."""
    vfs = [_dump_vf(vf) for vf in assignment.vfs]
    document: dict[str, object] = {"v": 1, "uid": assignment.uid, "node": assignment.node, "vfs": vfs}
    if assignment.ext:
        document["ext"] = dict(assignment.ext)
    return document


def verified_assignment(annotations: Mapping[str, str], uid: str, node: str) -> Assignment | None:
    """Read the assignment from a pod's annotations and check that it is for the pod ``uid`` on ``node``.

    Return None if there is none. Raise AnnotationError if it cannot be read or names another pod or node.
    """
    text = annotations.get(names.ASSIGNMENT)
    if text is None:
        return None
    assignment = _read_canonical(text, uid, node) or read_assignment(text)
    for path, value, expected in (("uid", assignment.uid, uid), ("node", assignment.node, node)):
        if value != expected:
            raise AnnotationError(names.ASSIGNMENT, path, f"{value!r} is not this pod's {path} {expected!r}")
    return assignment


def _read_canonical(text: str, uid: str, node: str) -> Assignment | None:
    """Read a text in the form of `dump_assignment` for this pod and node, with any order of fields in its entries.

    Return None for other texts; `read_assignment` then reports the error. Each entry's text is parsed as a document of
    its own, with the same rules. Results are cached by text, so equal VFs of equal nodes are parsed once.
    """
    prefix = f'{{"node":"{node}","uid":"{uid}","v":1,"vfs":[{{'
    if not (text.startswith(prefix) and text.endswith("}]}") and names.is_uid(uid) and names.is_subdomain(node)):
        return None
    texts = text[len(prefix) : -3].split("},{", MOST_INTERFACES)
    entries = [
        entry
        for entry_text in texts
        if len(entry_text) <= _LONGEST_ENTRY and (entry := _read_entry(entry_text)) is not None
    ]
    identifiers = [entry.pci for entry in entries] + [entry.name for entry in entries if entry.name is not None]
    is_sound = len(entries) == len(texts) <= MOST_INTERFACES and len(set(identifiers)) == len(identifiers)
    return Assignment(uid, node, tuple(entries)) if is_sound else None


# Much longer than an entry without container names. The cache needs few entries: a node has some hundred VFs, and most
# nodes have the same ones.
_LONGEST_ENTRY = 256


@lru_cache(maxsize=1 << 14)
def _read_entry(fields: str) -> AssignedVf | None:
    try:
        return _vf(parse(f"{{{fields}}}", names.ASSIGNMENT, AnnotationError))
    except AnnotationError:
        return None


def _vf(value: Value) -> AssignedVf:
    document = value.fields(FIRST_RELEASE)
    return AssignedVf(
        pf=names.interface(document.required("pf")),
        vf=document.required("vf").integer(0, LAST),
        pci=names.address(document.required("pci")),
        link=names.link(document.required("link")),
        network=names.network(document.required("network")),
        settings=read_settings(document),
        interface=pod_interface(
            document.optional("name", names.interface),
            document.optional("containers", containers),
            wants_netdev(document),
        ),
    )


def _refuse_duplicates(value: Value, entries: tuple[AssignedVf, ...]) -> None:
    identifiers: set[str] = set()
    for index, entry in enumerate(entries):
        for path, name in (("pci", entry.pci), ("name", entry.name)):
            if name in identifiers:
                value.at(f"[{index}].{path}", None).fail(f"{name!r} is listed twice in one assignment")
            identifiers |= {name} if name is not None else set()


def _dump_vf(entry: AssignedVf) -> dict[str, object]:
    document = entry.settings.to_fields()
    document["pf"], document["vf"], document["pci"] = entry.pf, entry.vf, entry.pci
    document["link"], document["network"] = entry.link, entry.network
    interface = entry.interface
    if interface.name is not None:
        document["name"] = interface.name
    if interface.containers is not None:
        document["containers"] = list(interface.containers)
    if interface.netdev is not None:
        document["netdev"] = interface.netdev
    return document
