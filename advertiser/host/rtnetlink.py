"""Data that sysfs does not have, by RTNETLINK in the current network namespace: altnames, VFs' settings, a link's uses.

VF lists are requested without statistics: with them the list outgrows one attribute near 54 VFs, and is cut short.
"""

from collections.abc import Iterable, Iterator, Mapping
from socket import AF_INET, AF_INET6
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mooring.nic.settings import LinkState, VfSettings, reported_vlan
from mooring.nic.vf_settings import reported_by_ipoib

# RTEXT_FILTER_VF and RTEXT_FILTER_SKIP_STATS in include/uapi/linux/rtnetlink.h.
_VFS_WITHOUT_STATS = 1 | 8
# RT_SCOPE_LINK in include/uapi/linux/rtnetlink.h.
_LINK_SCOPE = 253
# ARPHRD_INFINIBAND in include/uapi/linux/if_arp.h.
_INFINIBAND = 32
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
    return settings_listed(link) if link is not None else {}


def settings_listed(link: Any) -> Mapping[int, VfSettings]:
    """Return the settings of VFs that the kernel's message about their PF lists."""
    listed = link.get_attr("IFLA_VFINFO_LIST")
    infos = (_vf(info) for info in (listed.get_attrs("IFLA_VF_INFO") if listed else ()))
    found = {index: settings for index, settings in infos if index is not None}
    is_ipoib = link["ifi_type"] == _INFINIBAND
    return {index: reported_by_ipoib(each) for index, each in found.items()} if is_ipoib else found


def host_uses(netdev: str) -> tuple[str, ...]:
    """Return how the host itself uses a netdev: its addresses, default routes, its bond or bridge, and its VLANs.

    Link-local addresses are not listed: every netdev that is up has one.
    """
    with IPRoute() as route:
        link = _link(route, netdev, 0)
        if link is None:
            return ()
        names = {each["index"]: each.get_attr("IFLA_IFNAME") for each in route.get_links()}
        index = link["index"]
        return (*_addresses(route, index), *_default_routes(route, index), *_stacked(route, index, names))


def master_kind(netdev: str) -> str | None:
    """Return the kind of the link that a netdev is a port of ("bond", "team", "bridge"), None without one."""
    with IPRoute() as route:
        link = _link(route, netdev, 0)
    info = link.get_attr("IFLA_LINKINFO") if link is not None else None
    kind: str | None = info.get_attr("IFLA_INFO_SLAVE_KIND") if info is not None else None
    return kind


def _addresses(route: Any, index: int) -> Iterator[str]:
    for address in route.get_addr(index=index):
        if address["scope"] != _LINK_SCOPE:
            yield f"address {address.get_attr('IFA_ADDRESS')}/{address['prefixlen']}"


def _default_routes(route: Any, index: int) -> Iterator[str]:
    for family, version in ((AF_INET, "IPv4"), (AF_INET6, "IPv6")):
        for each in route.get_routes(family=family, oif=index):
            if each["dst_len"] == 0:
                yield f"{version} default route"


def _stacked(route: Any, index: int, names: Mapping[int, str]) -> Iterator[str]:
    """Yield the bond or bridge that a netdev is a port of, and the links on top of it, such as VLANs."""
    for each in route.get_links():
        name, kind = names.get(each["index"], "?"), _kind(each)
        if each["index"] == index and (master := each.get_attr("IFLA_MASTER")):
            yield f"port of {names.get(master, master)}"
        # A veth names its peer there (veth_get_iflink), which is not below it.
        elif each.get_attr("IFLA_LINK") == index and each["index"] != index and kind != "veth":
            yield f"{kind} {name}"


def _kind(link: Any) -> str:
    info = link.get_attr("IFLA_LINKINFO")
    return (info.get_attr("IFLA_INFO_KIND") if info is not None else None) or "link"


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
