"""What the interfaces of one ADD get, decided without doing it; and the frames that announce it."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from cni.plan.addressing import InterfaceConfig, OwnRoute, plan, table_of
from cni.plan.announcement import frame
from cni.spec.result import Address, Route

A = InterfaceConfig("net1", (Address("10.0.0.2/24", "10.0.0.1"),), (Route("0.0.0.0/0", "10.0.0.1"),))
B = InterfaceConfig("net2", (Address("10.0.0.3/24", "10.0.0.1"),), (Route("0.0.0.0/0", "10.0.0.1"),))
APART = InterfaceConfig("net3", (Address("10.0.1.3/24"),))


def test_interfaces_of_one_subnet_get_a_table_a_rule_and_strict_arp() -> None:
    """Each table has the interface's neighbours, then its gateway; a lone interface is left to the main table."""
    first, second, alone = plan([A, B, APART], None, policy=True)
    assert first.sources == ("10.0.0.2",)
    assert second.own_routes == (OwnRoute("10.0.0.0/24", source="10.0.0.3"), OwnRoute("0.0.0.0/0", "10.0.0.1"))
    assert dict(second.sysctls) == {
        "net/ipv4/conf/net2/arp_ignore": "1",
        "net/ipv4/conf/net2/arp_announce": "2",
        "net/ipv4/conf/net2/rp_filter": "2",
    }
    assert (alone.sources, alone.own_routes, alone.sysctls) == ((), (), ())


def test_policy_routing_can_be_switched_off() -> None:
    """policyRouting: false leaves shared subnets to operators who want them so."""
    assert all(not one.sources and not one.sysctls for one in plan([A, B], None, policy=False))


def test_a_subnet_shared_with_the_main_plugin_or_with_another_call_counts() -> None:
    """eth0 of the chain, and a VF that another Multus delegate brought in, are neighbours too."""
    previous = {"ips": [{"address": "10.0.0.9/24"}]}
    (chained,) = plan([A], previous, policy=True)
    (delegated,) = plan([A], None, ["10.0.0.9/16"], policy=True)
    assert chained.sources == delegated.sources == ("10.0.0.2",)


def test_ipv6_is_decided_by_itself() -> None:
    """A shared IPv6 subnet counts like one of IPv4; link-local neighbours stay reachable from its addresses."""
    configs = [InterfaceConfig(f"net{each}", (Address(f"fd00::{each}/64", "fd00::ff"),)) for each in (1, 2)]
    first, _ = plan(configs, None, policy=True)
    expected = [OwnRoute("fd00::/64", source="fd00::1"), OwnRoute("fe80::/64"), OwnRoute("::/0", "fd00::ff")]
    assert list(first.own_routes) == expected
    assert ("net/ipv6/conf/net1/disable_ipv6", "0") in first.sysctls


def test_a_chain_keeps_its_default_route() -> None:
    """IPAM's default route is the main plugin's first; in a chain only the network's configuration may request one."""
    configured = InterfaceConfig("net4", (), (), (Route("::/0", "fd00::ff"), Route("10.9.0.0/16", "10.0.0.1")))
    assert [one.routes for one in plan([A, B], None, policy=True)] == [A.routes, ()]
    assert [one.routes for one in plan([A, configured], {}, policy=True)] == [(), configured.network_routes]
    before = {"routes": [{"dst": "::/0"}]}
    assert [one.routes for one in plan([configured], before, policy=True)] == [configured.network_routes[1:]]


DESTINATIONS = st.sampled_from(["0.0.0.0/0", "::/0", "10.1.0.0/16", "10.2.0.0/16", "fd01::/64"])
ROUTES = st.lists(DESTINATIONS.map(Route), max_size=4).map(tuple)
WISHES = st.lists(st.tuples(ROUTES, ROUTES), max_size=5)


@given(WISHES, st.lists(DESTINATIONS, max_size=3), st.booleans())
def test_a_destination_has_one_route_in_the_pod(
    asked: list[tuple[tuple[Route, ...], tuple[Route, ...]]], before: list[str], chained: bool
) -> None:
    """Any requests by IPAM plugins and configuration: no request is dropped without a reason."""
    configs = [InterfaceConfig(f"net{number}", (), *routes) for number, routes in enumerate(asked)]
    previous = {"routes": [{"dst": dst} for dst in before]} if chained else None
    made = [route.dst for one in plan(configs, previous, policy=True) for route in one.routes]
    assert len(made) == len(set(made))
    there = set(made) | (set(before) if chained else set())
    assert {route.dst for _, configured in asked for route in configured} <= there
    if not chained:
        assert {route.dst for routes, _ in asked for route in routes} <= there


def test_tables_are_apart_from_what_people_choose() -> None:
    """Reserved tables and small numbers are avoided; each interface has one table."""
    tables = {table_of(index) for index in range(1, 5000)}
    assert len(tables) == 4999
    assert min(tables) > 1 << 24


def test_an_address_is_announced_by_arp() -> None:
    """RFC 5227, 2.3: a broadcast request with the address as sender and as target."""
    expected = "ffffffffffff 020000000007 0806 0001 0800 06 04 0001 020000000007 0a000002 000000000000 0a000002"
    assert frame("02:00:00:00:00:07", "10.0.0.2") == bytes.fromhex(expected)


def test_an_ipv6_address_is_announced_by_an_advertisement_that_its_readers_accept() -> None:
    """RFC 4861, 7.1.2: hop limit 255, a checksum that is right, the override flag, the target's MAC."""
    found = frame("02:00:00:00:00:07", "fd00::2")
    packet = found[14:]
    assert found[:14] == bytes.fromhex("333300000001 020000000007 86dd")
    assert (packet[6], packet[7], packet[40], packet[44]) == (58, 255, 136, 0x20)
    assert packet[-8:] == bytes.fromhex("0201 020000000007")
    pseudo = packet[8:40] + struct.pack("!II", len(packet) - 40, 58)
    words = struct.unpack(f"!{(len(pseudo) + len(packet) - 40) // 2}H", pseudo + packet[40:])
    assert sum(words) % 0xFFFF == 0
