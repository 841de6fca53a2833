"""Decide which IPAM configurations a call may use: those in the node's own files, with any addresses.

Under Multus a tenant writes the configuration (NetworkAttachmentDefinition), and the IPAM plugin runs as root with it.
The configuration does not show who wrote it. So every call is compared with files that only root can write, including
calls of the node's own chain, which is made from these files. The plugin's type and every field that is not an address
must be as in the files: ``dataDir``, ``resolvConf``, ``kubeconfig``, ``daemonSocketPath``, ``log_file``, and so on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from typing import Any

from cni.spec import fields
from cni.spec.skel import PLUGIN

# The fields of host-local, static and whereabouts that contain only addresses.
_ADDRESSES = frozenset(
    (
        *("subnet", "rangeStart", "rangeEnd", "gateway", "ranges", "routes", "addresses", "dns"),
        *("range", "range_start", "range_end", "exclude", "ipRanges"),
    )
)
# A domain or option of a name server: never a path.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}", re.ASCII)
_FILES = "/etc/mooring/cni.json or a chain in /etc/cni/net.d of this node configures for mooring-cni"


@dataclass(frozen=True, slots=True)
class OwnIpam:
    """The contents of the node's own files: IPAM configurations, and the names of the networks configured there."""

    ipams: Sequence[Mapping[str, Any]] = ()
    networks: frozenset[str] = field(default_factory=frozenset)

    def check_ipam(self, ipam: Mapping[str, Any], name: str, network: str) -> None:
        """Raise CniError 7 if an IPAM configuration is not one of the node's own; ``name`` is its field.

        IPAM plugins store addresses by ``network``, the network of the call. Only a configuration that is exactly one
        of the node's may use the name of one of the node's own networks, such as that of the pods' main addresses.
        """
        if ipam in self.ipams:
            return
        candidates = [candidate for candidate in self.ipams if candidate["type"] == ipam["type"]]
        if not candidates:
            fields.refuse(f"{name}.type", f": {ipam['type']!r:.80} is not an IPAM plugin that {_FILES}")
        foreign_keys = [_foreign_key(ipam, candidate) for candidate in candidates]
        if None not in foreign_keys:
            key = str(foreign_keys[0])
            fields.refuse(f"{name[:80]}.{key}", f": {ipam[key]!r:.80} is not an address and differs from what {_FILES}")
        if network in self.networks:
            fields.refuse("name", f": {network!r} is one of this node's own networks and has a different ipam there")


def _foreign_key(ipam: Mapping[str, Any], own_ipam: Mapping[str, Any]) -> str | None:
    """Return the first field that differs from the node's own and is not an address; None if there is none."""
    return next(
        (
            key
            for key, value in ipam.items()
            if (key not in own_ipam or own_ipam[key] != value)
            and not (key in _ADDRESSES and _has_addresses_only(value))
        ),
        None,
    )


def _has_addresses_only(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_has_addresses_only, value.values()))
    if isinstance(value, list):
        return all(map(_has_addresses_only, value))
    return not isinstance(value, str) or _is_address(value) or not value or _WORD.fullmatch(value) is not None


def _is_address(value: str) -> bool:
    """Return whether a text is an address, a network, or a range as whereabouts writes it: 10.0.0.9-10.0.0.20/24."""
    first, dash, last = value.partition("-")
    try:
        if dash:
            ip_address(first)
        ip_interface(last if dash else value)
    except ValueError:
        return False
    return True


def ipams_of(document: object) -> Iterator[Mapping[str, Any]]:
    """Yield the IPAM configurations of a plugin's entry: the common one, and those of its networks."""
    if not isinstance(document, dict):
        return
    networks = document.get("networks")
    entries = [document, *(networks.values() if isinstance(networks, dict) else ())]
    for entry in entries:
        ipam = entry.get("ipam") if isinstance(entry, dict) else None
        if isinstance(ipam, dict) and isinstance(ipam.get("type"), str):
            yield ipam


def entries_of(document: object) -> Iterable[object]:
    """Return the entries of mooring-cni in a network configuration, which has a list of plugins or is a single one."""
    if not isinstance(document, dict):
        return ()
    plugins = document.get("plugins", [document])
    return [
        entry
        for entry in (plugins if isinstance(plugins, list) else ())
        if isinstance(entry, dict) and entry.get("type") == PLUGIN
    ]
