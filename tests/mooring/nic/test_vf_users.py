"""Who uses a VF: which links, routes and processes of the host count, and which do not."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from mooring.nic.vf_users import Contexts, Hop, HostFacts, Link, Route, VfDevices, may_be_transient, user_of

PCI = "0000:04:00.3"
VF = VfDevices(PCI, "iavf", (("eth2", 8),), ("rx2",))
OTHER_PCI = "0000:04:00.4"
OWN, OTHER = Link(8, "eth2", parent=PCI), Link(2, "eth0")
KERNEL, BOOT, STATIC, RA, DHCP = 2, 3, 4, 9, 16


def route(prefix: str, link: int = 8, metric: int = 0, protocol: int = BOOT, **fields: object) -> Route:
    """Return a route by a gateway, or with ``gateway=False`` to neighbours."""
    hop = Hop(link, bool(fields.pop("gateway", True)), bool(fields.pop("dead", False)))
    return Route(ip_network(prefix), (hop,), metric, protocol, **fields)  # type: ignore[arg-type]


def user(*routes: Route, links: tuple[Link, ...] = (OTHER, OWN)) -> str | None:
    return user_of(VF, HostFacts(links, routes))


@pytest.mark.parametrize(
    "routes",
    [
        (),
        # What the kernel makes itself: connected, link-local and multicast routes.
        (
            route("192.0.2.0/24", protocol=KERNEL, gateway=False),
            route("fe80::/64", metric=1024, protocol=KERNEL, gateway=False),
        ),
        # A DHCP lease: its default route is beaten; the others lead to its gateway and its name server.
        (
            route("0.0.0.0/0", link=2, metric=100, protocol=DHCP),
            route("0.0.0.0/0", metric=101, protocol=DHCP),
            route("192.0.2.1/32", metric=101, protocol=DHCP, gateway=False),
            route("198.51.100.53/32", metric=101, protocol=DHCP),
        ),
        # Router advertisements, as NetworkManager and systemd-networkd make routes of them.
        (
            route("::/0", link=2, metric=100, protocol=RA),
            route("::/0", metric=1024, protocol=RA),
            route("2001:db8::/64", metric=1024, protocol=RA, gateway=False),
        ),
        # Leases of one metric, as systemd-networkd and the kernel take them: the kernel prefers what came first.
        (
            route("0.0.0.0/0", link=2, metric=1024, protocol=DHCP),
            route("10.200.0.0/16", link=2, metric=1024, protocol=DHCP),
            route("0.0.0.0/0", metric=1024, protocol=DHCP),
            route("10.200.0.0/16", metric=1024, protocol=DHCP),
        ),
        (route("::/0", link=2, metric=1024, protocol=RA), route("::/0", metric=1024, protocol=RA)),
        # Zero configuration networking, which some programs set for every link.
        (route("169.254.0.0/16", metric=1008, gateway=False),),
        (route("10.9.0.0/16", link=2, metric=5), route("10.9.0.0/16", metric=6)),
        (route("0.0.0.0/0", link=2, metric=5), route("0.0.0.0/0", metric=9, traffic="/0 16")),
        (route("0.0.0.0/0", link=2),),
    ],
)
def test_routes_that_the_host_would_not_lose_are_no_use(routes: tuple[Route, ...]) -> None:
    assert user(*routes) is None


@pytest.mark.parametrize(
    ("routes", "use"),
    [
        ((route("0.0.0.0/0"),), "IPv4 default route"),
        ((route("::/0", metric=1024, protocol=RA),), "IPv6 default route"),
        # The other link's default route is no better, no route of this family, of another table, or without carrier.
        ((route("0.0.0.0/0", link=2, metric=100), route("0.0.0.0/0", metric=100)), "IPv4 default route"),
        ((route("0.0.0.0/0", link=2), route("::/0", metric=1024)), "IPv6 default route"),
        ((route("0.0.0.0/0", link=2), route("0.0.0.0/0", metric=9, table=100)), "IPv4 default route of table 100"),
        ((route("0.0.0.0/0", link=2, dead=True), route("0.0.0.0/0", metric=100)), "IPv4 default route"),
        # A route that is only for some sources, or for one type of service, carries no other traffic.
        ((route("::/0", link=2, metric=1, traffic="2001db8/32 0"), route("::/0", metric=9)), "IPv6 default route"),
        # Another route of the same VF beats nothing.
        ((route("0.0.0.0/0", metric=1), route("0.0.0.0/0", metric=2)), "IPv4 default route"),
        # The administrator's own, though the default route leads there too; and a lease's without one.
        ((route("0.0.0.0/0", link=2), route("10.9.0.0/16")), "route to 10.9.0.0/16"),
        ((route("10.9.0.0/16", protocol=STATIC, gateway=False),), "route to 10.9.0.0/16"),
        ((route("198.51.100.53/32", protocol=DHCP),), "route to 198.51.100.53/32"),
        # A network that a lease leads to by this link, though another one has the default route (RFC 3442).
        ((route("0.0.0.0/0", link=2), route("10.200.0.0/16", protocol=DHCP)), "route to 10.200.0.0/16"),
        # Of equal leases the first one counts.
        (
            (route("0.0.0.0/0", metric=1024, protocol=DHCP), route("0.0.0.0/0", link=2, metric=1024, protocol=DHCP)),
            "IPv4 default route",
        ),
        ((Route(ip_network("0.0.0.0/0"), (Hop(2, gateway=True), Hop(8, gateway=True))),), "IPv4 default route"),
    ],
)
def test_routes_that_the_host_would_lose_are_named(routes: tuple[Route, ...], use: str) -> None:
    assert user(*routes) == f"the host uses eth2 ({use})"


@pytest.mark.parametrize(
    ("links", "use"),
    [
        ((Link(8, "eth2", parent=PCI, master=9), Link(9, "bond0", "bond")), "port of bond0"),
        ((OWN, Link(9, "eth2.7", "vlan", lowers=(8,))), "vlan eth2.7"),
        ((OWN, Link(9, "ib2.8001", "ipoib", parent=PCI, lowers=(8,))), "ipoib ib2.8001"),
        ((OWN, Link(9, "hsr0", "hsr", lowers=(2, 8))), "hsr hsr0"),
        ((replace(OWN, master=9), Link(9, "eth2.7", "vlan", lowers=(8,))), "port of eth2.7, vlan eth2.7"),
    ],
)
def test_links_above_a_netdev_are_named(links: tuple[Link, ...], use: str) -> None:
    assert user(links=links) == f"the host uses eth2 ({use})"


def test_a_link_in_another_namespace_is_named_by_its_address() -> None:
    """A macvlan of a pod's: the host does not list it. One of the host's own is named as such."""
    elsewhere = HostFacts((OWN,), receives={8: ("02:00:00:00:00:07",)})
    use = "link in another namespace with address 02:00:00:00:00:07"
    assert user_of(VF, elsewhere) == f"the host uses eth2 ({use})"
    here = replace(elsewhere, links=(OWN, Link(9, "mv", "macvlan", lowers=(8,))))
    assert user_of(VF, here) == "the host uses eth2 (macvlan mv)"
    port = replace(elsewhere, links=(replace(OWN, master=9), Link(9, "br0", "bridge")))
    assert user_of(VF, port) == "the host uses eth2 (port of br0)"
    assert user_of(VF, replace(elsewhere, receives={7: ("02:00:00:00:00:07",)})) is None


@pytest.mark.parametrize(
    "links",
    [
        # A veth names its peer as what it lies on; the rest is another VF's, or another link with this name or index.
        (OWN, Link(9, "veth1", "veth", lowers=(8,))),
        (OWN, Link(9, "eth3", parent="0000:04:00.4", master=2)),
        (Link(8, "eth2", parent="0000:04:00.4", master=2),),
        (Link(8, "eth2", master=2),),
    ],
)
def test_links_of_others_are_no_use(links: tuple[Link, ...]) -> None:
    assert user(links=links) is None


@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci", "uio_pci_generic", "igb_uio"])
def test_a_driver_that_passes_the_vf_on_is_a_user(driver: str) -> None:
    assert user_of(VfDevices(PCI, driver), HostFacts()) == f"bound to {driver}"


def test_a_pod_and_a_vdpa_device_are_users() -> None:
    assert user_of(VF, HostFacts(pods={PCI: "pod ns/p"})) == "pod ns/p"
    assert user_of(VF, HostFacts(vdpa={PCI: ("vdpa0",)})) == f"the host uses {PCI} (vdpa device vdpa0)"
    assert user_of(VF, HostFacts(pods={"0000:04:00.4": "pod ns/p"}, vdpa={"0000:04:00.4": ("vdpa0",)})) is None


@pytest.mark.parametrize(
    ("facts", "user"),
    [
        (HostFacts(contexts=None), None),
        (HostFacts(contexts={PCI: (Contexts("rx2"),), OTHER_PCI: (Contexts("rx3", ("perftest 7",), 1),)}), None),
        (HostFacts(contexts={PCI: (Contexts("rx2", ("perftest 7",)),)}), "the host uses rx2 (process perftest 7)"),
        (HostFacts(contexts={PCI: (Contexts("rx2", (), 2),)}), "the host uses rx2 (process unknown)"),
        (HostFacts(contexts={PCI: (Contexts("rx2"), Contexts("rx4", (), 2))}), "the host uses rx4 (process unknown)"),
        (
            HostFacts(contexts={OTHER_PCI: (Contexts("rx3"),)}),
            "the kernel does not report who uses its RDMA device rx2",
        ),
        # Pods that see the host's devices may have them open; the host's own processes count all the same.
        (HostFacts(contexts={PCI: (Contexts("rx2", (), 2),)}, pods={OTHER_PCI: "pod ns/p"}), None),
        (
            HostFacts(contexts={PCI: (Contexts("rx2", (), 2),)}, pods={OTHER_PCI: "pod ns/p"}, rdma_exclusive=True),
            "the host uses rx2 (process unknown)",
        ),
        (
            HostFacts(contexts={PCI: (Contexts("rx2", ("perftest 7",)),)}, pods={OTHER_PCI: "pod ns/p"}),
            "the host uses rx2 (process perftest 7)",
        ),
    ],
)
def test_processes_on_its_rdma_device_are_users(facts: HostFacts, user: str | None) -> None:
    """They may be gone in a moment: some programs open every device to look at it."""
    assert user_of(VF, facts) == user
    assert user is None or may_be_transient(user)


def test_an_rdma_device_in_another_namespace_is_somebody_elses_in_exclusive_mode() -> None:
    away = VfDevices(PCI, "mlx5_core", rdma_away=True)
    assert (
        user_of(away, HostFacts(contexts={}, rdma_exclusive=True)) == "its RDMA device is in another network namespace"
    )
    assert user_of(away, HostFacts(contexts={})) is None
