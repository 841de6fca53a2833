"""What the operator offers: which PFs, under which network, how much of each. The same file serves all nodes.

    v: 1
    pfs:                                    # the first entry that matches a PF decides; a PF without one is not offered
    - match: {name: "enp4s0f*", node: "gpu-*", driver: mlx5_core, vendor: "15b3", device: "101d",
              pci: "0000:04:*", link: ethernet}
      network: rail0                        # "default" where absent
      set_aside: "0-3"                      # VFs that the host keeps
      keep_percent: 10                      # of the line rate, for the host
      allow: {vlan: "100-199", trust: true} # settings reaching beyond the pod; none where absent
      rdma: false                           # also VFs without an RDMA device
    - match: {name: "enp5s0"}
      offer: false

Every word of ``match`` is a glob, and must match; ``name`` may match an altname. Unknown fields are errors.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mooring import inventory, names
from mooring.errors import ContractError
from mooring.indexes import Indexes
from mooring.inventory import Allow
from mooring.parsing import Value, parse

DEFAULT_NETWORK = "default"
_MOST_RULES = 1024
_SELECTORS = frozenset({"name", "node", "pci", "vendor", "device", "driver", "link"})
_ALLOWS = frozenset({"vlan", "mac", "guid", "trust", "spoofchk"})
_KNOWN = frozenset({"match", "network", "set_aside", "keep_percent", "allow", "rdma", "offer"})


class OfferError(ContractError):
    """An offer that cannot be read; ``key`` is its file's name."""

    kind = "offer"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A PF as the rules see it; ``names`` are its netdev's name and altnames, ids are hexadecimal without 0x."""

    names: tuple[str, ...]
    node: str
    pci: str
    vendor: str
    device: str
    driver: str
    link: str


@dataclass(frozen=True, slots=True)
class Terms:
    """How a PF is offered; ``rdma`` demands an RDMA device of each VF."""

    network: str = DEFAULT_NETWORK
    set_aside: Indexes = field(default_factory=Indexes)
    keep_percent: int = 0
    allow: Allow = field(default_factory=Allow)
    rdma: bool = True

    def offered_mbps(self, mbps: int) -> int:
        return mbps * (100 - self.keep_percent) // 100


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry: the globs by selector, and the terms (None: not offered)."""

    match: tuple[tuple[str, str], ...]
    terms: Terms | None

    def matches(self, candidate: Candidate) -> bool:
        return all(_matches(candidate, selector, glob) for selector, glob in self.match)


@dataclass(frozen=True, slots=True)
class Offer:
    """The operator's choice."""

    rules: tuple[Rule, ...]

    def terms(self, candidate: Candidate) -> Terms | None:
        """Return how this PF is offered, None if it is not."""
        return next((rule.terms for rule in self.rules if rule.matches(candidate)), None)


# Where the operator says nothing: every PF whose VFs have RDMA, on one network.
EVERYTHING = Offer((Rule((), Terms()),))


def read_offer(text: str, name: str) -> Offer:
    """Read an offer, given as JSON, from the file ``name``; raise OfferError."""
    document = parse(text, name, OfferError).version(1).fields({"v", "pfs"})
    return Offer(tuple(_rule(item) for item in document.required("pfs").items(_MOST_RULES)))


def _rule(value: Value) -> Rule:
    document = value.fields(_KNOWN)
    match = document.optional("match", _globs) or ()
    if document.optional("offer", Value.boolean) is False:
        return Rule(match, None)
    return Rule(match, _terms(value))


def _terms(value: Value) -> Terms:
    document = value.fields()
    rdma = document.optional("rdma", Value.boolean)
    return Terms(
        network=document.optional("network", names.network) or DEFAULT_NETWORK,
        set_aside=document.optional("set_aside", inventory.indexes) or Indexes(),
        keep_percent=document.optional("keep_percent", lambda percent: percent.integer(0, 100)) or 0,
        allow=document.optional("allow", _allow) or Allow(),
        rdma=rdma is not False,
    )


def _allow(value: Value) -> Allow:
    value.fields(_ALLOWS)
    return inventory.allow(value)


def _globs(value: Value) -> tuple[tuple[str, str], ...]:
    return tuple((selector, glob.string(longest=128)) for selector, glob in value.fields(_SELECTORS).items())


def _matches(candidate: Candidate, selector: str, glob: str) -> bool:
    if selector == "name":
        return any(fnmatchcase(name, glob) for name in candidate.names)
    return fnmatchcase(getattr(candidate, selector), glob)
