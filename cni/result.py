"""The result of ADD: what the chain had before, and our interfaces with their addresses behind it.

Source: CNI specification 1.1.0, section 5 (ADD success); ``mtu`` stands in results since 1.1.0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_ROUTES = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class Address:
    """An address that IPAM gave: ``10.0.0.2/24``, with its gateway where it has one."""

    address: str
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A route that IPAM gave."""

    dst: str
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """One VF in the pod, ready for the result."""

    name: str
    mac: str
    mtu: int
    addresses: Sequence[Address] = ()
    routes: Sequence[Route] = ()


def passed_on(previous: Mapping[str, Any] | None, version: str) -> dict[str, Any]:
    """Return the chain's result so far, in the configuration's version."""
    return {**(previous or {}), "cniVersion": version}


def add_result(
    previous: Mapping[str, Any] | None, version: str, netns: str, attached: Sequence[Attached]
) -> dict[str, Any]:
    """Return the chain's result with our interfaces and their addresses after what was there."""
    result = passed_on(previous, version)
    interfaces = list(result.get("interfaces") or ())
    ips = list(result.get("ips") or ())
    routes = list(result.get("routes") or ())
    for vf in attached:
        mtu = {"mtu": vf.mtu} if version == "1.1.0" else {}
        interfaces.append({"name": vf.name, "mac": vf.mac, "sandbox": netns, **mtu})
        ips += [_ip(address, len(interfaces) - 1, version) for address in vf.addresses]
        routes += [{"dst": route.dst, **({"gw": route.gateway} if route.gateway else {})} for route in vf.routes]
    return result | {"interfaces": interfaces, "ips": ips} | ({"routes": routes} if routes else {})


def _ip(address: Address, interface: int, version: str) -> dict[str, Any]:
    ip: dict[str, Any] = {"address": address.address, "interface": interface}
    if version == "0.4.0":
        ip["version"] = "6" if ":" in address.address else "4"
    return ip | ({"gateway": address.gateway} if address.gateway else {})
