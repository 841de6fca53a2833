"""The annotation network-status as Multus' readers decode it, from the ledger's entries."""

import json
from dataclasses import replace
from typing import Any

from advertiser.formats.network_status import (
    DIGEST_KEY,
    KEY,
    NetworkStatus,
    digest,
    is_another_writers,
    network_statuses,
)
from mooring.nic.settings import VfSettings
from mooring.records.ledger import Attachment, LedgerEntry, Netns, Original

FIRST = LedgerEntry(
    pci="0000:04:00.2",
    pf="enp4s0f0",
    vf=0,
    phase="held",
    boot="b",
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=Netns("", 0),
    original=Original(netdev_mac="02:00:00:00:00:01"),
    addresses=("10.0.0.2/24", "fd00::2/64"),
    rdma="mlx5_3",
    attachment=Attachment("mooring", "eth0", "rail0"),
)
SECOND = replace(
    FIRST,
    pci="0000:04:01.2",
    pf="enp4s0f1",
    ifname="rdma7",
    addresses=(),
    rdma=None,
    attachment=Attachment("mooring", "eth0", "rail1"),
    set=VfSettings(mac="02:00:00:00:00:77"),
)


def statuses(*entries: LedgerEntry, assigned: tuple[LedgerEntry, ...] = (FIRST, SECOND)) -> list[NetworkStatus]:
    keys = {(entry.uid, entry.pf, entry.vf, entry.pci) for entry in assigned}
    return list(network_statuses({entry.pci: entry for entry in entries}, keys))


def interfaces(*entries: LedgerEntry) -> Any:
    (status,) = statuses(*entries, assigned=entries)
    return json.loads(status.text)


def test_each_interface_has_its_network_addresses_and_device() -> None:
    """As NetworkStatus of the client's types has them: addresses without their prefix, device-info 1.1.0."""
    (status,) = statuses(FIRST, SECOND)
    assert (status.pod, status.uid) == ("ns/p", "u1")
    assert json.loads(status.text) == [
        {
            "name": "rail0",
            "interface": "net1",
            "ips": ["10.0.0.2", "fd00::2"],
            "mac": "02:00:00:00:00:01",
            "dns": {},
            "device-info": {
                "type": "pci",
                "version": "1.1.0",
                "pci": {"pci-address": "0000:04:00.2", "rdma-device": "mlx5_3"},
            },
        },
        {
            "name": "rail1",
            "interface": "rdma7",
            "mac": "02:00:00:00:00:77",
            "dns": {},
            "device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:04:01.2"}},
        },
    ]


def test_mooring_as_the_main_plugin_has_the_default_interface() -> None:
    """The first VF then has the runtime's name."""
    main = replace(FIRST, ifname="eth0")
    assert [one.get("default") for one in interfaces(main, SECOND)] == [True, None]


def test_a_vf_without_an_interface_in_the_pod_has_none_here() -> None:
    """Neither one whose netdev stays on the host (`"netdev": false`), nor one that has none at all."""
    device = {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:04:00.2", "rdma-device": "mlx5_3"}}
    for entry in (replace(FIRST, rdma_only=True), replace(FIRST, original=Original())):
        assert interfaces(replace(entry, addresses=())) == [{"name": "rail0", "dns": {}, "device-info": device}]


def test_an_address_of_ipoib_is_left_out() -> None:
    """It begins with the number of a queue pair, which is another one in the pod."""
    mac = "00:00:00:67:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01"
    (told,) = interfaces(replace(FIRST, original=Original(netdev_mac=mac)))
    assert "mac" not in told


def test_a_pod_is_told_when_one_sandbox_has_all_that_it_was_assigned() -> None:
    """Not while ADD works, not of the VFs of two sandboxes, not of an entry of another pod or an earlier version."""
    for second in (
        replace(SECOND, phase="taking"),
        replace(SECOND, phase="returning"),
        replace(SECOND, container="c2"),
        replace(SECOND, uid="u2"),
        replace(SECOND, attachment=None),
    ):
        assert statuses(FIRST, second) == []
    assert statuses(FIRST) == []
    assert statuses(FIRST, SECOND, assigned=()) == []


def test_the_largest_status_is_what_the_policy_allows() -> None:
    """64 VFs with as many addresses as an entry can hold, and the longest names."""
    addresses = ("fd00:1111:2222:3333:4444:5555:6666:7777/128",) * 64
    network = Attachment("n" * 256, "e" * 15, f"{'n' * 63}/{'n' * 63}")
    entries = [
        replace(FIRST, pci=f"0000:04:{n:02x}.0", vf=n, addresses=addresses, rdma="m" * 63, attachment=network)
        for n in range(1, 65)
    ]
    (status,) = statuses(*entries, assigned=tuple(entries))
    assert len(json.loads(status.text)) == 64
    assert len(status.text) <= 65_536


def test_what_others_wrote_is_known_by_the_digest() -> None:
    """Also where Multus has replaced ours, whose digest stays beside it."""
    assert not is_another_writers({})
    assert not is_another_writers({KEY: "[]", DIGEST_KEY: digest("[]")})
    assert is_another_writers({KEY: "[]"})
    assert is_another_writers({KEY: "[1]", DIGEST_KEY: digest("[]")})
