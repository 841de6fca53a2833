"""Data that sysfs does not have, by RTNETLINK in the current network namespace: altnames, and the settings of VFs.

VF lists are requested without statistics: with them the list outgrows one attribute near 54 VFs, and is cut short.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mooring.settings import LinkState, VfSettings, reported_vlan

# RTEXT_FILTER_VF and RTEXT_FILTER_SKIP_STATS in include/uapi/linux/rtnetlink.h.
_VFS_WITHOUT_STATS = 1 | 8
_LINK_STATES: dict[int, LinkState] = {0: "auto", 1: "enable", 2: "disable"}


def altnames(netdevs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the altnames of those netdevs that have any; a missing netdev has none."""
    with IPRoute() as route:
        found = {netdev: _altnames(_link(route, netdev, 0)) for netdev in netdevs}
    return {netdev: names for netdev, names in found.items() if names}


def vf_settings(pf: str) -> Mapping[int, VfSettings]:
    """Return the settings of a PF's VFs by index, those that its driver reports."""
    with IPRoute() as route:
        link = _link(route, pf, _VFS_WITHOUT_STATS)
    listed = link.get_attr("IFLA_VFINFO_LIST") if link is not None else None
    found = (_vf(info) for info in (listed.get_attrs("IFLA_VF_INFO") if listed else ()))
    return {index: settings for index, settings in found if index is not None}


def _link(route: Any, netdev: str, mask: int) -> Any:
    try:
        return route.link("get", ifname=netdev, ext_mask=mask)[0]
    except NetlinkError:
        return None


def _altnames(link: Any) -> tuple[str, ...]:
    properties = link.get_attr("IFLA_PROP_LIST") if link is not None else None
    return tuple(properties.get_attrs("IFLA_ALT_IFNAME")) if properties else ()


def _vf(info: Any) -> tuple[int | None, VfSettings]:
    def value(attribute: str, field: str) -> Any:
        whole = info.get_attr(attribute)
        return None if whole is None else whole.get(field)

    return value("IFLA_VF_MAC", "vf"), VfSettings(
        min_tx_rate=value("IFLA_VF_RATE", "min_tx_rate"),
        max_tx_rate=value("IFLA_VF_RATE", "max_tx_rate"),
        mac=value("IFLA_VF_MAC", "mac"),
        vlan=reported_vlan(value("IFLA_VF_VLAN", "vlan")),
        qos=value("IFLA_VF_VLAN", "qos"),
        trust=_switch(value("IFLA_VF_TRUST", "trust")),
        spoofchk=_switch(value("IFLA_VF_SPOOFCHK", "spoofchk")),
        link_state=_LINK_STATES.get(value("IFLA_VF_LINK_STATE", "link_state")),
    )


def _switch(raw: int | None) -> bool | None:
    # What a driver does not report reads as all ones.
    return None if raw is None or raw > 1 else bool(raw)
