"""Read the operator's offer: which PFs are offered, on which network, and how. One file serves all nodes.

    v: 1
    pfs:                                    # the first matching entry decides; a PF without a match is not offered
    - match: {name: "enp4s0f*", node: "gpu-*", driver: mlx5_core, vendor: "15b3", device: "101d",
              pci: "0000:04:*", link: ethernet}
      network: rail0                        # default: "default"
      set_aside: "0-3"                      # VFs that the host keeps
      keep_percent: 10                      # of the line rate, for the host
      port: own                             # PFs with the same word share a cable and its rate; with "own" each PF
                                            # has its own cable; default: as the NIC reports
      allow: {vlan: "100-199", trust: true} # settings that affect more than the pod; default: none
      vlan: 100                             # every VF of the network gets this VLAN id (excludes allow.vlan)
      namespaces: [team-a, "ml-*"]          # whose pods may have its VFs; default: all
      max_share: 50                         # percent of the VFs that the entry offers on a node, for each namespace;
                                            # rounded down, at least one VF; default: all
      default_share_mbps: 500               # min_tx_rate of VFs whose pod requests none: a share on mlx5
      repair_node_guid: true                # whether VFs without a node GUID get a MAC and are rebound; default: true
      rebind_after_privileged: true         # whether VFs are rebound after pods that could change them; default:
                                            # false
      init: {vfs: 16, trust: false}         # what `mooring-advertiser init` does: create so many VFs (or "max"), set
                                            # trust, spoofchk, link_state and driver of the VFs and mtu of the PF as
                                            # given; with end_lag: true also on a bonded mlx5 PF without VFs
    - match: {name: "enp5s0"}
      offer: false
    resources: [rdma-sriov/vf]              # extended resources of earlier systems to publish in node status: also
                                            # rdma-sriov/mbps, rdma-sriov/dev-infiniband-mount, tencent.com/rdma;
                                            # default: none
    rdma_netns: exclusive                   # mode of the RDMA stack that init sets; default: unchanged

Every value of ``match`` is a glob, and all must match; ``name`` can also match an altname. Unknown fields are errors.
`advertiser.inventory.selectors` has the forms in which values may be written.
An entry with ``init`` must match a PF on every node that its ``node`` matches; otherwise `init` fails there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from typing import Literal

from advertiser.inventory.selectors import Match, read_match
from mooring import names
from mooring.annotations import pf_terms
from mooring.annotations.pf_terms import Access, Allow
from mooring.errors import ContractError
from mooring.indexes import Indexes
from mooring.nic.settings import MAX_RATE_MBPS, VfSettings
from mooring.parsing import Fields, Value, parse
from mooring.records.node_offer import percent

RdmaNetns = Literal["shared", "exclusive"]

DEFAULT_NETWORK = "default"
# The value of ``port`` for PFs that do not share their cable.
OWN_PORT = "own"
_MOST_ENTRIES = 1024
_ALLOWS = frozenset({"vlan", "mac", "guid", "trust", "spoofchk"})
_OF_VFS = ("default_share_mbps", "repair_node_guid", "rebind_after_privileged")
_PLACES = ("match", "network", "port", "offer", "init")
_KNOWN = frozenset((*_PLACES, "set_aside", "keep_percent", "allow", "vlan", "namespaces", "max_share", *_OF_VFS))
_INIT = frozenset({"vfs", "trust", "spoofchk", "link_state", "driver", "mtu", "end_lag"})
_PORT = re.compile(r"[a-z0-9](?:[-a-z0-9._]{0,61}[a-z0-9])?", re.ASCII)
_DRIVER = re.compile(r"[A-Za-z0-9][-_A-Za-z0-9]{0,62}", re.ASCII)
# ETH_MIN_MTU and ETH_MAX_MTU of include/uapi/linux/if_ether.h.
_LEAST_MTU, _MOST_MTU = 68, 65_535
_WHOLE_PF = "is about a whole PF: write its name without '#', and in set_aside the VFs that the host keeps"
# sriov_numvfs is 16 bits wide.
_MOST_VFS = 65_535


class OfferError(ContractError):
    """The offer is invalid; ``key`` is the name of its file."""

    kind = "offer"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The values of a PF that ``match`` compares; ``names``: its netdev's name and altnames; ids are hex without 0x."""

    names: tuple[str, ...]
    node: str
    pci: str
    vendor: str
    device: str
    driver: str
    link: str


@dataclass(frozen=True, slots=True)
class Init:
    """What `init` does with a PF: create ``vfs`` VFs (None: as many as possible) with these settings and driver.

    ``mtu`` is for the PF's netdev, None to leave it. ``end_lag``: create VFs even if that ends a RoCE LAG.
    """

    vfs: int | None
    settings: VfSettings = field(default_factory=VfSettings)
    driver: str | None = None
    mtu: int | None = None
    end_lag: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """How a PF is offered.

    ``port`` names the cable; OWN_PORT is a cable that no other PF uses. `mooring.records.node_offer.PfOffer` describes
    ``default_share_mbps``, ``repair_node_guid``, ``rebind_after_privileged`` and ``vlan``.
    """

    network: str = DEFAULT_NETWORK
    set_aside: Indexes = field(default_factory=Indexes)
    keep_percent: int = 0
    allow: Allow = field(default_factory=Allow)
    default_share_mbps: int = 0
    init: Init | None = None
    port: str | None = None
    repair_node_guid: bool = True
    rebind_after_privileged: bool = False
    vlan: int | None = None
    access: Access = field(default_factory=Access)

    def offered_mbps(self, mbps: int) -> int:
        return mbps * (100 - self.keep_percent) // 100


@dataclass(frozen=True, slots=True)
class OfferEntry:
    """One entry: globs by selector, and the terms (None: not offered)."""

    match: Match
    terms: Terms | None

    def matches(self, candidate: Candidate) -> bool:
        return all(_matches(candidate, selector, glob) for selector, glob in self.match)

    def mismatches(self, candidate: Candidate) -> list[tuple[str, str, str]]:
        """Return each selector that does not match a PF, with its glob and the PF's value, names separated by "/"."""
        differences = (glob for glob in self.match if not _matches(candidate, *glob))
        return [(selector, glob, "/".join(_values(candidate, selector))) for selector, glob in differences]

    def nearness(self, candidate: Candidate) -> tuple[int, float]:
        """Return a key that is larger for a PF which more selectors match, or whose other values are more alike."""
        differences = self.mismatches(candidate)
        return -len(differences), sum(SequenceMatcher(None, glob, value).ratio() for _, glob, value in differences)

    def is_for(self, node: str) -> bool:
        """Return whether the entry can match a PF of this node."""
        return all(fnmatchcase(node, glob) for selector, glob in self.match if selector == "node")


@dataclass(frozen=True, slots=True)
class Offer:
    """The operator's offer; with ``rdma_netns`` None, `init` does not change the RDMA stack's mode."""

    entries: tuple[OfferEntry, ...]
    rdma_netns: RdmaNetns | None = None
    resources: tuple[str, ...] = ()

    def terms(self, candidate: Candidate) -> Terms | None:
        """Return how this PF is offered, None if it is not."""
        return next((entry.terms for entry in self.entries if entry.matches(candidate)), None)


# The offer of a node without one: every PF whose VFs have RDMA, on one network.
EVERYTHING = Offer((OfferEntry((), Terms()),))


def read_offer(text: str, name: str) -> Offer:
    """Read an offer, given as JSON, from the file ``name``; raise OfferError."""
    document = parse(text, name, OfferError).version(1).fields({"v", "pfs", "rdma_netns", "resources"})
    items = document.required("pfs").items(_MOST_ENTRIES)
    entries = tuple(_entry(item, index) for index, item in enumerate(items))
    _refuse_contradictions(items, entries)
    _refuse_two_ranges(items, entries)
    resources = document.optional("resources", _resources) or ()
    return Offer(entries, document.optional("rdma_netns", _rdma_netns), resources)


def _entry(value: Value, index: int) -> OfferEntry:
    document = value.fields(_KNOWN)
    match, set_aside = document.optional("match", read_match) or ((), Indexes())
    if document.optional("offer", Value.boolean) is False:
        if set_aside:
            document.required("match").at("name", None).fail(f"offer: false {_WHOLE_PF}")
        return OfferEntry(match, None)
    terms = _terms(value, index)
    if set_aside and terms.set_aside:
        document.required("set_aside").fail(
            "the VFs after '#' in match.name set aside all others: write one of the two"
        )
    return OfferEntry(match, replace(terms, set_aside=terms.set_aside | set_aside))


def _refuse_two_ranges(items: Sequence[Value], entries: Sequence[OfferEntry]) -> None:
    """Reject an offer that distributes VFs of one PF over entries: only the first entry would count."""
    matches = set[Match]()
    for item, entry in zip(items, entries, strict=True):
        match = item.fields().optional("match", Value.fields)
        if entry.match in matches and match is not None and "#" in str(match.raw.get("name")):
            match.required("name").fail(f"an earlier entry matches the same PFs: an entry {_WHOLE_PF}")
        matches.add(entry.match)


def _refuse_contradictions(items: Sequence[Value], entries: Sequence[OfferEntry]) -> None:
    """Reject an offer in which PFs of one network have different VLANs or namespaces, or only some have any.

    A PF without the VLAN would connect pods to the network outside that VLAN, and one without the namespaces would
    connect the pods of all others.
    """
    terms_by_name: dict[str, Terms] = {}
    for item, entry in zip(items, entries, strict=True):
        if entry.terms is None:
            continue
        first = terms_by_name.setdefault(entry.terms.network, entry.terms)
        for name, here, earlier in (
            ("vlan", entry.terms.vlan, first.vlan),
            ("namespaces", ", ".join(entry.terms.access.namespaces), ", ".join(first.access.namespaces)),
        ):
            if here != earlier:
                rule = f"all entries of a network need the same {name}"
                item.fail(
                    f"network {first.network!r} has {name} {here or 'none'} here and {earlier or 'none'} in an "
                    f"earlier entry: {rule}"
                )


def _terms(value: Value, index: int) -> Terms:
    document = value.fields()
    vlan, allow = document.optional("vlan", pf_terms.forced_vlan), document.optional("allow", _allow) or Allow()
    if vlan is not None and allow.vlan:
        document.required("allow").at("vlan", None).fail(
            f"every VF of the network has vlan {vlan}, so pods cannot choose one"
        )
    return Terms(
        network=document.optional("network", names.network) or DEFAULT_NETWORK,
        set_aside=document.optional("set_aside", pf_terms.indexes) or Indexes(),
        keep_percent=document.optional("keep_percent", percent) or 0,
        allow=allow,
        default_share_mbps=document.optional("default_share_mbps", lambda share: share.integer(1, MAX_RATE_MBPS)) or 0,
        init=document.optional("init", _init),
        port=document.optional("port", _port),
        repair_node_guid=document.optional("repair_node_guid", Value.boolean) is not False,
        rebind_after_privileged=document.optional("rebind_after_privileged", Value.boolean) or False,
        vlan=vlan,
        access=_access(document, index),
    )


def _access(document: Fields, index: int) -> Access:
    max_share = document.optional("max_share", pf_terms.max_share)
    namespaces = document.optional("namespaces", pf_terms.namespaces) or ()
    return Access(namespaces, max_share, 0 if max_share is None else index)


def _port(value: Value) -> str:
    return value.match(_PORT, "a name for a cable (at most 63 of a-z 0-9 . _ -, alphanumeric at both ends)")


def _init(value: Value) -> Init:
    document = value.fields(_INIT)
    settings = VfSettings(
        trust=document.optional("trust", Value.boolean),
        spoofchk=document.optional("spoofchk", Value.boolean),
        link_state=document.optional("link_state", lambda state: state.choice("auto", "enable", "disable")),
    )
    return Init(
        vfs=_wanted_vfs(document.required("vfs")),
        settings=settings,
        driver=document.optional("driver", _driver),
        mtu=document.optional("mtu", lambda mtu: mtu.integer(_LEAST_MTU, _MOST_MTU)),
        end_lag=document.optional("end_lag", Value.boolean) or False,
    )


def _wanted_vfs(value: Value) -> int | None:
    return None if value.raw == "max" else value.integer(1, _MOST_VFS)


def _driver(value: Value) -> str:
    return value.match(_DRIVER, "a kernel driver's name (at most 63 of A-Z a-z 0-9 _ -)")


def _resources(value: Value) -> tuple[str, ...]:
    return tuple(item.choice(*names.EXTENDED_RESOURCES) for item in value.items(len(names.EXTENDED_RESOURCES)))


def _rdma_netns(value: Value) -> RdmaNetns:
    return value.choice("shared", "exclusive")


def _allow(value: Value) -> Allow:
    value.fields(_ALLOWS)
    return pf_terms.allow(value)


def _matches(candidate: Candidate, selector: str, glob: str) -> bool:
    return any(fnmatchcase(value, glob) for value in _values(candidate, selector))


def _values(candidate: Candidate, selector: str) -> tuple[str, ...]:
    return candidate.names if selector == "name" else (getattr(candidate, selector),)
