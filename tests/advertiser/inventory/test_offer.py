"""The operator's offer: which PFs, on which terms."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advertiser.host.offer_file import OfferFile
from advertiser.host.sysfs import read_functions
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, Host
from advertiser.inventory.offer import EVERYTHING, Candidate, Offer, OfferError, Terms, read_offer
from mooring.annotations.pf_terms import Access, Allow
from mooring.indexes import Indexes

Tree = Mapping[str, Any]
CANDIDATE = Candidate(("eth0", "enp4s0f0"), "gpu-7", "0000:04:00.0", "15b3", "101d", "mlx5_core", "ethernet")


def offer(text: str, folder: Path) -> Offer:
    path = folder / "offer.yaml"
    path.write_text(text)
    return OfferFile(path, required=True).offer()


def test_without_a_file_every_pf_is_offered_on_one_network(tmp_path: Path) -> None:
    """The whole rate is offered, and no setting that reaches beyond the pod."""
    found = OfferFile(tmp_path / "none.yaml", required=False).offer()
    assert found == EVERYTHING
    assert found.terms(CANDIDATE) == Terms(network="default", keep_percent=0, allow=Allow())


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    """A misspelt --offer does not offer everything."""
    with pytest.raises(FileNotFoundError, match=r"none\.yaml"):
        OfferFile(tmp_path / "none.yaml", required=True)


def test_the_first_entry_that_matches_decides(tmp_path: Path) -> None:
    """Every field of match must match; an altname counts as well as the name."""
    found = offer(
        """
        v: 1
        pfs:
        - {match: {name: "enp4s0f*", driver: ice}, network: wrong}
        - {match: {name: "enp4s0f*", node: "gpu-*", vendor: "15b3", device: "101d", link: ethernet, pci: "0000:04:*"},
           network: rail0, set_aside: "0-3", keep_percent: 10, allow: {vlan: "100-199", trust: true}}
        - {network: rest}
        """,
        tmp_path,
    )
    vlans = Indexes.parse("100-199")
    terms = Terms("rail0", Indexes.parse("0-3"), 10, Allow(vlan=vlans, trust=True))
    assert found.terms(CANDIDATE) == terms
    assert terms.offered_mbps(25_000) == 22_500


def test_an_entry_can_be_for_some_namespaces_and_limit_their_share(tmp_path: Path) -> None:
    """The share is of one entry's VFs, so the terms have the entry's index; without a share it is the same for all."""
    found = offer(
        '{v: 1, pfs: [{match: {name: x}}, {network: rail0, namespaces: [team-a, "ml-*"], max_share: 50}]}', tmp_path
    )
    assert found.terms(CANDIDATE) == Terms("rail0", access=Access(("team-a", "ml-*"), 50, 1))
    (entry,) = offer('{v: 1, pfs: [{namespaces: ["*"]}]}', tmp_path).entries
    assert entry.terms == Terms(access=Access(("*",)))


@pytest.mark.parametrize(("offered", "share", "most"), [(16, 50, 8), (15, 50, 7), (1, 50, 1), (8, 100, 8), (3, 1, 1)])
def test_a_share_is_rounded_down_to_at_least_one_vf(offered: int, share: int, most: int) -> None:
    assert Access(max_share=share).max_vfs(offered) == most
    assert Access().max_vfs(offered) == offered


def test_what_no_entry_matches_is_not_offered(tmp_path: Path) -> None:
    """`offer: false` takes out what a later entry would offer."""
    found = offer('{v: 1, pfs: [{match: {name: "enp4s0f0"}, offer: false}, {}]}', tmp_path)
    assert found.terms(CANDIDATE) is None
    assert offer('{v: 1, pfs: [{match: {name: "other"}}]}', tmp_path).terms(CANDIDATE) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not an object"),
        ("v: 2\npfs: []", "v: 2"),
        ("v: 1\npfs: [{netwrok: rail0}]", "netwrok: unknown field"),
        ("v: 1\npfs: [{rdma: false}]", r"pfs\[0\].rdma: unknown field"),
        ("v: 1\npfs: [{match: {nam: x}}]", r"pfs\[0\].match.nam: unknown field"),
        ("v: 1\npfs: [{set_aside: 3-0}]", r"pfs\[0\].set_aside: range '3-0' does not ascend"),
        ("v: 1\npfs: [{keep_percent: 101}]", r"pfs\[0\].keep_percent: 101"),
        ("v: 1\npfs: [{allow: {vlans: 1}}]", r"pfs\[0\].allow.vlans: unknown field"),
        ("v: 1\npfs: [{vlan: 0}]", r"pfs\[0\].vlan: 0 is not an integer from 1 to 4094"),
        ("v: 1\npfs: [{vlan: 5, allow: {vlan: '5'}}]", r"pfs\[0\].allow.vlan: every VF of the network has vlan 5"),
        ("v: 1\npfs: [{vlan: 5}, {network: a}, {}]", r"pfs\[2\]: network 'default' has vlan none here and 5 in"),
        ("v: 1\npfs: [{network: a, vlan: 5}, {network: a, vlan: 6}]", r"pfs\[1\]: network 'a' has vlan 6 here and 5"),
        ("v: 1\npfs: [{namespaces: []}]", r"pfs\[0\].namespaces: names no namespace; to offer a PF to none, write"),
        ("v: 1\npfs: [{namespaces: team-a}]", r"pfs\[0\].namespaces: 'team-a' is not a list"),
        ("v: 1\npfs: [{namespaces: [Team]}]", r"pfs\[0\].namespaces\[0\]: 'Team' is not a namespace's name or a"),
        ("v: 1\npfs: [{namespaces: ['[a-z]']}]", r"pfs\[0\].namespaces\[0\]: '\[a-z\]' is not"),
        ("v: 1\npfs: [{max_share: 0}]", r"pfs\[0\].max_share: 0 is not an integer from 1 to 100"),
        ("v: 1\npfs: [{max_share: 101}]", r"pfs\[0\].max_share: 101"),
        ("v: 1\npfs: [{namespaces: [a]}, {match: {}}]", r"pfs\[1\]: network 'default' has namespaces none here and a"),
        ("v: 1\npfs: [{}, {namespaces: [a, b]}]", r"pfs\[1\]: network 'default' has namespaces a, b here and none in"),
        ("v: 1\npfs: [{match: {name: 2021-01-01}, network: 'A B'}]", r"pfs\[0\].network: 'A B'"),
        ("{v: 1", "not valid YAML"),
        (
            "v: 2001-99-99",
            "not valid YAML: line 1, column 4: '2001-99-99' does not match the tag 'timestamp': month must be in 1",
        ),
        ("v: !!int x", "not valid YAML"),
        ("&circle [*circle]", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("{v: 1, pfs: [], 2020-01-01: x}", "not valid YAML: keys must be str"),
    ],
)
def test_a_wrong_offer_is_refused_by_place_and_rule(text: str, complaint: str, tmp_path: Path) -> None:
    """The error names the file, the path in it, the value and the rule."""
    with pytest.raises(OfferError, match=complaint):
        offer(text, tmp_path)


@given(st.text(max_size=200))
def test_any_text_is_an_offer_or_an_offer_error(text: str) -> None:
    """Any text gives an offer or OfferError, and raises nothing else."""
    found: Offer | OfferError
    try:
        found = read_offer(text, "offer.yaml")
    except OfferError as error:
        found = error
    assert isinstance(found, Offer) or found.key == "offer.yaml"


def test_a_file_that_breaks_later_leaves_the_last_good_offer(tmp_path: Path) -> None:
    """An operator's mistake takes no PF away; the next good file counts again."""
    path = tmp_path / "offer.yaml"
    path.write_text("{v: 1, pfs: [{network: rail0}]}")
    file = OfferFile(path, required=True)
    for broken in ("{v: 1, pfs: [{network: }", "{v: 1, pfs: [], until: 2001-99-99}"):
        path.write_text(broken)
        assert _network(file) == "rail0"
    path.write_text("{v: 1, pfs: [{network: rail1}]}")
    assert _network(file) == "rail1"


def _network(file: OfferFile) -> str | None:
    terms = file.offer().terms(CANDIDATE)
    return terms.network if terms else None


def test_the_inventory_follows_the_offer_file(
    named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path], tmp_path: Path
) -> None:
    """VFs set aside are not on offer, the kept share is off the rate, what is not named is left out."""
    sysfs = tree(named_layout("connectx6dx-inbox-ethernet"))
    found = _judge(
        sysfs, offer('{v: 1, pfs: [{match: {name: ens1f0np0}, set_aside: "0-1", keep_percent: 20}]}', tmp_path)
    )
    (pf,) = found.inventory.pfs
    assert (str(pf.vfs), pf.mbps, pf.offer_mbps) == ("2-3", 100_000, 80_000)
    assert [(left.name, left.why) for left in found.ignored] == [("ens1f1np1", "not on offer")]


def _judge(sysfs: Path, terms: Offer) -> InventoryResult:
    return build_inventory(Host("boot", read_functions(sysfs)), terms, ClusterFacts(), "n1")
