"""Read and change links, addresses, routes and rules in the namespace of the calling thread; failures are OSErrors.

Functions take a link's index. Host programs such as udev rename links at any time, but the index stays. It changes only
if the link moves to another namespace in which another link has it (__dev_change_net_namespace in the kernel's
net/core/dev.c). While the kernel renames a link, neither name finds it (dev_change_name there).
"""

import errno
import os
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network

from cni.kernel import rtnetlink
from mooring.nic.netlink_codec import (
    CREATE,
    DUMP,
    EXCLUSIVE,
    LINK_HEADER,
    NESTED,
    ROUTE_HEADER,
    Attribute,
    number,
    pack_attribute,
    packed_text,
    read_attributes,
    text,
    u32,
)

ETHERNET, INFINIBAND = 1, 32
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
# Flags that any program may set and that survive a move: DEBUG, NOARP, PROMISC, ALLMULTI, MULTICAST, DYNAMIC.
_KEPT_FLAGS = 0x4 | 0x80 | 0x100 | 0x200 | 0x1000 | 0x8000
_IFADDR = struct.Struct("=BBBBI")
_ADDRESS, _IFNAME, _MTU, _LINK, _TXQLEN, _NET_NS_FD = 1, 3, 4, 5, 13, 28
_PROP_LIST, _ALT_IFNAME, _PARENT_NAME = 52, 53, 56
# IFLA_EXT_MASK with RTEXT_FILTER_SKIP_STATS.
_WITHOUT_STATISTICS: Attribute = (29, u32(1 << 3))
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _NO_DAD = 1, 2, 4, 0x02
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_TABLE = 1, 4, 5, 7, 15
_FRA_SRC, _FRA_PRIORITY, _FRA_TABLE = 2, 6, 15
# The kernel replaces %d with the first free number (dev_prep_valid_name).
ANY_NAME = "dev%d"
_TO_TABLE = 1
_MAIN, _UNICAST, _STATIC, _BOOT = 254, 1, 4, 3
_UNIVERSE, _ON_LINK = 0, 253


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface; ``parent`` is its PCI address if the kernel reports it (Linux 5.14, real devices).

    ``carrier`` is True if the link could send frames, ``hardware`` is its ARPHRD number, ``txqueuelen`` is in packets.
    ``flags`` has the IFF_* flags that a pod may set and that survive a move. ``lower`` is the index of the link that it
    was made on, None without one.
    """

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    altnames: tuple[str, ...]
    parent: str | None
    carrier: bool = True
    hardware: int = ETHERNET
    flags: int | None = None
    txqueuelen: int | None = None
    lower: int | None = None

    def is_of(self, pci: str) -> bool:
        """Return whether the link is the PCI function's own netdev, according to the kernel."""
        return self.parent == pci and self.lower is None


def links() -> tuple[Link, ...]:
    """Return every link of this thread's network namespace."""
    return tuple(map(_link, _bodies()))


def _bodies() -> list[bytes]:
    """List the links without their statistics.

    The kernel sizes its messages by the largest link only if the request has a mask (rtnl_calcit). Without one, a link
    with many names, which a pod may add, ends the list early.
    """
    return rtnetlink.exchange(rtnetlink.GET_LINK, rtnetlink.link_header(0), [_WITHOUT_STATISTICS], flags=DUMP)


def with_parent(pci: str) -> Link | None:
    """Return a PCI function's own link in this namespace; the pod may have many other links."""
    needle = packed_text(pci)
    candidates = (_link(body) for body in _bodies() if needle in body)
    return next((link for link in candidates if link.is_of(pci)), None)


def remove_children(index: int) -> None:
    """Remove the IPoIB children (interfaces of partitions) of a link in this namespace."""
    link = get(index)
    if link is not None and link.hardware == INFINIBAND:
        for child in links():
            if child.lower == index and child.hardware == INFINIBAND:
                remove(child.index)


def index_of(name: str) -> int | None:
    """Return the index of the link that has this name or altname; does not wait for moves of other links (RTNL)."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def exists(index: int) -> bool:
    """Return whether there is a link with this index; does not wait for moves of other links (RTNL)."""
    try:
        return bool(socket.if_indextoname(index))
    except OSError:
        return False


def get(index: int) -> Link | None:
    """Return the link with this index."""
    try:
        bodies = rtnetlink.exchange(rtnetlink.GET_LINK, rtnetlink.link_header(index))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    return _link(bodies[0])


def find(name: str) -> Link | None:
    """Return the link with this name; an altname does not count."""
    index = index_of(name)
    link = get(index) if index is not None else None
    return link if link is not None and link.name == name else None


def set_up(index: int, *, up: bool) -> None:
    flags = _IFF_UP if up else 0
    rtnetlink.exchange(rtnetlink.SET_LINK, LINK_HEADER.pack(0, 0, index, flags, _IFF_UP))


def rename(index: int, name: str) -> None:
    """Rename a link, which must be down before Linux 6.2 (EBUSY); first remove its altname if that is the new name."""
    try:
        _set(index, (_IFNAME, packed_text(name)))
    except OSError as refusal:
        link = get(index) if refusal.errno == errno.EEXIST else None
        if link is None or name not in link.altnames:
            raise
        remove_altname(index, name)
        _set(index, (_IFNAME, packed_text(name)))


def set_flags(index: int, flags: int) -> None:
    """Set the flags of a link that `Link.flags` has."""
    rtnetlink.exchange(rtnetlink.SET_LINK, LINK_HEADER.pack(0, 0, index, flags, _KEPT_FLAGS))


def set_queue_length(index: int, packets: int) -> None:
    _set(index, (_TXQLEN, u32(packets)))


def set_mac(index: int, mac: str) -> None:
    _set(index, (_ADDRESS, bytes.fromhex(mac.replace(":", ""))))


def set_mtu(index: int, mtu: int) -> None:
    _set(index, (_MTU, u32(mtu)))


def move(index: int, netns: str, name: str) -> None:
    """Move a link into the network namespace at the path ``netns`` as ``name``; the kernel takes it down first.

    One message does both, because each message waits behind the moves of other links. The kernel moves the link before
    it renames it: if the name is taken there, the link arrives under its old name, and the error is EEXIST. The same
    happens if one of its altnames is taken there (Linux 6.6).
    """
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(index, (_NET_NS_FD, u32(descriptor)), (_IFNAME, packed_text(name)))
    finally:
        os.close(descriptor)


def remove(index: int) -> None:
    """Remove a virtual link; the kernel refuses links of real devices with EOPNOTSUPP."""
    rtnetlink.exchange(rtnetlink.DEL_LINK, rtnetlink.link_header(index))


def add_altname(index: int, altname: str) -> None:
    _alter(rtnetlink.NEW_LINK_PROP, index, altname, CREATE | EXCLUSIVE)


def remove_altname(index: int, altname: str) -> None:
    """Remove a link's altname; raise ENOENT if it is not one, for example because udevd has made it the link's name.

    The kernel answers EINVAL for a name, or for an altname of another link (netdev_name_node_alt_destroy of
    net/core/dev.c).
    """
    try:
        # In a request that removes, EXCLUSIVE's bit means a bulk removal, which the kernel refuses here (NLM_F_BULK).
        _alter(rtnetlink.DEL_LINK_PROP, index, altname, 0)
    except OSError as refusal:
        if refusal.errno != errno.EINVAL:
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from refusal


def add_address(index: int, address: str) -> None:
    """Add an address with its prefix length; IPv6 without duplicate detection, because IPAM assigns an address once."""
    interface = ip_interface(address)
    packed = interface.ip.packed
    attributes: list[Attribute] = [(_IFA_LOCAL, packed), (_IFA_ADDRESS, packed)]
    flags, family = _NO_DAD, socket.AF_INET6
    if interface.version == 4:
        flags, family = 0, socket.AF_INET
        if interface.network.prefixlen < 31:
            attributes.append((_IFA_BROADCAST, interface.network.broadcast_address.packed))
    header = _IFADDR.pack(family, interface.network.prefixlen, flags, _UNIVERSE, index)
    rtnetlink.exchange(rtnetlink.NEW_ADDRESS, header, attributes, CREATE | EXCLUSIVE)


def addresses(index: int) -> tuple[str, ...]:
    """Return a link's addresses with their prefix lengths, such as ``10.0.0.2/24``."""
    bodies = rtnetlink.exchange(rtnetlink.GET_ADDRESS, _IFADDR.pack(0, 0, 0, 0, 0), flags=DUMP)
    return tuple(_address(body) for body in bodies if _IFADDR.unpack_from(body)[-1] == index)


def _address(body: bytes) -> str:
    _, prefix, *_ = _IFADDR.unpack_from(body)
    attributes = dict(read_attributes(body[_IFADDR.size :]))
    return f"{ip_address(attributes.get(_IFA_LOCAL) or attributes[_IFA_ADDRESS])}/{prefix}"


def add_route(index: int, dst: str, gateway: str | None, *, source: str | None = None, table: int = _MAIN) -> None:
    """Add a route through a link: by a gateway, which must be reachable on the link, or to neighbours on it."""
    network = ip_network(dst, strict=False)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    scope = _ON_LINK if gateway is None and network.version == 4 else _UNIVERSE
    attributes: list[Attribute] = [(_RTA_OIF, u32(index)), (_RTA_TABLE, u32(table))]
    if network.prefixlen:
        attributes.append((_RTA_DST, network.network_address.packed))
    for kind, address in ((_RTA_GATEWAY, gateway), (_RTA_PREFSRC, source)):
        if address is not None:
            attributes.append((kind, ip_address(address).packed))
    header = ROUTE_HEADER.pack(family, network.prefixlen, 0, 0, 0 if table > 0xFF else table, _BOOT, scope, _UNICAST, 0)
    rtnetlink.exchange(rtnetlink.NEW_ROUTE, header, attributes, CREATE | EXCLUSIVE)


def add_rule(source: str, table: int, priority: int) -> None:
    """Add a rule: packets from ``source`` use ``table``."""
    _rule(rtnetlink.NEW_RULE, source, table, priority, CREATE | EXCLUSIVE)


def remove_rules(table: int) -> None:
    """Remove every rule that leads to a table, IPv4 and IPv6."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for body in _rules(family):
            attributes = dict(read_attributes(body[ROUTE_HEADER.size :]))
            if number(attributes.get(_FRA_TABLE, b"")) == table:
                rtnetlink.exchange(
                    rtnetlink.DEL_RULE,
                    body[: ROUTE_HEADER.size],
                    [(kind, attributes[kind]) for kind in (_FRA_SRC, _FRA_PRIORITY, _FRA_TABLE) if kind in attributes],
                )


def has_rules(version: int) -> bool:
    """Return whether this kernel has policy routing (CONFIG_IP_MULTIPLE_TABLES, CONFIG_IPV6_MULTIPLE_TABLES)."""
    return bool(_rules(socket.AF_INET if version == 4 else socket.AF_INET6))


def _rules(family: int) -> list[bytes]:
    """Return a family's rules; a kernel without policy routing, or without the family, has none."""
    try:
        return rtnetlink.exchange(rtnetlink.GET_RULE, ROUTE_HEADER.pack(family, *bytes(7), 0), flags=DUMP)
    except OSError as refusal:
        if refusal.errno in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):
            return []
        raise


def _rule(kind: int, source: str, table: int, priority: int, flags: int) -> None:
    address = ip_address(source)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    header = ROUTE_HEADER.pack(family, 0, address.max_prefixlen, 0, 0, 0, 0, _TO_TABLE, 0)
    attributes = [(_FRA_SRC, address.packed), (_FRA_PRIORITY, u32(priority)), (_FRA_TABLE, u32(table))]
    rtnetlink.exchange(kind, header, attributes, flags)


def _set(index: int, *attributes: Attribute) -> None:
    rtnetlink.exchange(rtnetlink.SET_LINK, rtnetlink.link_header(index), attributes)


def _alter(kind: int, index: int, altname: str, flags: int) -> None:
    properties = pack_attribute(_ALT_IFNAME, packed_text(altname))
    rtnetlink.exchange(kind, rtnetlink.link_header(index), [(_PROP_LIST | NESTED, properties)], flags)


def _link(body: bytes) -> Link:
    _, hardware, index, flags, _ = LINK_HEADER.unpack_from(body)
    attributes = dict(read_attributes(body[LINK_HEADER.size :]))
    properties = read_attributes(attributes.get(_PROP_LIST, b""))
    return Link(
        index=index,
        name=text(attributes[_IFNAME]),
        mac=attributes.get(_ADDRESS, b"").hex(":"),
        mtu=number(attributes.get(_MTU, b"")),
        up=bool(flags & _IFF_UP),
        altnames=tuple(text(value) for kind, value in properties if kind == _ALT_IFNAME),
        parent=text(attributes[_PARENT_NAME]) if _PARENT_NAME in attributes else None,
        carrier=bool(flags & _IFF_LOWER_UP),
        hardware=hardware,
        flags=flags & _KEPT_FLAGS,
        txqueuelen=number(attributes[_TXQLEN]) if _TXQLEN in attributes else None,
        lower=number(attributes[_LINK]) if _LINK in attributes else None,
    )
