"""/getpfs of rit-k8s-rdma, field for field."""

from dataclasses import replace

from advertiser.formats.getpfs import pfs_document
from mooring.annotations.inventory import Inventory, Out, Pf
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original

PF = Pf(
    name="enp4s0f0",
    pci="0000:04:00.0",
    link="ethernet",
    network="default",
    mbps=100_000,
    offer_mbps=100_000,
    up=True,
    vfs=Indexes.parse("0-2"),
    vf0="0000:04:00.2",
    out=(Out(Indexes.parse("2"), "bound to vfio-pci"),),
)
HELD = LedgerEntry(
    pci="0000:04:00.3",
    pf="enp4s0f0",
    vf=1,
    phase="held",
    boot="b",
    uid="u1",
    pod="default/train",
    container="c",
    ifname="net1",
    netns=Netns("/n", 1),
    original=Original(),
    set=VfSettings(min_tx_rate=5000, max_tx_rate=9000),
)
KERNEL = VfSettings(
    min_tx_rate=15000,
    max_tx_rate=20000,
    mac="7a:00:00:00:00:01",
    vlan=100,
    qos=3,
    trust=True,
    spoofchk=True,
    link_state="enable",
)


def test_every_field_is_as_in_rit_k8s_rdma() -> None:
    """Names, values and units are those that rit-k8s-rdma's clients read."""
    (pf,) = pfs_document(Inventory("b", (PF,)), {"enp4s0f0": {0: KERNEL}}, {HELD.pci: HELD})
    vfs = pf.pop("vfs")
    assert pf == {
        "name": "enp4s0f0",
        "used_tx_rate": 20000,
        "capacity_tx_rate": 100000,
        "used_vfs": 2,
        "capacity_vfs": 3,
    }
    assert isinstance(vfs, list)
    assert vfs[0] == {
        "vf": 0,
        "mac": "7a:00:00:00:00:01",
        "vlan": 100,
        "qos": 3,
        "vlan_proto": "802.1Q",
        "spoof_check": "ON",
        "trust": "ON",
        "link_state": "Up",
        "min_tx_rate": 15000,
        "max_tx_rate": 20000,
        "vgt_plus": "OFF",
        "rate_group": 0,
        "allocated": False,
    }


def test_what_the_kernel_does_not_report_is_the_ledgers() -> None:
    """The driver reports no VF list; the rates that were set are known from the ledger."""
    (pf,) = pfs_document(Inventory("b", (PF,)), {}, {HELD.pci: HELD})
    vfs = pf["vfs"]
    assert isinstance(vfs, list)
    assert [(vf["min_tx_rate"], vf["allocated"]) for vf in vfs] == [(0, False), (5000, True), (0, True)]


def test_no_pf_is_an_empty_list() -> None:
    """The answer is an empty list, neither null nor an error."""
    assert pfs_document(Inventory("b", ()), {}, {}) == []


def test_a_pf_shows_the_rates_of_its_whole_cable() -> None:
    """The daemon's reader subtracts them from the capacity of each PF."""
    pfs = (replace(PF, port="c"), replace(PF, name="enP2p4s0f0", pci="0002:04:00.0", port="c"), replace(PF, name="x"))
    settings = {"enp4s0f0": {0: KERNEL}, "enP2p4s0f0": {1: KERNEL}, "x": {0: KERNEL}}
    found = pfs_document(Inventory("b", pfs), settings, {})
    assert [pf["used_tx_rate"] for pf in found] == [30_000, 30_000, 15_000]
