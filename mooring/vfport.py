"""The settings that a PF keeps for its VFs, through RTNETLINK in the network namespace of the calling thread.

`VfPort` is the one port that a simulation replaces. Every failure is the kernel's own, as OSError. Attributes:
include/uapi/linux/if_link.h; ndo_set_vf_* are called one by one and stop at the first refusal (do_setvfinfo in
net/core/rtnetlink.c).
"""

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mooring.settings import LinkState, VfSettings

# RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS: with statistics the list attribute overflows near 54 VFs.
_VF_WITHOUT_STATISTICS = 1 | 8
_LINK_STATES: tuple[LinkState, LinkState, LinkState] = ("auto", "enable", "disable")
# IFLA_VF_* read as all ones where the driver does not report them.
_UNSUPPORTED = 0xFFFF_FFFF
_NO_GUIDS = (":".join(8 * ["00"]), ":".join(8 * ["ff"]))


class VfPort(Protocol):
    """The settings of VFs as their PF keeps them; raises OSError with the kernel's errno."""

    def read(self, pf: str, vf: int) -> VfSettings: ...

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        """Return the settings of every VF of a PF; a list that is not whole is an error, never a shorter list."""

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set what is not None, in one message; what came before a refusal stays set."""


class RtnetlinkVfPort:
    """The kernel's own: the PF's driver answers."""

    def read(self, pf: str, vf: int) -> VfSettings:
        settings = self.read_all(pf).get(vf)
        if settings is None:
            raise OSError(errno.EINVAL, f"pf {pf!r} has no vf {vf}")
        return settings

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        with netlink_session() as netlink:
            (message,) = netlink.link("get", index=index_of(netlink, pf), ext_mask=_VF_WITHOUT_STATISTICS)
        return settings_listed(pf, message)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        with netlink_session() as netlink:
            if attributes := _vf_attributes(settings):
                netlink.link("set", index=index_of(netlink, pf), vf={"vf": vf, **attributes})
        if settings.guid is not None:
            self.write_guid(pf, vf, settings.guid)

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        """Set a VF's node and port GUID on InfiniBand."""
        with netlink_session() as netlink:
            for kind in ("node", "port"):
                netlink.link("set", index=index_of(netlink, pf), IFLA_VFINFO_LIST=guid_attributes(kind, vf, guid))


@contextmanager
def netlink_session() -> Iterator[Any]:
    """Open a netlink socket for one exchange; pyroute2's errors become OSErrors here and nowhere else."""
    try:
        with IPRoute() as netlink:
            yield netlink
    except NetlinkError as refused:
        raise OSError(refused.code, os.strerror(refused.code)) from refused


def index_of(netlink: Any, name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        raise OSError(errno.ENODEV, f"no interface {name!r}") from None


def settings_listed(pf: str, message: Any) -> Mapping[int, VfSettings]:
    """Return the settings of every VF in a link message; raise OSError where some of its VFs are missing.

    IFLA_NUM_VF is the device's sriov_numvfs, read under the same lock. The list attribute has 16 bits for its length
    and is cut off without a word.
    """
    listed = message.get_attr("IFLA_VFINFO_LIST")
    found = dict(_read_info(info) for info in (listed.get_attrs("IFLA_VF_INFO") if listed is not None else ()))
    expected = message.get_attr("IFLA_NUM_VF") or 0
    if len(found) != expected:
        raise OSError(errno.EMSGSIZE, f"the kernel lists {len(found)} of the {expected} vfs of pf {pf!r}")
    return found


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
        guid=_guid(info.get_attr("IFLA_VF_IB_NODE_GUID")),
    )
    return int(mac.get("vf", vlan.get("vf", 0))), settings


def _value(info: Any, attribute: str, name: str) -> int | None:
    value = info.get_attr(attribute)
    return None if value is None or value[name] in (_UNSUPPORTED, -1) else int(value[name])


def _guid(attribute: Any) -> str | None:
    """Return a VF's node GUID; one that was never set reads as zeros or ones, and there is nothing to go back to."""
    guid = str(attribute["ib_node_guid"]) if attribute is not None else _NO_GUIDS[0]
    return None if guid in _NO_GUIDS else guid


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


def guid_attributes(kind: str, vf: int, guid: str) -> dict[str, object]:
    """Return the attributes that set a VF's node or port GUID on InfiniBand (struct ifla_vf_guid: u32, pad, u64)."""
    fields = {"vf": vf, f"ib_{kind}_guid": guid}
    return {"attrs": [["IFLA_VF_INFO", {"attrs": [[f"IFLA_VF_IB_{kind.upper()}_GUID", fields]]}]]}
