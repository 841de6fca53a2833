"""A node's inventory: the annotation ``mooring.dev/inventory``, written by the node's advertiser.

    {"v":1,"boot":"5f1c…","pfs":[{"name":"enp4s0f0","pci":"0000:04:00.0","rdma":"mlx5_0","link":"ethernet",
      "mbps":100000,"offer_mbps":90000,"up":true,"numa":0,"pcie":["0000:00:01.0"],"network":"rail0",
      "can":["max_tx_rate","min_tx_rate"],"allow":{"vlan":"100-199"},"vf0":"0000:04:00.2","stride":1,"vfs":"0-9,20-119",
      "out":[{"vfs":"7","why":"bound to vfio-pci"}]}]}

It has no counters of used VFs: usage is derived from assignments. ``"rates":true`` beside ``pfs`` means that the node
changes rates of running pods (`mooring.annotations.rates`); advertisers of earlier versions do not write it.
``"handlers":["runc","nvidia"]`` are the runtime handlers whose pods the CRI shim gives VFs; without it they are
unknown. Readers ignore unknown fields.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from mooring import names
from mooring.annotations import pf_terms
from mooring.annotations.pf_terms import Access, Allow
from mooring.errors import AnnotationError
from mooring.indexes import LAST, Indexes
from mooring.nic import pci
from mooring.nic.settings import MAX_RATE_MBPS
from mooring.parsing import Fields, Value, dump, parse, shorten
from mooring.records.runtime_handlers import handlers

_MOST_PFS = 256
# The limit of VF indexes of a PF, and of VFs of a node, including those that are out. SR-IOV's 16 bits allow 65,535 per
# PF, but no device has a thousand. 240 VFs take 2,048 characters; a thousand VFs that are all out for different reasons
# take 90,000.
MOST_VFS = 4096
MOST_INVENTORY_CHARACTERS = 128 * 1024
_MOST_WORDS = 64
# The rates that a hardware test checks, and their states: ``requested``: the rate can be set and read back, but was not
# tested; ``shown``: the test showed that the NIC enforces it; ``differs``: the test showed that it does not.
TESTED_RATES = ("min_tx_rate", "max_tx_rate")
TestOutcome = Literal["shown", "differs"]
RateState = Literal["requested", "shown", "differs"]
# `Out.why` of a VF that a pod holds although it has no assignment for it: this text, then the pod's uid.
HELD_BY = "held by pod "
# The beginning of `Out.why` of a VF that is on the host although a pod holds it; the text names the pod's uid.
LOST = "lost: "


@dataclass(frozen=True, slots=True)
class Out:
    """VFs that cannot be used now, for one reason; ``min_tx_rate`` is what each of them still reserves, in Mb/s."""

    vfs: Indexes
    why: str
    min_tx_rate: int = 0


@dataclass(frozen=True, slots=True)
class Pf:
    """One physical function and its VFs.

    ``mbps`` is the line rate and ``offer_mbps`` the share of it that pods can reserve, both in Mb/s, 0 if the rate is
    unknown. ``vfs`` are the indexes on offer, ``out`` those that cannot be used now. ``can`` names the settings that
    the driver supports, ``pcie`` the bridges from the root down. ``vf0`` is absent only if no VF is on offer. PFs with
    the same ``port`` share a cable: together they can reserve the smallest of their ``offer_mbps``. ``vlan`` is the
    VLAN id that the node gives every VF, whatever the pod requests; None if it forces none. ``vf_netdevs``: every VF
    has a netdev; None if that is not reported: on Ethernet, where a VF without one is out, and by earlier versions.
    ``tested`` is what a hardware test on this host has found about rates in ``can``; rates that are absent were not
    tested. ``allow`` and ``access`` are the operator's terms (`mooring.annotations.pf_terms`).
    """

    name: str
    pci: str
    link: names.LinkType
    network: str
    mbps: int
    offer_mbps: int
    up: bool
    vfs: Indexes
    vf0: str | None = None
    stride: int = 1
    rdma: str | None = None
    numa: int | None = None
    pcie: tuple[str, ...] = ()
    can: frozenset[str] = frozenset()
    allow: Allow = field(default_factory=Allow)
    out: tuple[Out, ...] = ()
    port: str | None = None
    vlan: int | None = None
    vf_netdevs: bool | None = None
    tested: Mapping[str, TestOutcome] = field(default_factory=dict, hash=False)
    access: Access = field(default_factory=Access)

    def rate_state(self, setting: str) -> RateState | None:
        """Return what is known of a rate on this PF, None if the PF does not support it."""
        return self.tested.get(setting, "requested") if setting in self.can else None

    @property
    def usable(self) -> Indexes:
        """The VFs on offer that no ``out`` entry names."""
        usable = self.vfs
        for entry in self.out:
            usable -= entry.vfs
        return usable

    @property
    def named_vfs(self) -> int:
        """How many VFs are on offer or out."""
        mask = self.vfs.mask
        for entry in self.out:
            mask |= entry.vfs.mask
        return mask.bit_count()

    def vf_pci(self, index: int) -> str:
        """Return the PCI address of VF ``index``; raise ValueError if the PF has no VFs."""
        if self.vf0 is None:
            raise ValueError(f"pf {self.name!r} has no VFs")
        return pci.vf_address(self.vf0, self.stride, index)

    def lists(self, index: int, address: str) -> bool:
        """Return whether VF ``index`` is on offer and has this PCI address."""
        return index in self.vfs and self.vf_pci(index) == address


# The programs of a node, with their names in ``programs``.
ADVERTISER, CNI, CRI_SHIM = NODE_PROGRAMS = ("mooring-advertiser", "mooring-cni", "mooring-cri-shim")


@dataclass(frozen=True, slots=True)
class Inventory:
    """A node's PFs during the boot ``boot``; ``programs`` are the versions of its programs.

    ``rates``: the node changes rates of running pods, and publishes which ones are in force. ``handlers`` are the
    runtime handlers whose pods get VFs here, None if they are unknown.
    """

    boot: str
    pfs: tuple[Pf, ...]
    programs: Mapping[str, str] = field(default_factory=dict, hash=False)
    rates: bool = False
    handlers: frozenset[str] | None = None

    @property
    def lacks_shim(self) -> bool:
        """Whether the CRI shim has not started in this boot, so that a pod would silently run without its VFs.

        False for an inventory without the advertiser's version, which another program has published.
        """
        return ADVERTISER in self.programs and CRI_SHIM not in self.programs

    def pf(self, name: str) -> Pf | None:
        return next((pf for pf in self.pfs if pf.name == name), None)


def read_inventory(text: str) -> Inventory:
    """Read the annotation's value; raise AnnotationError.

    Nodes of one model differ only in ``boot``, which comes first, so the rest is parsed once for all of them.
    """
    match = _CANONICAL.fullmatch(text)
    inventory = _read_rest(match[2]) if match else None
    return replace(inventory, boot=match[1]) if match and inventory else _read(text)


# The form of `dump_inventory` without escapes. Long inventories are rare and not cached, to save memory.
_CANONICAL = re.compile(r'\{"boot":"([ !#-\[\]-~]{0,64})"(.{0,8192})', re.DOTALL)


# Inventories with more entries of `out` are not cached: parsed, an entry can take a hundred times its characters.
_FEW_OUT = 16


@lru_cache(maxsize=1 << 8)
def _read_rest(rest: str) -> Inventory | None:
    """Read an inventory without its boot id; None if it is invalid, or too large to be cached."""
    if rest.count('"why"') > _FEW_OUT:
        return None
    try:
        return _read(f'{{"boot":""{rest}')
    except AnnotationError:
        return None


def _read(text: str) -> Inventory:
    if len(text) > MOST_INVENTORY_CHARACTERS:
        raise AnnotationError(names.INVENTORY, "", f"longer than {MOST_INVENTORY_CHARACTERS} characters")
    whole = parse(text, names.INVENTORY, AnnotationError).version(1)
    document = whole.fields()
    pfs = tuple(_pf(item) for item in document.required("pfs").items(_MOST_PFS))
    _refuse_duplicates(document.required("pfs"), pfs)
    if (vfs := sum(pf.named_vfs for pf in pfs)) > MOST_VFS:
        document.required("pfs").fail(f"{vfs} VFs exceed the limit of {MOST_VFS} on one node")
    return Inventory(
        boot=document.required("boot").string(longest=64),
        pfs=pfs,
        programs=document.optional("programs", _programs) or {},
        rates=document.optional("rates", Value.boolean) or False,
        handlers=document.optional("handlers", handlers),
    )


def dump_inventory(inventory: Inventory) -> str:
    """Return an inventory as the annotation's value; equal inventories give equal strings."""
    document: dict[str, object] = {
        "v": 1,
        "boot": inventory.boot,
        "pfs": [_dump_pf(pf) for pf in inventory.pfs],
    }
    if inventory.programs:
        document["programs"] = dict(inventory.programs)
    if inventory.rates:
        document["rates"] = True
    if inventory.handlers is not None:
        document["handlers"] = sorted(inventory.handlers)
    return dump(document)


def _pf(value: Value) -> Pf:
    document = value.fields()
    mbps = document.required("mbps").integer(0, MAX_RATE_MBPS)
    vfs = _vfs(document.required("vfs"))
    return Pf(
        name=names.interface(document.required("name")),
        pci=names.address(document.required("pci")),
        link=names.link(document.required("link")),
        network=names.network(document.required("network")),
        mbps=mbps,
        offer_mbps=document.required("offer_mbps").integer(0, mbps),
        up=document.required("up").boolean(),
        vfs=vfs,
        vf0=_vf0(document, vfs),
        stride=_stride(document),
        rdma=document.optional("rdma", names.rdma),
        numa=document.optional("numa", lambda numa: numa.integer(0, LAST)),
        pcie=document.optional("pcie", _addresses) or (),
        can=document.optional("can", _words) or frozenset(),
        allow=document.optional("allow", pf_terms.allow) or Allow(),
        out=document.optional("out", _outs) or (),
        port=document.optional("port", names.port),
        vlan=document.optional("vlan", pf_terms.forced_vlan),
        vf_netdevs=document.optional("vf_netdevs", Value.boolean),
        tested=document.optional("tested", _test_outcomes) or {},
        access=document.optional("access", pf_terms.access) or Access(),
    )


def _test_outcomes(value: Value) -> dict[str, TestOutcome]:
    """Read the outcomes of a hardware test, without those of settings that this version does not know."""
    fields = value.fields()
    outcomes: dict[str, TestOutcome] = {}
    for name in TESTED_RATES:
        outcome: TestOutcome | None = fields.optional(
            name, lambda outcome_value: outcome_value.choice("shown", "differs")
        )
        if outcome is not None:
            outcomes[name] = outcome
    return outcomes


def _vfs(value: Value) -> Indexes:
    indexes = pf_terms.indexes(value)
    if indexes.mask.bit_length() > MOST_VFS:
        value.fail(f"{shorten(value.raw)} contains indexes above {MOST_VFS - 1}")
    return indexes


def _stride(document: Fields) -> int:
    stride = document.optional("stride", lambda value: value.integer(1, LAST))
    return 1 if stride is None else stride


def _vf0(document: Fields, vfs: Indexes) -> str | None:
    if not vfs and "vf0" not in document.raw:
        return None
    vf0 = names.address(document.required("vf0"))
    last = vfs.mask.bit_length() - 1
    try:
        pci.vf_address(vf0, _stride(document), max(last, 0))
    except ValueError as error:
        document.required("vf0").fail(str(error))
    return vf0


def _addresses(value: Value) -> tuple[str, ...]:
    return tuple(names.address(item) for item in value.items(_MOST_WORDS))


def _words(value: Value) -> frozenset[str]:
    return frozenset(item.string(longest=64) for item in value.items(_MOST_WORDS))


def _programs(value: Value) -> dict[str, str]:
    return {name: version.string(longest=128) for name, version in value.fields().items()}


def _outs(value: Value) -> tuple[Out, ...]:
    outs, previous = list[Out](), Indexes()
    for item in value.items(MOST_VFS):
        out = _out(item)
        if duplicates := out.vfs & previous:
            item.fields().required("vfs").fail(f"VF {next(iter(duplicates))} is in an earlier entry, too")
        previous |= out.vfs
        outs.append(out)
    return tuple(outs)


def _out(value: Value) -> Out:
    document = value.fields()
    return Out(
        vfs=_vfs(document.required("vfs")),
        why=document.required("why").string(longest=256),
        min_tx_rate=document.optional("min_tx_rate", lambda rate: rate.integer(0, MAX_RATE_MBPS)) or 0,
    )


def _refuse_duplicates(value: Value, pfs: Iterable[Pf]) -> None:
    identifiers: set[str] = set()
    for index, pf in enumerate(pfs):
        for name in (pf.name, pf.pci):
            if name in identifiers:
                value.at(f"[{index}]", None).fail(f"{name!r} names a second PF")
            identifiers.add(name)


def _dump_pf(pf: Pf) -> dict[str, object]:
    optional: dict[str, object] = {
        "vf0": pf.vf0,
        "stride": None if pf.vf0 is None else pf.stride,
        "rdma": pf.rdma,
        "numa": pf.numa,
        "pcie": list(pf.pcie) or None,
        "can": sorted(pf.can) or None,
        "allow": pf_terms.dump_allow(pf.allow) or None,
        "access": pf_terms.dump_access(pf.access) or None,
        "out": [_dump_out(entry) for entry in pf.out] or None,
        "port": pf.port,
        "vlan": pf.vlan,
        "vf_netdevs": pf.vf_netdevs,
        "tested": dict(pf.tested) or None,
    }
    return {
        "name": pf.name,
        "pci": pf.pci,
        "link": pf.link,
        "network": pf.network,
        "mbps": pf.mbps,
        "offer_mbps": pf.offer_mbps,
        "up": pf.up,
        "vfs": str(pf.vfs),
    } | {name: value for name, value in optional.items() if value is not None}


def _dump_out(entry: Out) -> dict[str, object]:
    rate: dict[str, object] = {"min_tx_rate": entry.min_tx_rate} if entry.min_tx_rate else {}
    return {"vfs": str(entry.vfs), "why": entry.why} | rate
