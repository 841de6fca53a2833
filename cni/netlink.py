"""RTNETLINK: links by name in the namespace of the calling thread, and the settings that a PF keeps for its VFs.

`VfPort` is the one port that a simulation replaces; everything else here is always the kernel's. Every failure is the
kernel's own, as OSError. Attributes: include/uapi/linux/if_link.h; ndo_set_vf_* are called one by one and stop at the
first refusal (do_setvfinfo in net/core/rtnetlink.c).
"""

import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mooring.settings import LinkState, VfSettings

# RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS: with statistics the list attribute overflows near 54 VFs.
_VF_WITHOUT_STATISTICS = 1 | 8
_LINK_STATES: tuple[LinkState, LinkState, LinkState] = ("auto", "enable", "disable")
_IFF_UP = 1
# IFLA_VF_* read as all ones where the driver does not report them.
_UNSUPPORTED = 0xFFFF_FFFF


class VfPort(Protocol):
    """The settings of VFs as their PF keeps them; raises OSError with the kernel's errno."""

    def read(self, pf: str, vf: int) -> VfSettings: ...

    def read_all(self, pf: str) -> Mapping[int, VfSettings]: ...

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set what is not None, in one message; what came before a refusal stays set."""


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


class RtnetlinkVfPort:
    """The kernel's own: the PF's driver answers."""

    def read(self, pf: str, vf: int) -> VfSettings:
        settings = self.read_all(pf).get(vf)
        if settings is None:
            raise OSError(errno.EINVAL, f"pf {pf!r} has no vf {vf}")
        return settings

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        with _netlink() as netlink:
            (message,) = netlink.link("get", index=_index(netlink, pf), ext_mask=_VF_WITHOUT_STATISTICS)
            listed = message.get_attr("IFLA_VFINFO_LIST")
        infos = listed.get_attrs("IFLA_VF_INFO") if listed is not None else ()
        return dict(_read_info(info) for info in infos)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        with _netlink() as netlink:
            netlink.link("set", index=_index(netlink, pf), vf={"vf": vf, **_vf_attributes(settings)})


def links() -> tuple[Link, ...]:
    """Return every link of this thread's network namespace."""
    with _netlink() as netlink:
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
        with _netlink() as netlink:
            netlink.link("property_add", index=_index(netlink, name), altname=altname)


def remove_altname(name: str, altname: str) -> None:
    with _netlink() as netlink:
        netlink.link("property_del", index=_index(netlink, name), altname=altname)


def add_address(name: str, address: str) -> None:
    with _netlink() as netlink:
        host, _, prefix = address.partition("/")
        netlink.addr("add", index=_index(netlink, name), address=host, prefixlen=int(prefix or 32))


def add_route(name: str, dst: str, gateway: str | None) -> None:
    with _netlink() as netlink:
        via = {"gateway": gateway} if gateway else {"scope": "link"}
        netlink.route("add", dst=dst, oif=_index(netlink, name), **via)


def _set(name: str, **attributes: Any) -> None:
    with _netlink() as netlink:
        netlink.link("set", index=_index(netlink, name), **attributes)


@contextmanager
def _netlink() -> Iterator[Any]:
    """Open a netlink socket for one exchange; pyroute2's errors become OSErrors here and nowhere else."""
    try:
        with IPRoute() as netlink:
            yield netlink
    except NetlinkError as refused:
        raise OSError(refused.code, os.strerror(refused.code)) from refused


def _index(netlink: Any, name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        raise OSError(errno.ENODEV, f"no interface {name!r}") from None


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


def _read_info(info: Any) -> tuple[int, VfSettings]:
    mac, vlan, rate = (info.get_attr(name) or {} for name in ("IFLA_VF_MAC", "IFLA_VF_VLAN", "IFLA_VF_RATE"))
    link_state = _value(info, "IFLA_VF_LINK_STATE", "link_state")
    settings = VfSettings(
        min_tx_rate=rate.get("min_tx_rate"),
        max_tx_rate=rate.get("max_tx_rate"),
        mac=mac["mac"][:17] if "mac" in mac else None,
        vlan=vlan.get("vlan"),
        qos=vlan.get("qos"),
        trust=_flag(_value(info, "IFLA_VF_TRUST", "trust")),
        spoofchk=_flag(_value(info, "IFLA_VF_SPOOFCHK", "spoofchk")),
        link_state=_LINK_STATES[link_state] if link_state is not None and link_state < 3 else None,
    )
    return int(mac.get("vf", vlan.get("vf", 0))), settings


def _value(info: Any, attribute: str, name: str) -> int | None:
    value = info.get_attr(attribute)
    return None if value is None or value[name] in (_UNSUPPORTED, -1) else int(value[name])


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _vf_attributes(settings: VfSettings) -> dict[str, object]:
    """Return the attributes of one message; rates, and VLAN with its priority, travel in pairs."""
    attributes: dict[str, object] = {}
    if settings.mac is not None:
        attributes["mac"] = settings.mac
    if settings.vlan is not None:
        attributes["vlan"] = {"vlan": settings.vlan, "qos": settings.qos or 0}
    if settings.min_tx_rate is not None or settings.max_tx_rate is not None:
        attributes["rate"] = {
            "min_tx_rate": settings.min_tx_rate or 0,
            "max_tx_rate": settings.max_tx_rate or 0,
        }
    for name in ("spoofchk", "trust"):
        if (wish := getattr(settings, name)) is not None:
            attributes[name] = int(wish)
    if settings.link_state is not None:
        attributes["link_state"] = _LINK_STATES.index(settings.link_state)
    return attributes
