"""The node enforces its own offer at ADD: no assignment, forged or older than the offer, gets more than it allows."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cni.vf.offer import MAY_CHANGE_S
from mooring.annotations.pf_terms import Allow
from mooring.indexes import Indexes
from mooring.records.node_offer import NAME

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

PLAIN = {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3"}
OTHER = {"pf": "enp4s0f0", "vf": 2, "pci": "0000:04:00.4"}
NOTHING = Allow()


def times(host: Any, record_s: float, offer_s: float) -> None:
    """Let the pod's record and the offer be so old."""
    now = time.time()
    for path, age_s in ((host.layout.state / "pods/u1.json", record_s), (host.layout.state / NAME, offer_s)):
        if path.exists():
            os.utime(path, (now - age_s, now - age_s))


def refused(host: Any, *vfs: dict[str, Any], **environment: Any) -> tuple[int, str]:
    """Return code and text of an ADD that must change nothing."""
    before = host.everything()
    host.record(*vfs, **environment)
    answer = host.call("ADD", **environment)
    assert host.everything() == before
    return answer.get("code", 0), answer.get("msg", "")


@pytest.mark.parametrize(
    ("forged", "terms", "reason"),
    [
        ({"vlan": 7}, {"allow": NOTHING}, "vlan 7 is not allowed on the network"),
        ({"vlan": 7}, {"allow": Allow(Indexes.of([8]), trust=True)}, "vlan 7 is not allowed on the network"),
        ({"trust": True}, {"allow": NOTHING}, "trust is not allowed on the network"),
        ({"spoofchk": False}, {"allow": NOTHING}, "spoofchk off is not allowed on the network"),
        ({"mac": "02:00:00:00:00:77"}, {"allow": NOTHING}, "mac is not allowed on the network"),
        ({"min_tx_rate": 95000}, {"keep_percent": 10}, "min rates of 95000 Mb/s on pf 'enp4s0f0' would exceed 90000"),
        ({}, {"network": "rail1"}, "the PF is on offer on network 'rail1', not on 'default'"),
        ({}, {"set_aside": Indexes.of([0, 1])}, "VFs 0-1 are set aside for the host"),
        (
            {},
            {"namespaces": ("team-a", "ns-*")},
            "network 'default' is for namespaces team-a, ns-*, not for 'ns'",
        ),
        ({"vlan": 8}, {"vlan": 7}, "vlan 8 is not allowed on the network, where every VF has vlan 7"),
    ],
)
def test_what_the_offer_does_not_allow_is_refused(
    host: Any, forged: dict[str, Any], terms: dict[str, Any], reason: str
) -> None:
    """A forged assignment, in a record that the shim wrote in good faith; nothing is changed, not even for a moment."""
    host.offer(**terms)
    code, text = refused(host, OTHER, {**PLAIN, **forged})
    assert (code, "exceeds this node's offer" in text) == (11, True)
    assert reason in text


@pytest.mark.parametrize(("recorded", "named"), [("team-b/p", "ns"), ("ns/p", "team-b"), ("ns", "team-b")])
def test_record_and_runtime_must_both_name_an_admitted_namespace(host: Any, recorded: str, named: str) -> None:
    """A forged name in one of the two gains nothing."""
    host.offer(namespaces=("ns",))
    host.record(PLAIN)
    path = host.layout.state / "pods/u1.json"
    honest = path.read_text()
    path.write_text(honest.replace('"ns/u1"', f'"{recorded}"'))
    answer = host.call("ADD", namespace=named)
    assert answer["code"] == 11
    assert "network 'default' is for namespaces ns, not for 'team-b'" in answer["msg"]
    path.write_text(honest)
    assert host.call("ADD")["status"] == 0
    assert host.call("DEL") == {"status": 0}


def test_a_pf_that_is_not_on_offer_is_given_to_no_pod(host: Any) -> None:
    """The host's own NIC."""
    (host.layout.state / NAME).write_text('{"v":1,"pfs":{"0000:04:00.1":{}}}')
    code, text = refused(host, PLAIN)
    assert (code, "vf 1 of pf 'enp4s0f0': the PF is not on offer" in text) == (11, True)


def test_without_an_offer_a_pod_gets_plain_vfs_only(host: Any) -> None:
    """The default is that of an advertiser without an offer."""
    (host.layout.state / NAME).unlink()
    assert refused(host, {**PLAIN, "vlan": 7})[0] == 11
    host.record({**PLAIN, "network": "any", "min_tx_rate": 99000, "spoofchk": True, "trust": False})
    assert host.call("ADD")["status"] == 0
    assert host.call("DEL") == {"status": 0}


def test_the_rates_of_all_pods_count_and_those_of_the_hosts_own_vfs_do_not(host: Any, other_netns: str) -> None:
    """What the host has set on a VF of its own is within the part that it keeps."""
    host.offer(keep_percent=10)
    other = {"uid": "u2", "container": "c2", "netns": other_netns}
    table = json.loads(host.layout.vftable.read_text())
    table["pfs"]["enp4s0f0"]["set"]["3"] = {"min_tx_rate": 9000}
    host.layout.vftable.write_text(json.dumps(table))
    try:
        host.record({**PLAIN, "min_tx_rate": 50000})
        assert host.call("ADD")["status"] == 0
        host.record({**OTHER, "min_tx_rate": 40001}, uid="u2")
        answer = host.call("ADD", **other)
        assert (answer["code"], "min rates of 90001 Mb/s" in answer["msg"]) == (11, True)
        host.record({**OTHER, "min_tx_rate": 40000}, uid="u2")
        assert host.call("ADD", **other)["status"] == 0
        assert host.call("DEL", **other) == {"status": 0}
        assert host.call("DEL") == {"status": 0}
    finally:
        table = json.loads(host.layout.vftable.read_text())
        del table["pfs"]["enp4s0f0"]["set"]["3"]
        host.layout.vftable.write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("record_s", "offer_s", "code"),
    [
        (0, MAY_CHANGE_S + 9, 11),
        (MAY_CHANGE_S + 9, 0, 11),
        (MAY_CHANGE_S - 30, 1e6, 11),
        (MAY_CHANGE_S + 9, MAY_CHANGE_S + 9, 100),
        # The clock was set back since.
        (-3600, 1e6, 100),
    ],
)
def test_it_is_final_when_pod_and_offer_are_five_minutes_old(
    host: Any, record_s: float, offer_s: float, code: int
) -> None:
    """Both times are files' of root's: they outlive the server and the boot, and no pod changes them."""
    host.offer(allow=NOTHING)
    host.record({**PLAIN, "trust": True})
    times(host, record_s, offer_s)
    before = host.everything()
    assert host.call("ADD")["code"] == code
    assert host.everything() == before


def test_a_pod_that_runs_stays_when_the_offer_changes(host: Any) -> None:
    """CHECK and DEL ask what the ledger says; a sandbox that is made again asks the new offer."""
    before = host.everything()
    host.record({**PLAIN, "vlan": 7, "trust": True, "min_tx_rate": 95000})
    added = host.call("ADD")
    assert added.pop("status") == 0
    host.offer(allow=NOTHING, vlan=9, keep_percent=50)
    held = host.everything()
    assert host.call("CHECK", host.conf(prevResult=added)) == {"status": 0}
    assert host.everything() == held
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before
    assert refused(host, {**PLAIN, "vlan": 7})[0] == 11


def test_check_finds_a_forged_annotation(host: Any) -> None:
    """The record holds, whatever the pod's annotation says later."""
    host.record(PLAIN)
    added = host.call("ADD")
    assert added.pop("status") == 0
    record = json.loads((host.layout.state / "pods/u1.json").read_text())
    record["assignment"]["vfs"][0]["vlan"] = 7
    annotations = {"mooring.dev/assignment": json.dumps(record["assignment"])}
    answer = host.call("CHECK", host.conf(annotations, prevResult=added))
    assert (answer["status"], answer["code"]) == (1, 100)


@pytest.mark.parametrize("asked", [{}, {"vlan": 100}])
def test_a_forced_vlan_is_set_whatever_the_pod_asks(host: Any, asked: dict[str, Any]) -> None:
    """Also where the scheduler is too old to know it; CHECK misses it where somebody took it away, and DEL restores."""
    before = host.everything()
    host.offer(vlan=100)
    host.record({**PLAIN, **asked}, OTHER)
    added = host.call("ADD")
    assert added.pop("status") == 0
    assert [host.table()["pfs"]["enp4s0f0"]["set"][vf]["vlan"] for vf in "12"] == [100, 100]
    assert host.call("CHECK", host.conf(prevResult=added)) == {"status": 0}
    table = host.table()
    table["pfs"]["enp4s0f0"]["set"]["2"]["vlan"] = 0
    host.layout.vftable.write_text(json.dumps(table))
    answer = host.call("CHECK", host.conf(prevResult=added))
    assert (answer["code"], "vlan is 0, not 100" in answer["details"]) == (103, True)
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before


def test_an_offer_that_others_may_write_is_not_believed(host: Any) -> None:
    """ADD fails and changes nothing; a pod without VFs is not concerned, nor is STATUS."""
    host.layout.state.chmod(0o777)
    try:
        code, text = refused(host, PLAIN)
        assert (code, "users other than root" in text) == (5, True)
        assert host.call("STATUS", host.conf(cniVersion="1.1.0")) == {"status": 0}
    finally:
        host.layout.state.chmod(0o700)
