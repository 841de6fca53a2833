"""Decide which addresses, routes, rules and sysctls the interfaces of one ADD get, from the results of IPAM.

A destination has one route in the pod's main table: that of the first interface that requests it. So each address
family has one default route, even across the plugins of a chain. If two interfaces of a pod share a subnet, Linux
answers ARP for both addresses on both links and sends by the first matching route. Such an interface gets policy
routing: its own table, a rule for packets from its addresses, and strict ARP (the kernel's
Documentation/networking/ip-sysctl.rst).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from typing import Any

from cni.spec.result import Address, Route

Network = IPv4Network | IPv6Network
# Before the main table (32766), but after the priorities that an administrator is likely to choose.
RULE_PRIORITY = 30_000
_TABLES = 0x6D00_0000
_LINK_LOCAL = "fe80::/64"
# Answer ARP for an address only on its own link, send ARP requests from an address of that link, and accept packets on
# any link.
_STRICT_ARP = (("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "2"))


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """The input for one interface: the addresses and routes of its IPAM plugin, and its network's configured routes."""

    name: str
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    configured: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnRoute:
    """A route in an interface's own table; ``source`` is the preferred source address of its packets."""

    dst: str
    gateway: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Addressing:
    """The settings of one interface: ``routes`` for the main table, ``sources`` for the addresses that get a rule."""

    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    sources: tuple[str, ...] = ()
    own_routes: tuple[OwnRoute, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()


def table_of(index: int) -> int:
    """Return the number of an interface's own routing table, far from the numbers that people and programs choose."""
    return _TABLES | index & 0xFF_FFFF


def plan(
    configs: Sequence[InterfaceConfig], previous: Mapping[str, Any] | None, others: Sequence[str] = (), *, policy: bool
) -> tuple[Addressing, ...]:
    """Return the settings of each interface; ``others`` are the addresses of the pod's other interfaces.

    In a chain (``previous`` is not None) the main plugin sets the pod's default route, and those of IPAM are dropped.
    """
    before = previous or {}
    taken = {_network(route["dst"]) for route in before.get("routes") or ()}
    theirs = [*others, *(ip["address"] for ip in before.get("ips") or ())]
    found = []
    for config in configs:
        asked = [route for route in config.routes if previous is None or _network(route.dst).prefixlen]
        routes = tuple(_untaken([*asked, *config.configured], taken))
        neighbours = [each.address for other in configs if other is not config for each in other.addresses]
        shares = policy and _share(config, [*neighbours, *theirs])
        found.append(_addressing(config, routes, shares=shares))
    return tuple(found)


def _untaken(routes: Sequence[Route], taken: set[Network]) -> Iterator[Route]:
    for route in routes:
        network = _network(route.dst)
        if network not in taken:
            taken.add(network)
            yield route


def _share(config: InterfaceConfig, others: Sequence[str]) -> bool:
    networks = [ip_interface(other).network for other in others]
    own = [ip_interface(each.address).network for each in config.addresses]
    return any(one.version == other.version and one.overlaps(other) for one in own for other in networks)


def _addressing(config: InterfaceConfig, routes: tuple[Route, ...], *, shares: bool) -> Addressing:
    sixes = any(ip_interface(each.address).version == 6 for each in config.addresses)
    sysctls = [(f"net/ipv6/conf/{config.name}/disable_ipv6", "0")] if sixes else []
    if not shares:
        return Addressing(config.addresses, routes, sysctls=tuple(sysctls))
    sysctls += [(f"net/ipv4/conf/{config.name}/{name}", value) for name, value in _STRICT_ARP]
    sources = tuple(str(ip_interface(each.address).ip) for each in config.addresses)
    return Addressing(config.addresses, routes, sources, tuple(_own_routes(config, sixes=sixes)), tuple(sysctls))


def _own_routes(config: InterfaceConfig, *, sixes: bool) -> Iterator[OwnRoute]:
    """Yield the routes of the own table: subnets first, because a gateway must be reachable, then each destination."""
    taken: set[Network] = set()
    for each in config.addresses:
        interface = ip_interface(each.address)
        if interface.network not in taken and interface.network.prefixlen < interface.max_prefixlen:
            taken.add(interface.network)
            yield OwnRoute(str(interface.network), source=str(interface.ip))
    if sixes:
        yield OwnRoute(_LINK_LOCAL)
    by_gateway = [Route(_default_of(each.gateway), each.gateway) for each in config.addresses if each.gateway]
    for route in _untaken([*config.routes, *config.configured, *by_gateway], taken):
        yield OwnRoute(route.dst, route.gateway)


def _default_of(gateway: str) -> str:
    return "::/0" if ":" in gateway else "0.0.0.0/0"


def _network(dst: str) -> Network:
    return ip_network(dst, strict=False)
