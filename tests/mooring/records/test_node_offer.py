"""The node's part of the offer: what `init` leaves for ADD."""

from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import pytest

from mooring.annotations.assignment import AssignedVf
from mooring.annotations.pf_terms import Access, Allow
from mooring.errors import RecordError
from mooring.files import read_own_file
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from mooring.records.node_offer import PfOffer, dump_node_offer, read_node_offer

PCI = "0000:04:00.0"
EVERY_TERM = PfOffer(
    500, False, "rail0", Indexes.of([0, 1]), 10, Allow(Indexes.of([7]), mac=True), 100, False, ("team-a", "ml-*")
)


def test_what_init_writes_is_what_add_reads() -> None:
    """A PF about which the offer says nothing is listed too."""
    pfs = {
        PCI: PfOffer(default_share_mbps=500, repair_node_guid=False, rebind_after_privileged=True),
        "0000:04:00.1": PfOffer(),
    }
    assert read_node_offer(dump_node_offer(pfs)) == pfs
    pfs = {PCI: EVERY_TERM}
    assert read_node_offer(dump_node_offer(pfs)) == pfs


def test_a_field_of_a_later_version_is_ignored() -> None:
    """`init` is upgraded with the image, mooring-cni with the host."""
    assert read_node_offer(f'{{"v":1,"pfs":{{"{PCI}":{{"later":true}}}},"also":1}}') == {PCI: PfOffer()}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "offer.json"),
        ('{"v":1}', "field 'pfs' is missing"),
        ('{"v":1,"pfs":{"eth0":{}}}', "'eth0'"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"default_share_mbps":"1"}}}}}}', "default_share_mbps"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"allow":{{"trust":1}}}}}}}}', "allow.trust"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"keep_percent":101}}}}}}', "keep_percent"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"vlan":0}}}}}}', "vlan"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"namespaces":[]}}}}}}', "namespaces"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"namespaces":["a/b"]}}}}}}', "namespaces[0]"),
    ],
)
def test_a_file_that_is_not_inits_is_refused_by_its_place(text: str, place: str) -> None:
    """A share that nobody decided is never applied."""
    with pytest.raises(RecordError) as refused:
        read_node_offer(text)
    assert place in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "terms", "reason"),
    [
        ({}, {}, ""),
        ({"vlan": 7}, {}, "vlan 7 is not allowed on the network"),
        ({"vlan": 7}, {"allow": Allow(Indexes.of([7]))}, ""),
        ({"vlan": 7}, {"vlan": 7}, ""),
        ({"vlan": 8}, {"vlan": 7}, "vlan 8 is not allowed on the network, where every VF has vlan 7"),
        ({"vlan": 0}, {"vlan": 7}, "vlan 0 is not allowed on the network, where every VF has vlan 7"),
        # An offer cannot say both; a file that does is read by its narrower word.
        ({"vlan": 8}, {"vlan": 7, "allow": Allow(Indexes.of([8]))}, "vlan 8 is not allowed on the network, where"),
        ({"mac": "02:00:00:00:00:01"}, {}, "mac is not allowed"),
        ({"guid": "02:00:00:00:00:00:00:01"}, {}, "guid is not allowed"),
        ({"trust": True}, {}, "trust is not allowed"),
        ({"trust": False, "spoofchk": True, "vlan": 0}, {}, ""),
        ({"spoofchk": False}, {}, "spoofchk off is not allowed"),
        ({}, {"network": "rail1"}, "the PF is on offer on network 'rail1', not on 'rail0'"),
        ({}, {"set_aside": Indexes.of([2, 3])}, "VFs 2-3 are set aside for the host"),
    ],
)
def test_what_a_pod_may_not_have_is_named(settings: dict[str, object], terms: dict[str, object], reason: str) -> None:
    """By the words that the scheduler uses."""
    vf = AssignedVf("eth0", 3, "0000:04:00.5", "ethernet", "rail0", VfSettings(**settings))  # type: ignore[arg-type]
    refused = PfOffer(**terms).refusal(vf, {"team-a"})  # type: ignore[arg-type]
    assert refused.startswith(reason)
    assert bool(refused) == bool(reason)


@pytest.mark.parametrize(
    ("namespaces", "of_pod", "reason"),
    [
        ((), {"any"}, ""),
        ((), set(), ""),
        (("team-a",), {"team-a"}, ""),
        (("team-a", "ml-*"), {"ml-train"}, ""),
        (("*",), {"team-b"}, ""),
        (("team-a", "ml-*"), {"team-b"}, "network 'rail0' is for namespaces team-a, ml-*, not for 'team-b'"),
        (("team-a",), {"team-a-2"}, "network 'rail0' is for namespaces team-a, not for 'team-a-2'"),
        (("team-a",), {"Team-a"}, "network 'rail0' is for namespaces team-a, not for 'Team-a'"),
        (
            tuple(f"n{number}" for number in range(10)),
            {"b"},
            "network 'rail0' is for namespaces n0, n1, n2, n3, n4, n5, n6, n7 and 2 more, not for 'b'",
        ),
        # The record and the runtime differ, or neither names one.
        (("team-a",), {"team-a", "team-b"}, "network 'rail0' is for namespaces team-a, not for 'team-b'"),
        (("team-a",), set(), "network 'rail0' is for namespaces team-a, and the pod's is unknown"),
        (("team-a",), {""}, "network 'rail0' is for namespaces team-a, and the pod's is unknown"),
    ],
)
def test_a_pf_is_for_the_namespaces_of_its_offer(namespaces: tuple[str, ...], of_pod: set[str], reason: str) -> None:
    """Without a list it is for all."""
    vf = AssignedVf("eth0", 3, "0000:04:00.5", "ethernet", "rail0", VfSettings())
    assert PfOffer(namespaces=namespaces).refusal(vf, of_pod) == reason


def test_patterns_match_as_those_of_fnmatch_do() -> None:
    random = Random(1)
    matched = 0
    for _ in range(5000):
        pattern, name = "".join(random.choices("ab*", k=random.randint(1, 6))), "".join(random.choices("ab", k=5))
        is_admitted = Access((pattern,)).refusal(name, "rail0") == ""
        assert is_admitted == fnmatchcase(name, pattern), (pattern, name)
        matched += is_admitted
    assert 500 < matched < 4500


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_others_may_write_is_not_believed(what: str, tmp_path: Path) -> None:
    """The offer's bounds would be whose who wrote it."""
    path = tmp_path / "state" / "offer.json"
    assert read_own_file(path) is None
    path.parent.mkdir(mode=0o700)
    path.write_text("{}")
    assert read_own_file(path) == "{}"
    changed = path if what == "file" else path.parent
    changed.chmod(0o707)
    with pytest.raises(PermissionError, match="users other than root") as refused:
        read_own_file(path)
    assert refused.value.filename == str(changed)
