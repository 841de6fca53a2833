"""Read one entry of ``networks``: the IPAM, the routes and the MTU for the VFs of a network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from cni.spec import fields
from cni.spec.result import Route
from cni.spec.skel import PLUGIN
from mooring.parsing import dump

_FIELDS = ("ipam", "routes", "mtu")
# The kernel's ETH_MIN_MTU and IP_MAX_MTU.
_LEAST_MTU, _MOST_MTU = 68, 65535
# Characters of JSON: a quarter of the limit of a ledger entry, and far more than plugins need.
_MOST_IPAM = 65_536


@dataclass(frozen=True, slots=True)
class NetworkConf:
    """The settings for the VFs of a network.

    ``ipam`` is None for VFs without addresses, ``routes`` are added to those of IPAM, ``mtu`` is None to keep the
    present MTU.
    """

    ipam: Mapping[str, Any] | None = field(default=None, hash=False)
    routes: tuple[Route, ...] = ()
    mtu: int | None = None


def read_network(value: object, name: str) -> NetworkConf:
    document = fields.mapping(value, name)
    for unknown in sorted(document.keys() - set(_FIELDS)):
        fields.refuse(f"{name[:80]}.{unknown}", " is unknown")
    return NetworkConf(
        ipam=read_ipam(document.get("ipam"), f"{name}.ipam"),
        routes=tuple(
            _route(route, f"{name}.routes[{index}]")
            for index, route in enumerate(fields.mappings(document.get("routes"), f"{name}.routes"))
        ),
        mtu=_mtu(document.get("mtu"), f"{name}.mtu"),
    )


def read_ipam(value: object, name: str) -> Mapping[str, Any] | None:
    """Read an IPAM configuration; the plugin's name must not lead out of the folders of CNI_PATH.

    A tenant may write the configuration (NetworkAttachmentDefinition), and the ledger entry of each VF stores it.
    """
    if value is None or value == {}:
        return None
    kind = fields.mapping(value, name).get("type")
    if not isinstance(kind, str) or not kind or "/" in kind or "\0" in kind or kind.startswith("."):
        fields.refuse(f"{name}.type", f": {kind!r:.80} is not a valid plugin name")
    if kind == PLUGIN:
        fields.refuse(f"{name}.type", f": {kind!r} is this plugin itself, which assigns no addresses")
    if (size := len(dump(value))) > _MOST_IPAM:
        fields.refuse(name, f" has {size} characters, more than the limit of {_MOST_IPAM}")
    return fields.mapping(value, name)


def _route(document: Mapping[str, Any], name: str) -> Route:
    dst, gateway = document.get("dst"), document.get("gw")
    try:
        if document.keys() - {"dst", "gw"} or not isinstance(dst, str) or not isinstance(gateway, str | None):
            raise ValueError("its fields must be dst and gw")
        destination = ip_network(dst)
        if gateway is not None and ip_address(gateway).version != destination.version:
            raise ValueError(f"{dst!r} and {gateway!r} belong to different address families")
    except ValueError as error:
        fields.refuse(name, f" is not a route: {str(error)[:160]}")
    return Route(str(destination), gateway)


def _mtu(value: object, name: str) -> int | None:
    if value is not None and (type(value) is not int or not _LEAST_MTU <= value <= _MOST_MTU):
        fields.refuse(name, f": {value!r:.80} is not from {_LEAST_MTU} to {_MOST_MTU}")
    return value
