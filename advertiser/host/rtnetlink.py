"""Read altnames and uses of links by RTNETLINK in the current network namespace, as sysfs does not have them."""

from collections.abc import Iterable, Iterator, Mapping
from socket import AF_INET, AF_INET6
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

# RT_SCOPE_LINK in include/uapi/linux/rtnetlink.h.
_LINK_SCOPE = 253


def altnames(netdevs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the altnames of the netdevs that have any; netdevs that do not exist are skipped."""
    with IPRoute() as route:
        found = {netdev: _altnames(_link(route, netdev)) for netdev in netdevs}
    return {netdev: names for netdev, names in found.items() if names}


def host_uses(netdev: str) -> tuple[str, ...]:
    """Return how the host uses a netdev: addresses, default routes, its bond or bridge, and links on top of it.

    Link-local addresses do not count: every netdev that is up has one.
    """
    with IPRoute() as route:
        link = _link(route, netdev)
        if link is None:
            return ()
        names = {message["index"]: message.get_attr("IFLA_IFNAME") for message in route.get_links()}
        index = link["index"]
        return (*_addresses(route, index), *_default_routes(route, index), *_stacked(route, index, names))


def master_kind(netdev: str) -> str | None:
    """Return the kind of the link that a netdev is a port of ("bond", "team", "bridge"), None without one."""
    with IPRoute() as route:
        link = _link(route, netdev)
    info = link.get_attr("IFLA_LINKINFO") if link is not None else None
    kind: str | None = info.get_attr("IFLA_INFO_SLAVE_KIND") if info is not None else None
    return kind


def _addresses(route: Any, index: int) -> Iterator[str]:
    for address in route.get_addr(index=index):
        if address["scope"] != _LINK_SCOPE:
            yield f"address {address.get_attr('IFA_ADDRESS')}/{address['prefixlen']}"


def _default_routes(route: Any, index: int) -> Iterator[str]:
    for family, version in ((AF_INET, "IPv4"), (AF_INET6, "IPv6")):
        for message in route.get_routes(family=family, oif=index):
            if message["dst_len"] == 0:
                yield f"{version} default route"


def _stacked(route: Any, index: int, names: Mapping[int, str]) -> Iterator[str]:
    """Yield the bond or bridge of a netdev, and the links on top of it, such as VLANs."""
    for message in route.get_links():
        name, kind = names.get(message["index"], "?"), _kind(message)
        if message["index"] == index and (master := message.get_attr("IFLA_MASTER")):
            yield f"port of {names.get(master, master)}"
        # A veth's IFLA_LINK is its peer (veth_get_iflink), which is not below it.
        elif message.get_attr("IFLA_LINK") == index and message["index"] != index and kind != "veth":
            yield f"{kind} {name}"


def _kind(link: Any) -> str:
    info = link.get_attr("IFLA_LINKINFO")
    return (info.get_attr("IFLA_INFO_KIND") if info is not None else None) or "link"


def _link(route: Any, netdev: str) -> Any:
    try:
        return route.link("get", ifname=netdev)[0]
    except NetlinkError:
        return None


def _altnames(link: Any) -> tuple[str, ...]:
    properties = link.get_attr("IFLA_PROP_LIST") if link is not None else None
    return tuple(properties.get_attrs("IFLA_ALT_IFNAME")) if properties else ()
