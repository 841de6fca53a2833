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
    network_routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnRoute:
    """A route in an interface's own table; ``source`` is the preferred source address of its packets."""

    dst: str
    gateway: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class AddressPlan:
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
    configs: Sequence[InterfaceConfig],
    previous: Mapping[str, Any] | None,
    pod_addresses: Sequence[str] = (),
    *,
    policy: bool,
) -> tuple[AddressPlan, ...]:
    """Return the settings of each interface; ``pod_addresses`` are those of the pod's other interfaces.

    In a chain (``previous`` is not None) the main plugin sets the pod's default route, and those of IPAM are dropped.
    """
    result = previous or {}
    destinations = {_network(route["dst"]) for route in result.get("routes") or ()}
    other_addresses = [*pod_addresses, *(ip["address"] for ip in result.get("ips") or ())]
    plans = []
    for config in configs:
        ipam_routes = [route for route in config.routes if previous is None or _network(route.dst).prefixlen]
        routes = tuple(_claim_routes([*ipam_routes, *config.network_routes], destinations))
        neighbours = [neighbour for neighbour in configs if neighbour is not config]
        neighbour_addresses = [address.address for neighbour in neighbours for address in neighbour.addresses]
        shares = policy and _share(config, [*neighbour_addresses, *other_addresses])
        plans.append(_plan_interface(config, routes, shares=shares))
    return tuple(plans)


def _claim_routes(routes: Sequence[Route], destinations: set[Network]) -> Iterator[Route]:
    for route in routes:
        network = _network(route.dst)
        if network not in destinations:
            destinations.add(network)
            yield route


def _share(config: InterfaceConfig, addresses: Sequence[str]) -> bool:
    networks = [ip_interface(address).network for address in addresses]
    subnets = [ip_interface(address.address).network for address in config.addresses]
    return any(
        subnet.version == network.version and subnet.overlaps(network) for subnet in subnets for network in networks
    )


def _plan_interface(config: InterfaceConfig, routes: tuple[Route, ...], *, shares: bool) -> AddressPlan:
    has_ipv6 = any(ip_interface(address.address).version == 6 for address in config.addresses)
    sysctls = [(f"net/ipv6/conf/{config.name}/disable_ipv6", "0")] if has_ipv6 else []
    if not shares:
        return AddressPlan(config.addresses, routes, sysctls=tuple(sysctls))
    sysctls += [(f"net/ipv4/conf/{config.name}/{name}", value) for name, value in _STRICT_ARP]
    sources = tuple(str(ip_interface(address.address).ip) for address in config.addresses)
    return AddressPlan(config.addresses, routes, sources, tuple(_own_routes(config, has_ipv6=has_ipv6)), tuple(sysctls))


def _own_routes(config: InterfaceConfig, *, has_ipv6: bool) -> Iterator[OwnRoute]:
    """Yield the routes of the own table: subnets first, because a gateway must be reachable, then each destination."""
    destinations: set[Network] = set()
    for address in config.addresses:
        interface = ip_interface(address.address)
        if interface.network not in destinations and interface.network.prefixlen < interface.max_prefixlen:
            destinations.add(interface.network)
            yield OwnRoute(str(interface.network), source=str(interface.ip))
    if has_ipv6:
        yield OwnRoute(_LINK_LOCAL)
    by_gateway = [
        Route(_default_of(address.gateway), address.gateway) for address in config.addresses if address.gateway
    ]
    for route in _claim_routes([*config.routes, *config.network_routes, *by_gateway], destinations):
        yield OwnRoute(route.dst, route.gateway)


def _default_of(gateway: str) -> str:
    return "::/0" if ":" in gateway else "0.0.0.0/0"


def _network(dst: str) -> Network:
    return ip_network(dst, strict=False)
