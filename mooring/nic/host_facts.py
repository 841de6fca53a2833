"""Read the facts that decide who uses a VF: links, routes, vdpa devices, and processes with open RDMA devices.

The facts are for `mooring.nic.vf_users`. They are read in the network namespace of the calling thread, without any
privilege. Names of processes in other PID namespaces or of other users are not visible. Formats and numbers are from
include/uapi/linux/{rtnetlink,if_link}.h.

udev can rename netdevs and RDMA devices at any time, also between a read of sysfs and the kernel's list. So facts are
keyed by PCI address, and sysfs is read again after the list.
"""

import errno
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from itertools import chain
from pathlib import Path

from mooring.nic import rdma_netlink
from mooring.nic.function_devices import all_netdevs, names_in
from mooring.nic.netlink_codec import LINK_HEADER, ROUTE_HEADER, number, read_attributes, text, u32
from mooring.nic.rtnetlink_dump import dump
from mooring.nic.vf_users import Contexts, Hop, HostFacts, Link, Route, VfDevices

_FUNCTIONS = "bus/pci/devices"
_GET_LINK, _GET_ROUTE = 18, 26
_HOP = struct.Struct("=HBBi")
_IFNAME, _LINK, _MASTER, _LINKINFO, _LINK_NETNSID, _PARENT = 3, 5, 10, 18, 37, 56
# IFLA_EXT_MASK with RTEXT_FILTER_SKIP_STATS.
_WITHOUT_STATISTICS = (29, u32(1 << 3))
_KIND, _DATA = 1, 2
# Attributes with the links below a link, for kinds without IFLA_LINK: IFLA_VXLAN_LINK, IFLA_HSR_SLAVE1 and 2.
_LOWERS: Mapping[str, tuple[int, ...]] = {"vxlan": (3,), "hsr": (1, 2)}
_DST, _SRC, _OIF, _GATEWAY, _PRIORITY, _MULTIPATH, _TABLE, _VIA, _NEXTHOP = 1, 2, 4, 5, 6, 9, 15, 18, 30
# Next hops as objects of their own (include/uapi/linux/nexthop.h): struct nhmsg, NHA_ID, NHA_GROUP with its
# struct nexthop_grp, NHA_OIF and NHA_GATEWAY.
_GET_NEXTHOP, _NEXTHOP_HEADER, _MEMBER = 106, struct.Struct("=BBBxI"), struct.Struct("=IBBH")
_NEXTHOP_ID, _GROUP, _NEXTHOP_OIF, _NEXTHOP_GATEWAY = 1, 2, 5, 6
_UNICAST = 1
# The forwarding database: AF_BRIDGE, struct ndmsg, NDA_LLADDR (include/uapi/linux/neighbour.h), and a MAC's group bit.
_GET_NEIGHBOUR, _BRIDGE, _NEIGHBOUR, _LLADDR, _GROUP_BIT = 30, 7, struct.Struct("=BxxxiHBB"), 2, 1
# RTNH_F_DEAD and RTNH_F_LINKDOWN.
_DEAD = 1 | 16
# How often to read again, because a device was renamed while its folder or the kernel's list was read.
_MOST_LISTS = 10


def read_vf(sysfs: Path, pci: str) -> VfDevices:
    """Return a VF's driver and devices from sysfs."""
    device = sysfs / _FUNCTIONS / pci
    try:
        driver = (device / "driver").readlink().name
    except OSError:
        driver = None
    rdma = _rdma_of(device)
    is_away = not rdma and bool(names_in(device / "infiniband_verbs"))
    return VfDevices(pci, driver, all_netdevs(device), rdma, is_away)


def _rdma_of(device: Path) -> tuple[str, ...]:
    return tuple(names_in(device / "infiniband"))


def read_facts(sysfs: Path, pods: Mapping[str, str], vfs: Iterable[VfDevices]) -> HostFacts:
    """Return the host's facts for these VFs; ``pods`` are the holders of held VFs. Raise OSError."""
    vfs = tuple(vfs)
    has_rdma = any(vf.rdma or vf.rdma_away for vf in vfs)
    return HostFacts(
        links=tuple(_with_parents(tuple(_links()), sysfs, vfs)),
        routes=tuple(chain(_routes(socket.AF_INET), _routes(socket.AF_INET6))),
        pods=pods,
        vdpa=_vdpa(sysfs),
        contexts=_contexts(sysfs, {vf.pci: vf.rdma for vf in vfs if vf.rdma}) if has_rdma else None,
        rdma_exclusive=_is_exclusive(sysfs),
        receives=dict(_receives(vfs)),
    )


def _links() -> Iterator[Link]:
    for body in dump(_GET_LINK, LINK_HEADER.pack(0, 0, 0, 0, 0), (_WITHOUT_STATISTICS,)):
        _, _, index, _, _ = LINK_HEADER.unpack_from(body)
        attributes = dict(read_attributes(body[LINK_HEADER.size :]))
        info = dict(read_attributes(attributes.get(_LINKINFO, b"")))
        kind = text(info.get(_KIND, b""))
        data = dict(read_attributes(info.get(_DATA, b""))) if kind in _LOWERS else {}
        # A link in another namespace can have the same index as a link here.
        lowers = [attributes[_LINK]] if _LINK in attributes and _LINK_NETNSID not in attributes else []
        lowers += [data[attribute] for attribute in _LOWERS.get(kind, ()) if attribute in data]
        yield Link(
            index=index,
            name=text(attributes[_IFNAME]),
            kind=kind or "link",
            parent=text(attributes[_PARENT]) if _PARENT in attributes else None,
            master=number(attributes[_MASTER]) if _MASTER in attributes else None,
            lowers=tuple(map(number, lowers)),
        )


def _with_parents(links: Sequence[Link], sysfs: Path, vfs: Collection[VfDevices]) -> Iterator[Link]:
    """Yield links with their VFs; kernels before 5.14 do not report these, so they come from sysfs by name and index.

    A netdev may have been renamed before or after the kernel listed it, so its current name in sysfs counts, too.
    """
    parents = {link.parent for link in links}
    owners = {
        netdev: vf.pci
        for vf in vfs
        if vf.pci not in parents
        for netdev in (*vf.netdevs, *all_netdevs(sysfs / _FUNCTIONS / vf.pci))
    }
    for link in links:
        yield link if link.parent is not None else replace(link, parent=owners.get((link.name, link.index)))


def _receives(vfs: Iterable[VfDevices]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the unicast addresses in the filter of each netdev beside its own (ndo_dflt_fdb_dump), if it has any.

    VFs' drivers add none. macvlan_open adds the child's.
    """
    for index in (index for vf in vfs for _, index in vf.netdevs):
        try:
            entries = dump(_GET_NEIGHBOUR, LINK_HEADER.pack(_BRIDGE, 0, index, 0, 0))
        except OSError as error:
            # An IPoIB netdev has no such list, or the netdev is gone.
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV):
                raise
            continue
        lladdrs = (dict(read_attributes(body[_NEIGHBOUR.size :])).get(_LLADDR, b"") for body in entries)
        if addresses := tuple(address.hex(":") for address in lladdrs if address and not address[0] & _GROUP_BIT):
            yield index, addresses


def _routes(family: int) -> Iterator[Route]:
    """Yield the unicast routes of an address family, of all tables; none if the kernel lacks the family."""
    try:
        bodies = dump(_GET_ROUTE, ROUTE_HEADER.pack(family, *bytes(7), 0))
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):
            return
        raise
    objects: Mapping[int, tuple[Hop, ...]] | None = None
    for body in bodies:
        _, length, source_length, service, table, protocol, _, kind, flags = ROUTE_HEADER.unpack_from(body)
        if kind != _UNICAST:
            continue
        attributes = dict(read_attributes(body[ROUTE_HEADER.size :]))
        address = attributes.get(_DST) or bytes(4 if family == socket.AF_INET else 16)
        hops = tuple(_hops(attributes, flags))
        if not hops and _NEXTHOP in attributes:
            # So the kernel lists such routes if the sysctl nexthop_compat_mode is 0 (fib_dump_info, rt6_fill_node).
            objects = _nexthops() if objects is None else objects
            hops = objects.get(number(attributes[_NEXTHOP]), ())
        source = attributes.get(_SRC, b"").hex() if source_length else ""
        yield Route(
            prefix=ip_network((address, length)),
            hops=hops,
            metric=number(attributes.get(_PRIORITY, b"")),
            protocol=protocol,
            table=number(attributes[_TABLE]) if _TABLE in attributes else table,
            traffic=f"{source}/{source_length} {service}" if source or service else "",
        )


def _hops(attributes: Mapping[int, bytes], flags: int) -> Iterator[Hop]:
    if _OIF in attributes:
        yield Hop(number(attributes[_OIF]), _GATEWAY in attributes or _VIA in attributes, bool(flags & _DEAD))
    rest = attributes.get(_MULTIPATH, b"")
    while len(rest) >= _HOP.size:
        length, state, _, link = _HOP.unpack_from(rest)
        hop_attributes = dict(read_attributes(rest[_HOP.size : length]))
        yield Hop(link, _GATEWAY in hop_attributes or _VIA in hop_attributes, bool(state & _DEAD))
        rest = rest[max(length + 3 & ~3, _HOP.size) :]


def _nexthops() -> Mapping[int, tuple[Hop, ...]]:
    """Return the hops of each next hop object, and of each group of them, by id."""
    hops: dict[int, tuple[Hop, ...]] = {}
    groups: dict[int, list[int]] = {}
    for body in dump(_GET_NEXTHOP, _NEXTHOP_HEADER.pack(0, 0, 0, 0)):
        _, _, _, flags = _NEXTHOP_HEADER.unpack_from(body)
        attributes = dict(read_attributes(body[_NEXTHOP_HEADER.size :]))
        nexthop_id = number(attributes[_NEXTHOP_ID])
        if _NEXTHOP_OIF in attributes:
            hops[nexthop_id] = (
                Hop(number(attributes[_NEXTHOP_OIF]), _NEXTHOP_GATEWAY in attributes, bool(flags & _DEAD)),
            )
        members = attributes.get(_GROUP, b"")
        groups[nexthop_id] = [member for member, *_ in _MEMBER.iter_unpack(members)]
    return hops | {
        nexthop_id: tuple(chain(*(hops.get(member_id, ()) for member_id in ids)))
        for nexthop_id, ids in groups.items()
        if ids
    }


def _vdpa(sysfs: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the vdpa devices of each PCI function, whose folders are below the function's."""
    devices_of_pci: dict[str, tuple[str, ...]] = {}
    folder = sysfs / "bus/vdpa/devices"
    for name in names_in(folder):
        for parent in (folder / name).resolve().parents:
            devices_of_pci[parent.name] = (*devices_of_pci.get(parent.name, ()), name)
    return devices_of_pci


def _contexts(sysfs: Path, names: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[Contexts, ...]] | None:
    """Return the users of each function's RDMA devices, None without RDMA; ``names`` are the devices found in sysfs.

    The kernel's list is valid for a function if it has all its devices, and sysfs has the same ones afterwards. If not,
    both are read again. The list also misses devices while another one leaves the namespace (ib_enum_all_devs). A
    function whose devices have left, or that is never completely listed, is missing in the result.

    The kernel counts contexts without a query to the driver (fill_res_info in drivers/infiniband/core/nldev.c, Linux
    6.12), and lists them by process since 5.15. A kernel that does not count them (before 5.1) reports none.
    """
    contexts_of_pci: dict[str, tuple[Contexts, ...]] = {}
    for _ in range(_MOST_LISTS):
        if (rdma_devices := _rdma_devices()) is None:
            return None
        old_names, names = names, {pci: _rdma_of(sysfs / _FUNCTIONS / pci) for pci in names}
        complete = [
            pci
            for pci, device_names in names.items()
            if device_names == old_names[pci] and rdma_devices.keys() >= set(device_names)
        ]
        contexts_of_pci |= {
            pci: tuple(_contexts_of(name, rdma_devices[name]) for name in names[pci]) for pci in complete
        }
        names = {
            pci: device_names for pci, device_names in names.items() if device_names and pci not in contexts_of_pci
        }
        if not names:
            break
    return contexts_of_pci


def _rdma_devices() -> Mapping[str, Mapping[int, bytes]] | None:
    """Return the RDMA devices of this namespace by name, with their netlink attributes; None without RDMA."""
    try:
        answer = [dict(message) for message in rdma_netlink.exchange(rdma_netlink.RES_GET, {}, dump=True)]
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return None
        raise
    return {text(device[rdma_netlink.DEV_NAME]): device for device in answer if rdma_netlink.DEV_NAME in device}


def _contexts_of(name: str, device: Mapping[int, bytes]) -> Contexts:
    count = _count(device.get(rdma_netlink.RES_SUMMARY, b""))
    if not count:
        return Contexts(name)
    pids = _pids(device[rdma_netlink.DEV_INDEX])
    processes = [_process(pid) for pid in pids]
    nameless = max(count - len(pids), 0) + processes.count(None)
    return Contexts(name, tuple(sorted({process for process in processes if process})), nameless)


def _count(summary: bytes) -> int:
    for _, entry_body in read_attributes(summary):
        entry = dict(read_attributes(entry_body))
        if text(entry.get(rdma_netlink.RES_SUMMARY_ENTRY_NAME, b"")) == "ctx":
            return number(entry.get(rdma_netlink.RES_SUMMARY_ENTRY_CURR, b""))
    return 0


def _pids(index: bytes) -> list[int]:
    """Return the ids of the processes that have contexts of a device; empty if the kernel has no such list."""
    try:
        answer = rdma_netlink.exchange(rdma_netlink.RES_CTX_GET, {rdma_netlink.DEV_INDEX: index}, dump=True)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return []
        raise
    tables = (value for message in answer for kind, value in message if kind == rdma_netlink.RES_CTX)
    entries = (dict(read_attributes(entry)) for table in tables for _, entry in read_attributes(table))
    return [number(entry[rdma_netlink.RES_PID]) for entry in entries if rdma_netlink.RES_PID in entry]


def _process(pid: int) -> str | None:
    """Return name and id of a process of the host; empty for one in another network namespace, None if unknown."""
    folder = Path("/proc", str(pid))
    try:
        if (folder / "ns/net").readlink() != Path("/proc/thread-self/ns/net").readlink():
            return ""
        return f"{(folder / 'comm').read_text(errors='replace').strip()} {pid}"
    except FileNotFoundError:
        return ""  # The process has ended.
    except OSError:
        return None


def _is_exclusive(sysfs: Path) -> bool:
    """Return whether each RDMA device is in only one network namespace (ib_devices_shared_netns in core/device.c)."""
    try:
        return (sysfs / "module/ib_core/parameters/netns_mode").read_text().strip() == "N"
    except OSError:
        return False
