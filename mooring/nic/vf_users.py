"""Decide who uses a VF: a pod of ours, or the host; for the inventory, `init`, ADD and everything that rebinds drivers.

Pure: `mooring.nic.host_facts` reads the facts. The host uses a VF if one of these is true:

- Its driver passes it to user space or to a virtual machine, or it has a vdpa device.
- Its netdev is a port of a link (bond, team, bridge, VRF, Open vSwitch), or has links on top of it (VLAN, macvlan,
  ipvlan, IPoIB's children, tunnels). A macvlan in another network namespace, such as a pod's, shows by its address
  only: the netdev receives for it.
- Without the netdev the host would lose a route.
- A process of the host has its RDMA device open. The kernel's own users of an RDMA device use it through the netdev.

An address and its routes alone do not count, because many network programs request a DHCP lease for a new VF that is
up. A route of a lease does not count if another link has the same route with a lower metric, or an earlier one with an
equal metric.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

# Drivers that pass a function to user space or to a virtual machine; variants are called mlx5_vfio_pci and the like.
_USER_SPACE = frozenset({"uio_pci_generic", "igb_uio", "pci-stub", "pciback", "xen-pciback"})
# RTPROT_* in include/uapi/linux/rtnetlink.h. The kernel makes connected, link-local and multicast routes. The others
# come with a lease: by ICMP redirect, router advertisement and DHCP (systemd-networkd and NetworkManager use the latter
# two for all routes of a lease).
_KERNEL, _LEASE_PROTOCOLS = 2, frozenset({1, 9, 16})
# Links whose IFLA_LINK names their peer, which is not below them (veth_get_iflink and those of netkit and vxcan).
_PAIRS = frozenset({"veth", "netkit", "vxcan"})
_MAIN_TABLE = 254
_MOST_USES = 3
_NO_REPORT = "the kernel does not report who uses its RDMA device "
RDMA_IN_OTHER_NAMESPACE = "its RDMA device is in another network namespace"

Prefix = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class VfDevices:
    """A VF's driver and devices in sysfs: netdevs by name and index, RDMA devices by name.

    ``rdma_away``: its RDMA device is in another network namespace.
    """

    pci: str
    driver: str | None = None
    netdevs: tuple[tuple[str, int], ...] = ()
    rdma: tuple[str, ...] = ()
    rdma_away: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the host's namespace; ``parent`` is the PCI address of its device, None if it has none.

    ``master`` is the index of the link that it is a port of, ``lowers`` are the indexes of the links below it.
    """

    index: int
    name: str
    kind: str = "link"
    parent: str | None = None
    master: int | None = None
    lowers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """A next hop of a route: a link's index. ``dead``: that link is down or has no carrier."""

    link: int
    gateway: bool = False
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """A unicast route; ``protocol`` (RTPROT_*) says who made it.

    ``traffic`` is the source prefix and the type of service that it is limited to, empty for all traffic.
    """

    prefix: Prefix
    hops: tuple[Hop, ...]
    metric: int = 0
    protocol: int = 0
    table: int = _MAIN_TABLE
    traffic: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The users of an RDMA device: the host's processes by name, and the number of contexts of unnamed processes."""

    device: str
    host: tuple[str, ...] = ()
    nameless: int = 0


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The state of a host's network in the kernel, and the VFs that pods have.

    ``pods`` are the holders of VFs, ``vdpa`` their vdpa devices and ``contexts`` the users of their RDMA devices, all
    by PCI address. The users of a VF that is missing in ``contexts`` are unknown; None means a kernel without RDMA.
    ``rdma_exclusive``: each RDMA device is in one network namespace. Otherwise every pod sees the host's devices, so an
    unnamed process may belong to a pod. ``receives`` are the unicast addresses of other links for which a VF's netdev
    receives, by its index.
    """

    links: tuple[Link, ...] = ()
    routes: tuple[Route, ...] = ()
    pods: Mapping[str, str] = field(default_factory=dict, hash=False)
    vdpa: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    contexts: Mapping[str, tuple[Contexts, ...]] | None = None
    rdma_exclusive: bool = False
    receives: Mapping[int, tuple[str, ...]] = field(default_factory=dict, hash=False)


NO_FACTS = HostFacts()


def user_of(vf: VfDevices, facts: HostFacts) -> str | None:
    """Return who uses a VF, None if it is free; if the kernel does not report it, the VF counts as in use."""
    if holder := facts.pods.get(vf.pci):
        return holder
    if vf.driver is not None and ("vfio" in vf.driver or vf.driver in _USER_SPACE):
        return f"bound to {vf.driver}"
    if devices := facts.vdpa.get(vf.pci):
        return f"the host uses {vf.pci} (vdpa device {', '.join(devices[:_MOST_USES])})"
    return _user_of_netdevs(vf, facts) or _user_of_rdma(vf, facts)


def may_be_transient(user: str) -> bool:
    """Return whether a use may end soon: a process that opens all RDMA devices briefly, or a device that moves."""
    return user == RDMA_IN_OTHER_NAMESPACE or user.startswith(_NO_REPORT) or "(process " in user


def uses_link(link: Link, facts: HostFacts, lost_links: frozenset[int] | None = None) -> Iterator[str]:
    """Yield how the host uses a link; ``lost_links`` are the indexes of all links that would disappear with it."""
    names = {other.index: other.name for other in facts.links}
    if link.master is not None:
        yield f"port of {names.get(link.master, link.master)}"
    other_links = (other for other in facts.links if other.index != link.index and other.kind not in _PAIRS)
    above = [f"{other.kind} {other.name}" for other in other_links if link.index in other.lowers]
    yield from above
    if link.master is None and not above and link.index in facts.receives:
        yield f"link in another namespace with address {facts.receives[link.index][0]}"
    yield from lost_routes(link.index, lost_links or frozenset({link.index}), facts.routes)


def lost_routes(link: int, lost_links: frozenset[int], routes: tuple[Route, ...]) -> Iterator[str]:
    """Yield the routes of a link that the host would lose together with the links ``lost_links``."""
    for route in routes:
        if any(hop.link == link for hop in route.hops) and _is_lost(route, lost_links, routes):
            table = "" if route.table == _MAIN_TABLE else f" of table {route.table}"
            is_default = route.prefix.prefixlen == 0
            yield (f"IPv{route.prefix.version} default route" if is_default else f"route to {route.prefix}") + table


def _user_of_netdevs(vf: VfDevices, facts: HostFacts) -> str | None:
    vf_links = [link for link in facts.links if link.parent == vf.pci]
    indexes = frozenset(link.index for link in vf_links)
    for link in vf_links:
        if uses := list(dict.fromkeys(uses_link(link, facts, indexes)))[:_MOST_USES]:
            return f"the host uses {link.name} ({', '.join(uses)})"
    return None


def _user_of_rdma(vf: VfDevices, facts: HostFacts) -> str | None:
    if facts.contexts is None:
        return None
    if facts.rdma_exclusive and vf.rdma_away:
        return RDMA_IN_OTHER_NAMESPACE
    if vf.rdma and vf.pci not in facts.contexts:
        return f"{_NO_REPORT}{vf.rdma[0]}"
    for contexts in facts.contexts.get(vf.pci, ()):
        if contexts.host:
            return f"the host uses {contexts.device} (process {', '.join(contexts.host[:_MOST_USES])})"
        if contexts.nameless and (facts.rdma_exclusive or not facts.pods):
            return f"the host uses {contexts.device} (process unknown)"
    return None


def _is_lost(route: Route, lost_links: frozenset[int], routes: tuple[Route, ...]) -> bool:
    if route.protocol == _KERNEL:
        return False
    candidates = (rival for rival in routes if rival.table == route.table and rival is not route)
    candidates = (rival for rival in candidates if rival.traffic in ("", route.traffic))
    rivals = [rival for rival in candidates if any(hop.link not in lost_links and not hop.dead for hop in rival.hops)]
    is_leased = route.protocol in _LEASE_PROTOCOLS
    if any(_beats(rival, route, routes, is_leased) for rival in rivals if rival.prefix == route.prefix):
        return False
    if route.prefix.prefixlen == 0:
        return True
    has_gateway = any(hop.gateway for hop in route.hops)
    if not has_gateway and (is_leased or route.prefix.is_link_local):
        return False
    # A lease's routes to single addresses lead to name servers. Its wider routes are meant for this link (RFC 3442).
    is_to_one = route.prefix.prefixlen == route.prefix.max_prefixlen
    return not (is_leased and is_to_one and any(_covers(rival.prefix, route.prefix) for rival in rivals))


def _beats(rival: Route, route: Route, routes: tuple[Route, ...], is_leased: bool) -> bool:
    """Return whether the kernel prefers a rival for the same prefix.

    With equal metrics it uses the first one in the order of the dump (fib_table_lookup in net/ipv4/fib_trie.c,
    rt6_select in net/ipv6/route.c). systemd-networkd and the kernel use one metric for all leases.
    """
    if rival.metric != route.metric:
        return rival.metric < route.metric
    return is_leased and routes.index(rival) < routes.index(route)


def _covers(wide: Prefix, narrow: Prefix) -> bool:
    if isinstance(wide, IPv4Network):
        return isinstance(narrow, IPv4Network) and narrow.subnet_of(wide)
    return isinstance(narrow, IPv6Network) and narrow.subnet_of(wide)
