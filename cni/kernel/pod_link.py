"""Configure a link in the pod's namespace as `cni.plan.addressing` decided, and remove the rules that would outlive it.

The functions run on a one-shot thread inside that namespace (`cni.kernel.netns`), so /proc/sys/net and all sockets are
the pod's.
"""

import errno
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_interface
from pathlib import Path

import structlog

from cni.kernel import netlink
from cni.kernel.netlink import Link
from cni.plan.addressing import RULE_PRIORITY, AddressPlan, table_of
from cni.plan.announcement import frame
from cni.spec.result import Address

_log = structlog.get_logger()
_SYSCTL = Path("/proc/sys")
# Seconds to wait for carrier. A VF's link has it within milliseconds; longer would keep the pod's namespace alive.
_CARRIER_S = 0.2
_POLL_S = 0.005


def configure(name: str, plan: AddressPlan) -> Link:
    """Configure the link ``name``, bring it up, and return it; raise OSError."""
    index = netlink.index_of(name)
    if index is None:
        raise OSError(errno.ENODEV, f"no interface {name!r}")
    for path, value in plan.sysctls:
        (_SYSCTL / path).write_text(value)
    for address in plan.addresses:
        netlink.add_address(index, address.address)
    netlink.set_up(index, up=True)
    _route(name, index, plan)
    link = netlink.get(index)
    if link is None:
        raise OSError(errno.ENODEV, f"no interface {name!r}")
    return link


def announce(addresses: Mapping[str, Sequence[Address]]) -> None:
    """Announce the addresses of each link, by its name, to its neighbours; skip links that no longer exist.

    This takes until the links have carrier, and the kernel needs about 20 ms to close a packet socket. Callers should
    not wait for it.
    """
    deadline = time.monotonic() + _CARRIER_S
    with suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as raw:
        for name, link_addresses in addresses.items():
            link = _with_carrier(name, deadline)
            if link is not None and link.carrier and link.hardware == netlink.ETHERNET:
                for address in link_addresses:
                    raw.sendto(frame(link.mac, str(ip_interface(address.address).ip)), (name, 0))


def withdraw(link: Link) -> None:
    """Remove the rules that lead to a link's own table; its routes and sysctls disappear with the link."""
    netlink.remove_rules(table_of(link.index))


def _route(name: str, index: int, plan: AddressPlan) -> None:
    for route in plan.routes:
        netlink.add_route(index, route.dst, route.gateway)
    if not plan.sources:
        return
    table = table_of(index)
    versions = {version for version in (4, 6) if netlink.has_rules(version)}
    for own_route in plan.own_routes:
        if ip_interface(own_route.dst).version in versions:
            netlink.add_route(index, own_route.dst, own_route.gateway, source=own_route.source, table=table)
    for source in plan.sources:
        if ip_interface(source).version in versions:
            netlink.add_rule(source, table, RULE_PRIORITY)
        else:
            _log.warning("kernel has no policy routing: packets may leave by another link", source=source, link=name)


def _with_carrier(name: str, deadline: float) -> Link | None:
    while (link := netlink.find(name)) is not None and not link.carrier and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return link
