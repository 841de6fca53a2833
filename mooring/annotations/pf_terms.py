"""The operator's terms of a PF, in the form that the inventory and the node's part of the offer share.

    "allow":{"vlan":"100-199","trust":true}
    "access":{"namespaces":["team-a","ml-*"],"max_share":50,"entry":2}

``allow`` are the settings that pods may request. ``access`` is who may use the VFs: pods of these namespaces, and each
namespace at most this part of the VFs. Absent means all.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mooring.errors import ContractError
from mooring.indexes import LAST, Indexes
from mooring.nic.settings import MAX_VLAN, VfSettings
from mooring.parsing import Value

# Every second index of `MOST_VFS` takes 10 KiB. Each range copies the set, so the time grows with the square of ranges.
_LONGEST_RANGES = 16_384
_MOST_NAMESPACES = 64
# The most namespaces that one message names: a pod's condition has messages about many nodes.
_SHOWN_NAMESPACES = 8
# A namespace's name is a DNS label; "*" matches any part of one.
_NAMESPACES = re.compile(r"[a-z0-9*](?:[-a-z0-9*]{0,61}[a-z0-9*])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Allow:
    """The settings that affect more than the pod and that the operator allows pods to request: VLAN ids, four flags."""

    vlan: Indexes = field(default_factory=Indexes)
    mac: bool = False
    guid: bool = False
    trust: bool = False
    spoofchk: bool = False

    def refusal(self, settings: VfSettings, forced_vlan: int | None = None) -> str:
        """Return why a pod may not have these settings, empty if it may; scheduler and node both check this.

        With ``forced_vlan`` every VF of the network has that VLAN, and a pod cannot request another one.
        """
        if forced_vlan is not None and settings.vlan not in (None, forced_vlan):
            return f"vlan {settings.vlan} is not allowed on the network, where every VF has vlan {forced_vlan}"
        violation = next(iter(self._violations(settings, forced_vlan)), "")
        return f"{violation} is not allowed on the network" if violation else ""

    def _violations(self, settings: VfSettings, forced_vlan: int | None) -> Iterator[str]:
        if settings.vlan and settings.vlan not in self.vlan and settings.vlan != forced_vlan:
            yield f"vlan {settings.vlan}"
        if settings.mac is not None and not self.mac:
            yield "mac"
        if settings.guid is not None and not self.guid:
            yield "guid"
        if settings.trust and not self.trust:
            yield "trust"
        if settings.spoofchk is False and not self.spoofchk:
            yield "spoofchk off"


@dataclass(frozen=True, slots=True)
class Access:
    """Which namespaces may use a PF's VFs, and how many each.

    ``namespaces`` are names or patterns with "*"; empty means all. ``max_share`` is the percentage that one namespace
    may hold of the VFs which the offer's entry with the index ``entry`` offers on the node; None means all of them.
    """

    namespaces: tuple[str, ...] = ()
    max_share: int | None = None
    entry: int = 0

    def refusal(self, namespace: str | None, network: str) -> str:
        """Return why pods of a namespace may not use the PF, empty if they may; scheduler and node both check this.

        Nothing is admitted to a restricted PF for a pod whose namespace is not known.
        """
        if not self.namespaces or (namespace and any(_matches(pattern, namespace) for pattern in self.namespaces)):
            return ""
        rest = f" and {rest_count} more" if (rest_count := len(self.namespaces) - _SHOWN_NAMESPACES) > 0 else ""
        return f"network {network!r} is for namespaces {', '.join(self.namespaces[:_SHOWN_NAMESPACES])}{rest}"

    def max_vfs(self, offer_count: int) -> int:
        """Return how many of the offered VFs one namespace may hold: the share, rounded down, but at least one."""
        return offer_count if self.max_share is None else max(1, offer_count * self.max_share // 100)


def _matches(pattern: str, namespace: str) -> bool:
    """Return whether a pattern with "*" matches a namespace.

    An inventory may have ten thousand different patterns, and each regular expression of `fnmatch` takes 0.1 ms.
    """
    start_text, *parts = pattern.split("*")
    if not parts:
        return pattern == namespace
    start, end = len(start_text), len(namespace) - len(parts[-1])
    if start > end or not namespace.startswith(start_text) or not namespace.endswith(parts[-1]):
        return False
    for part in parts[:-1]:
        start = namespace.find(part, start, end) + len(part)
        if start < len(part):
            return False
    return True


def indexes(value: Value) -> Indexes:
    """Read ranges such as ``0-9,20``."""
    try:
        return Indexes.parse(value.string(longest=_LONGEST_RANGES))
    except ValueError as error:
        if isinstance(error, ContractError):
            raise
        value.fail(str(error))


def allow(value: Value) -> Allow:
    """Read which settings pods may request."""
    document = value.fields()
    vlan = document.optional("vlan", indexes) or Indexes()
    if vlan.mask.bit_length() - 1 > MAX_VLAN:
        document.required("vlan").fail(f"{str(vlan)!r} contains VLAN ids above {MAX_VLAN}")
    switches = {name: document.optional(name, Value.boolean) or False for name in ("mac", "guid", "trust", "spoofchk")}
    return Allow(vlan=vlan, **switches)


def forced_vlan(value: Value) -> int:
    """Read the VLAN id that every VF of a network has."""
    return value.integer(1, MAX_VLAN)


def dump_allow(allow: Allow) -> dict[str, object]:
    vlan: dict[str, object] = {"vlan": str(allow.vlan)} if allow.vlan else {}
    return vlan | {name: True for name in ("mac", "guid", "trust", "spoofchk") if getattr(allow, name)}


def namespaces(value: Value) -> tuple[str, ...]:
    """Read the namespaces that may use a PF: at least one name or pattern."""
    patterns = tuple(item.match(_NAMESPACES, _NAMESPACE_RULE) for item in value.items(_MOST_NAMESPACES))
    if not patterns:
        value.fail("names no namespace; to offer a PF to none, write offer: false")
    return patterns


_NAMESPACE_RULE = "a namespace's name or a pattern of it (at most 63 of a-z 0-9 - *, no - at the ends)"


def max_share(value: Value) -> int:
    """Read a percentage of VFs."""
    return value.integer(1, 100)


def access(value: Value) -> Access:
    """Read who may use a PF, from the inventory."""
    document = value.fields()
    share = document.optional("max_share", max_share)
    return Access(
        namespaces=document.optional("namespaces", namespaces) or (),
        max_share=share,
        entry=0 if share is None else document.required("entry").integer(0, LAST),
    )


def dump_access(access: Access) -> dict[str, object]:
    names: dict[str, object] = {"namespaces": list(access.namespaces)} if access.namespaces else {}
    return names if access.max_share is None else names | {"max_share": access.max_share, "entry": access.entry}
