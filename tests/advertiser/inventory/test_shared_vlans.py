"""VLANs of a network for some namespaces that pods of other namespaces can have on another network."""

import json
from collections.abc import Mapping

import pytest

from advertiser.inventory.offer import read_offer
from advertiser.inventory.shared_vlans import shared_vlans

SECRET = {"network": "secret", "vlan": 100, "namespaces": ["a"]}
RULE = "use different VLANs, unless the networks have separate switches"


def warnings(*entries: Mapping[str, object]) -> list[str]:
    return list(shared_vlans(read_offer(json.dumps({"v": 1, "pfs": entries}), "offer.yaml")))


@pytest.mark.parametrize("terms", [{"vlan": 100}, {"allow": {"vlan": "1-200"}}, {"vlan": 100, "namespaces": ["b"]}])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_vlan_that_other_namespaces_can_have_elsewhere_is_named(terms: dict[str, object], is_first: bool) -> None:
    other = terms | {"network": "open"}
    found = warnings(*((SECRET, other) if is_first else (other, SECRET)))
    text = "network 'secret' is for namespaces a, but pods of other namespaces can have vlan 100 on network 'open'"
    assert f"{text}: {RULE}" in found
    assert len(found) == (2 if "namespaces" in terms else 1)


@pytest.mark.parametrize(
    "other",
    [
        {"vlan": 101},
        {"allow": {"vlan": "1-99,101-200"}},
        {},
        {"allow": {"vlan": "100"}, "namespaces": ["a"]},
        {"vlan": 100, "offer": False},
    ],
)
def test_other_vlans_and_the_same_namespaces_give_no_warning(other: dict[str, object]) -> None:
    """A network without VLANs is not compared: the offer does not have what its switches accept."""
    assert warnings(SECRET, other | {"network": "open"}) == []


def test_namespaces_that_the_network_admits_may_have_its_vlans() -> None:
    """A pattern may cover a name or another pattern; the wider of two networks leaks to the narrower, not back."""
    wide = {"network": "wide", "allow": {"vlan": "100-199"}, "namespaces": ["ml-*", "b"]}
    narrow = {"network": "narrow", "allow": {"vlan": "150,300"}, "namespaces": ["ml-1", "ml-a*"]}
    assert warnings(wide, narrow) == [
        "network 'narrow' is for namespaces ml-1, ml-a*, but pods of other namespaces can have vlan 150 on network "
        f"'wide': {RULE}"
    ]
    everybody = {"network": "everybody", "vlan": 100, "namespaces": ["*"]}
    assert warnings(everybody, {"network": "open", "vlan": 100}) == []


def test_one_warning_names_the_vlans_and_the_first_of_many_networks() -> None:
    """All entries of a network count."""
    rails = [{"network": f"rail{rail}", "allow": {"vlan": f"{rail + 1}"}} for rail in range(12)]
    more = {"network": "rail0", "match": {"name": "x"}, "allow": {"vlan": "50-60"}}
    secret = {"network": "secret", "allow": {"vlan": "1-55"}, "namespaces": ["a"]}
    (found,) = warnings(*rails, more, secret)
    networks = ", ".join(f"'rail{rail}'" for rail in range(8))
    assert f"can have vlan 1-12,50-55 on networks {networks} and 4 more: " in found
