"""Read and write the settings that a PF stores for its VFs, by RTNETLINK in the calling thread's network namespace.

Simulations implement `VfSettingsApi`. Every failure is the kernel's, as OSError. Attributes are from
include/uapi/linux/if_link.h. The kernel calls the driver's ndo_set_vf_* one by one and stops at the first error
(do_setvfinfo in net/core/rtnetlink.c).
"""

import errno
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mooring.nic.netlink_codec import (
    LINK_HEADER,
    REQUEST,
    number,
    pack_attribute,
    pack_message,
    read_attributes,
    read_messages,
    u32,
)
from mooring.nic.pci import is_pf_name
from mooring.nic.pf_drivers import SETS_INFINIBAND_VFS
from mooring.nic.rtnetlink_dump import dump
from mooring.nic.settings import LinkState, VfSettings, reported_vlan
from mooring.nic.vf_settings_sysfs import SysfsVfSettings

# RTEXT_FILTER_VF and RTEXT_FILTER_SKIP_STATS: with statistics the list attribute overflows near 54 VFs.
_VF, _WITHOUT_STATISTICS = 1, 8
_LINK_STATES: tuple[LinkState, LinkState, LinkState] = ("auto", "enable", "disable")
# The value of an IFLA_VF_* attribute that the driver does not report.
_NO_VALUE = 0xFFFF_FFFF
_GET_LINK, _EXT_MASK, _NUM_VF, _VFINFO_LIST, _PERM_ADDRESS = 18, 29, 21, 22, 54
_VF_MAC, _VF_VLAN, _VF_SPOOFCHK, _VF_LINK_STATE, _VF_RATE, _VF_TRUST, _VF_NODE_GUID = 1, 2, 4, 5, 6, 9, 10
_MOST_BYTES = 1 << 18
# ARPHRD_* of include/uapi/linux/if_arp.h.
_ETHERNET, _INFINIBAND = 1, 32


class VfSettingsApi(Protocol):
    """The settings that a PF stores for its VFs; methods raise OSError with the kernel's errno."""

    def read(self, pf: str, vf: int) -> VfSettings: ...

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        """Return the settings of every VF of a PF by index; an incomplete list is an error."""

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set the fields that are not None, in one message; after an error, earlier fields stay set.

        A rejected field may be set, too, or its old value may no longer be in force (`mooring.nic.write_again`).
        """

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        """Set both rates of VFs to 0, in one message; after an error, earlier VFs stay set."""


class RtnetlinkVfSettings:
    """The settings of the kernel, by the PF's driver."""

    def read(self, pf: str, vf: int) -> VfSettings:
        hardware, link = _link_with_vfs(pf)
        settings = read_vf_settings(pf, link, vf, hardware).get(vf)
        if settings is None:
            raise OSError(errno.EINVAL, f"pf {pf!r} has no vf {vf}")
        return settings

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        hardware, link = _link_with_vfs(pf)
        return read_vf_settings(pf, link, hardware=hardware)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        with _session() as netlink:
            if attributes := _vf_attributes(settings):
                netlink.link("set", index=_index(pf), vf={"vf": vf, **attributes})
        if settings.guid is not None:
            self.write_guid(pf, vf, settings.guid)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        """Set both rates of VFs to 0: do_setlink in net/core/rtnetlink.c takes any number of IFLA_VF_INFO at once."""
        if infos := [_zero_rates(vf) for vf in vfs]:
            with _session() as netlink:
                netlink.link("set", index=_index(pf), IFLA_VFINFO_LIST={"attrs": infos})

    def permanent_address(self, pf: str) -> str | None:
        """Return the permanent MAC of a PF's netdev (IFLA_PERM_ADDRESS, Linux 5.6), None if none is reported."""
        return permanent_address(pf)

    def set_mtu(self, pf: str, mtu: int) -> None:
        """Set the MTU of a PF's netdev."""
        with _session() as netlink:
            netlink.link("set", index=_index(pf), mtu=mtu)

    def bring_up(self, pf: str) -> None:
        """Set a PF's netdev up."""
        with _session() as netlink:
            netlink.link("set", index=_index(pf), state="up")

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        """Set a VF's node and port GUID on InfiniBand."""
        with _session() as netlink:
            for kind in ("node", "port"):
                netlink.link("set", index=_index(pf), IFLA_VFINFO_LIST=guid_attributes(kind, vf, guid))


class _NoSettings:
    """The settings of a PF that stores none."""

    def read(self, pf: str, vf: int) -> VfSettings:
        return VfSettings()

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        return defaultdict(VfSettings)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


class VfSettingsSelector:
    """Selects where a PF stores its VFs' settings: another API (netlink), sysfs, or nowhere.

    Netlink needs the PF's netdev. An InfiniBand PF without ib_ipoib has none, and is named by its PCI address; it
    stores settings in sysfs or nowhere (`mooring.nic.vf_settings_sysfs`). If the RDMA driver has no operations for VFs,
    as mlx4's, the netdev lists no VFs (`mooring.nic.pf_drivers`). ``sysfs`` is where /sys is mounted.
    """

    def __init__(self, settings: VfSettingsApi, sysfs: Path) -> None:
        self._settings = settings
        self._in_sysfs = SysfsVfSettings(sysfs)
        self._netdevs = sysfs / "class" / "net"

    def read(self, pf: str, vf: int) -> VfSettings:
        return self._of(pf).read(pf, vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        return self._of(pf).read_all(pf)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self._of(pf).write(pf, vf, settings)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self._of(pf).clear_rates(pf, vfs)

    def _of(self, pf: str) -> VfSettingsApi:
        if self._in_sysfs.are_there(pf):
            return self._in_sysfs
        return _NoSettings() if self._keeps_none(pf) else self._settings

    def _keeps_none(self, pf: str) -> bool:
        """Return whether a PF stores no settings; False if that is unknown, so that a call returns the error."""
        if is_pf_name(pf):
            return True
        netdev = self._netdevs / pf
        try:
            is_infiniband = (netdev / "type").read_text().strip() == str(_INFINIBAND)
            return is_infiniband and (netdev / "device/driver").readlink().name not in SETS_INFINIBAND_VFS
        except OSError:
            return False


@contextmanager
def _session() -> Iterator[Any]:
    """Open a netlink socket for one exchange, and convert pyroute2's errors to OSErrors."""
    try:
        with IPRoute() as netlink:
            yield netlink
    except NetlinkError as error:
        raise OSError(error.code, os.strerror(error.code)) from error


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        raise OSError(errno.ENODEV, f"no interface {name!r}") from None


def permanent_address(netdev: str) -> str | None:
    """Return a netdev's permanent address, None if the kernel reports none; raise OSError."""
    _, link = _link(netdev, _WITHOUT_STATISTICS)
    address = dict(read_attributes(link)).get(_PERM_ADDRESS)
    return None if address is None else address.hex(":")


def _link_with_vfs(pf: str) -> tuple[int, bytes]:
    """Request a PF's link with its VFs; return its ARPHRD number and the attributes' bytes; raise OSError.

    The kernel answers EMSGSIZE for an InfiniBand PF with many VFs before Linux 6.15, or a stable release with the same
    correction: rtnl_vfinfo_size leaves out the VFs' GUIDs, and rtnl_getlink allocates that size. In a list the PF fits,
    because netlink_dump allocates 32 KiB once a reader with such a buffer has called: room for 130 VFs.
    """
    mask = _VF | _WITHOUT_STATISTICS
    try:
        return _link(pf, mask)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
    try:
        return _link_from_list(pf, mask)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        why = f"this kernel cannot report that many vfs of pf {pf!r} with GUIDs: create fewer, or upgrade to Linux 6.15"
        raise OSError(errno.EMSGSIZE, why) from error


def _link_from_list(netdev: str, mask: int) -> tuple[int, bytes]:
    """Return what `_link` does, from the list of all links."""
    wanted_index = _index(netdev)
    for body in dump(_GET_LINK, LINK_HEADER.pack(0, 0, 0, 0, 0), ((_EXT_MASK, u32(mask)),)):
        _, hardware, index, *_ = LINK_HEADER.unpack_from(body)
        if index == wanted_index:
            return hardware, body[LINK_HEADER.size :]
    raise OSError(errno.ENODEV, f"no interface {netdev!r}")


def _link(netdev: str, mask: int) -> tuple[int, bytes]:
    """Request a link; return its ARPHRD number and the attributes' bytes. ``mask`` is RTEXT_FILTER_*.

    The bytes are parsed here, because pyroute2 (0.9) reads a GUID of 16 bytes as 36 and fails on every InfiniBand PF.
    """
    query = LINK_HEADER.pack(0, 0, _index(netdev), 0, 0) + pack_attribute(_EXT_MASK, u32(mask))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as route:
        route.send(pack_message(_GET_LINK, REQUEST, query))
        answer = next(read_messages(route.recv(_MOST_BYTES)))
    if answer.is_last:
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
    _, hardware, *_ = LINK_HEADER.unpack_from(answer.body)
    return hardware, answer.body[LINK_HEADER.size :]


def read_vf_settings(
    pf: str, link: bytes, index: int | None = None, hardware: int = _ETHERNET
) -> Mapping[int, VfSettings]:
    """Return the settings of the VFs in a link's attributes, or of VF ``index``; raise OSError if VFs are missing.

    IFLA_NUM_VF is the device's sriov_numvfs, read under the same lock. The list attribute has a 16-bit length and is
    truncated without an error. ``hardware`` is the link's ARPHRD number.
    """
    attributes = dict(read_attributes(link))
    # Every VF's first attribute starts with its number.
    info_of_vf = {number(info[4:8]): info for _, info in read_attributes(attributes.get(_VFINFO_LIST, b""))}
    vf_count = number(attributes.get(_NUM_VF, b""))
    if len(info_of_vf) != vf_count:
        raise OSError(errno.EMSGSIZE, f"the kernel lists {len(info_of_vf)} of the {vf_count} vfs of pf {pf!r}")
    indexes = info_of_vf if index is None else info_of_vf.keys() & {index}
    settings_of_vf = dict(_read_info(dict(read_attributes(info_of_vf[vf]))) for vf in indexes)
    return (
        {vf: reported_by_ipoib(settings) for vf, settings in settings_of_vf.items()}
        if hardware == _INFINIBAND
        else settings_of_vf
    )


def reported_by_ipoib(answer: VfSettings) -> VfSettings:
    """Return the valid part of a PF's report about a VF on InfiniBand: its link state and GUID.

    The rest is meaningless: mlx5_ib_get_vf_config (drivers/infiniband/hw/mlx5/ib_virt.c) fills it with zeros, and
    ipoib_get_vf_config (drivers/infiniband/ulp/ipoib/ipoib_main.c) returns the PF's own address as MAC.
    """
    return VfSettings(link_state=answer.link_state, guid=answer.guid)


def _read_info(info: Mapping[int, bytes]) -> tuple[int, VfSettings]:
    """Return index and settings of one VF; every attribute is a structure that starts with the index, in 32 bits."""
    _, vlan, qos = _numbers(info, _VF_VLAN)
    _, low, high = _numbers(info, _VF_RATE)
    mac = info.get(_VF_MAC)
    link_state = _setting(info, _VF_LINK_STATE)
    settings = VfSettings(
        min_tx_rate=low,
        max_tx_rate=high,
        mac=mac[4:10].hex(":") if mac is not None else None,
        vlan=reported_vlan(vlan),
        qos=qos,
        trust=_flag(_setting(info, _VF_TRUST)),
        spoofchk=_flag(_setting(info, _VF_SPOOFCHK)),
        link_state=_LINK_STATES[link_state] if link_state is not None and link_state < 3 else None,
        guid=_guid(info.get(_VF_NODE_GUID)),
    )
    return number(next(iter(info.values()))[:4]), settings


def _numbers(info: Mapping[int, bytes], kind: int) -> tuple[int | None, int | None, int | None]:
    value = info.get(kind)
    return struct.unpack_from("=III", value) if value is not None else (None, None, None)


def _setting(info: Mapping[int, bytes], kind: int) -> int | None:
    value = number(info[kind][4:8]) if kind in info else _NO_VALUE
    return None if value == _NO_VALUE else value


def _guid(value: bytes | None) -> str | None:
    """Return a VF's node GUID, None if it was never set: then it reads as zeros or ones, and cannot be restored."""
    guid = number(value[8:16]) if value is not None else 0
    return None if guid in (0, 2**64 - 1) else guid.to_bytes(8, "big").hex(":")


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _vf_attributes(settings: VfSettings) -> dict[str, object]:
    """Return the attributes of one message; both rates share an attribute, and so do VLAN and priority."""
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


def _zero_rates(vf: int) -> list[object]:
    rate = {"vf": vf, "min_tx_rate": 0, "max_tx_rate": 0}
    return ["IFLA_VF_INFO", {"attrs": [["IFLA_VF_RATE", rate]]}]


def guid_attributes(kind: str, vf: int, guid: str) -> dict[str, object]:
    """Return the attributes that set a VF's node or port GUID on InfiniBand (struct ifla_vf_guid: u32, pad, u64)."""
    fields = {"vf": vf, f"ib_{kind}_guid": guid}
    return {"attrs": [["IFLA_VF_INFO", {"attrs": [[f"IFLA_VF_IB_{kind.upper()}_GUID", fields]]}]]}
