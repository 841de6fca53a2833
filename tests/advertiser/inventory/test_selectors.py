"""The offer in operators' own notation: taken where it has one meaning, else refused with the right form."""

from pathlib import Path

import pytest

from advertiser.host.offer_file import parse_offer
from advertiser.inventory.offer import Candidate, Offer, OfferError
from mooring.indexes import Indexes

ETHERNET = Candidate(("ens1f0",), "gpu-7", "0000:18:00.0", "15b3", "1017", "mlx5_core", "ethernet")
INFINIBAND = Candidate(("ibp24s0",), "gpu-7", "0000:3b:00.0", "15b3", "101b", "mlx5_core", "infiniband")


def offer(match: str, more: str = "") -> Offer:
    return parse_offer(f"v: 1\npfs:\n- match: {{{match}}}\n{more}", "offer.yaml")


@pytest.mark.parametrize(
    "match",
    [
        'vendor: "0x15b3"',
        "vendor: 0x15B3",
        "vendor: 15B3",
        "device: 1017",
        'device: "0x1017"',
        "device: 0x1017",
        'device: "101*"',
        "pci: 0000:18:00.0",
        "pci: 18:00.0",
        'pci: "18:00.0"',
        'pci: "18:*"',
        'pci: "*:00.0"',
        "link: eth",
        "link: Ethernet",
        'name: "ens1f0#0-3"',
    ],
)
def test_a_notation_with_one_meaning_is_taken(match: str) -> None:
    """Also without quotes, where YAML 1.1 reads numbers in base 10, 16 and 60."""
    assert offer(match).terms(ETHERNET) is not None


@pytest.mark.parametrize("match", ["link: ib", "link: IB", "link: InfiniBand", "device: 101B", "pci: 3B:00.0"])
def test_capitals_and_short_words(match: str) -> None:
    """As lspci and the operators' configurations have them."""
    assert offer(match).terms(INFINIBAND) is not None
    assert offer(match).terms(ETHERNET) is None


def test_vfs_after_a_pfs_name_are_those_on_offer() -> None:
    """The notation of the SR-IOV network operator's pfNames; the host keeps the others."""
    terms = offer('name: "ens1f0#0-3,8"').terms(ETHERNET)
    assert terms is not None
    assert str(Indexes((1 << 16) - 1) - terms.set_aside) == "0-3,8"


def test_an_unquoted_set_aside_and_vlan_are_what_they_read_as() -> None:
    """One VF, one VLAN id."""
    terms = offer("name: ens1f0", "  set_aside: 3\n  allow: {vlan: 100}\n").terms(ETHERNET)
    assert terms is not None
    assert (str(terms.set_aside), str(terms.allow.vlan)) == ("3", "100")


@pytest.mark.parametrize(
    ("match", "complaint"),
    [
        ('vendor: "Mellanox"', r"pfs\[0\].match.vendor: 'Mellanox' is not four hexadecimal digits such as '15b3'"),
        ('vendor: "15b3:1017"', r"pfs\[0\].match.vendor: '15b3:1017': write vendor and device apart"),
        ("device: 0x10170", r"pfs\[0\].match.device: '0x10170' is not four hexadecimal digits such as '101d'"),
        ('pci: "18:00"', r"pfs\[0\].match.pci: '18:00' is not a PCI address such as '0000:3b:00.2'"),
        ('pci: "ens1f0"', r"pfs\[0\].match.pci: 'ens1f0' is not a PCI address"),
        ("link: fibre", r"pfs\[0\].match.link: 'fibre' is not one of ethernet, infiniband"),
        ('name: "ens1f0#3-0"', r"pfs\[0\].match.name: 'ens1f0#3-0': range '3-0' .*'ens1f0#0-3,8'"),
        ('name: "ens1f0#"', r"pfs\[0\].match.name: 'ens1f0#' lacks"),
        ("node: [a]", r"pfs\[0\].match.node: a list of 1 is not a string"),
    ],
)
def test_a_notation_without_one_meaning_is_refused_with_the_right_form(match: str, complaint: str) -> None:
    """The error names the place in the file."""
    with pytest.raises(OfferError, match=complaint):
        offer(match)


def test_vfs_of_one_pf_in_two_entries_are_refused() -> None:
    """The first entry that matches a PF decides about all of it: the second range would never be on offer."""
    text = 'v: 1\npfs: [{match: {name: "ens1f0#0-3"}, network: a}, {match: {name: "ens1f0#4-7"}, network: b}]'
    with pytest.raises(OfferError, match=r"pfs\[1\].match.name: an earlier entry matches the same PFs: .* set_aside"):
        parse_offer(text, "offer.yaml")


def test_entries_without_a_match_or_with_the_same_one_are_as_before() -> None:
    """The first decides; nothing is lost without a word where no VFs are named."""
    text = "v: 1\npfs: [{network: a}, {network: b}, {match: {name: x}}, {match: {name: x}}]"
    terms = parse_offer(text, "offer.yaml").terms(ETHERNET)
    assert terms is not None
    assert terms.network == "a"


@pytest.mark.parametrize("more", ["  offer: false\n", '  set_aside: "5"\n'])
def test_vfs_after_a_name_go_with_no_other_word_about_them(more: str) -> None:
    """They would contradict each other."""
    with pytest.raises(OfferError, match=r"set_aside|set aside"):
        offer('name: "ens1f0#0-3"', more)


def test_json_is_an_offer_too(tmp_path: Path) -> None:
    """JSON is YAML; a number in it has lost how it was written only where JSON says so."""
    assert parse_offer('{"v": 1, "pfs": [{"match": {"vendor": "0x15B3"}}]}', "offer.yaml").terms(ETHERNET) is not None
