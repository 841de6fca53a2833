"""RTNETLINK: links by name in the namespace of the calling thread. Every failure is the kernel's own, as OSError."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mooring.vfport import index_of, netlink_session

_IFF_UP = 1


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface; ``parent`` is its PCI address where the kernel tells it (Linux 5.14, real devices)."""

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    altnames: tuple[str, ...]
    parent: str | None


def links() -> tuple[Link, ...]:
    """Return every link of this thread's network namespace."""
    with netlink_session() as netlink:
        return tuple(_link(message) for message in netlink.get_links())


def find(name: str) -> Link | None:
    return next((link for link in links() if link.name == name), None)


def set_up(name: str, *, up: bool) -> None:
    _set(name, state="up" if up else "down")


def rename(name: str, to: str) -> None:
    """Rename a link that is down; an altname of its own that is equal to the new name is removed first."""
    if name == to:
        return
    link = find(name)
    if link is not None and to in link.altnames:
        remove_altname(name, to)
    _set(name, ifname=to)


def set_mac(name: str, mac: str) -> None:
    _set(name, address=mac)


def set_mtu(name: str, mtu: int) -> None:
    _set(name, mtu=mtu)


def move(name: str, netns: str) -> None:
    """Move a link into the network namespace at a path."""
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(name, net_ns_fd=descriptor)
    finally:
        os.close(descriptor)


def add_altnames(name: str, altnames: Sequence[str]) -> None:
    for altname in altnames:
        with netlink_session() as netlink:
            netlink.link("property_add", index=index_of(netlink, name), altname=altname)


def remove_altname(name: str, altname: str) -> None:
    with netlink_session() as netlink:
        netlink.link("property_del", index=index_of(netlink, name), altname=altname)


def add_address(name: str, address: str) -> None:
    with netlink_session() as netlink:
        host, _, prefix = address.partition("/")
        netlink.addr("add", index=index_of(netlink, name), address=host, prefixlen=int(prefix or 32))


def add_route(name: str, dst: str, gateway: str | None) -> None:
    with netlink_session() as netlink:
        via = {"gateway": gateway} if gateway else {"scope": "link"}
        netlink.route("add", dst=dst, oif=index_of(netlink, name), **via)


def _set(name: str, **attributes: Any) -> None:
    with netlink_session() as netlink:
        netlink.link("set", index=index_of(netlink, name), **attributes)


def _link(message: Any) -> Link:
    properties = message.get_attr("IFLA_PROP_LIST")
    altnames = properties.get_attrs("IFLA_ALT_IFNAME") if properties is not None else ()
    return Link(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        mac=message.get_attr("IFLA_ADDRESS") or "",
        mtu=message.get_attr("IFLA_MTU") or 0,
        up=bool(message["flags"] & _IFF_UP),
        altnames=tuple(altnames),
        parent=message.get_attr("IFLA_PARENT_DEV_NAME"),
    )
