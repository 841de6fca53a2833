"""What CHECK, the chain's result and the runtime's own wishes are held against: values in, values out."""

from dataclasses import replace
from typing import Any

import pytest

from cni.plan.drift import Interface, LiveState, from_kernel, from_record, from_result
from cni.spec.capabilities import check_capabilities
from cni.spec.conf import Conf, read_conf
from cni.spec.result import read_previous
from cni.spec.skel import Call, CniError
from mooring.annotations.assignment import AssignedVf
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original

PCI = "0000:3b:01.0"
MAC = "02:00:00:00:00:01"
SETTINGS = VfSettings(min_tx_rate=100, max_tx_rate=200, vlan=7, mac=MAC)
VF = AssignedVf("eth0", 0, PCI, "ethernet", "rail0", SETTINGS)
ENTRY = LedgerEntry(
    pci=PCI,
    pf="eth0",
    vf=0,
    phase="held",
    boot="b",
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=Netns("/run/netns/pod", 1),
    original=Original(name="eth2", mtu=1500, netdev_mac="02:00:00:00:00:aa"),
    set=SETTINGS,
    addresses=("10.0.0.2/24",),
    rdma="mlx5_3",
)
INTERFACE = Interface(MAC, 1500, up=True, addresses=("10.0.0.2/24", "fe80::1/64"))
FOUND = LiveState(True, INTERFACE, SETTINGS, rdma=True)
CALL = Call("ADD", "c1", "/run/netns/pod", "eth0", {}, (), {})
CONF = Conf(name="net", version="1.0.0", ipam={"type": "static"})


QUEUE_PAIR, OTHER_QUEUE_PAIR, PREFIX = "00:00:01:09", "00:00:02:1a", "fe:80:00:00:00:00:00:00"
GUID, OTHER_GUID = "02:00:00:00:00:00:00:99", "02:00:00:00:00:00:00:00"


def test_of_an_ipoib_address_the_guid_counts() -> None:
    """The netdev is made again with its RDMA device, or with the driver that reads the pod's GUID: another queue pair.

    Without the pod's wish it has the GUID that was found, in whatever the chain's result lists.
    """
    original = Original(name="ib1", mtu=1500, netdev_mac=f"{QUEUE_PAIR}:{PREFIX}:{OTHER_GUID}")
    for settings, guid in ((VfSettings(guid=GUID), GUID), (VfSettings(), OTHER_GUID)):
        entry = replace(ENTRY, original=original, set=settings)
        there = LiveState(True, replace(INTERFACE, mac=f"{OTHER_QUEUE_PAIR}:{PREFIX}:{guid}"), settings)
        assert from_kernel(entry, there, None, {}) == []
        assert from_kernel(entry, there, None, {"mac": f"{QUEUE_PAIR}:{PREFIX}:{guid}"}) == []
        other = replace(there, interface=replace(INTERFACE, mac=f"{OTHER_QUEUE_PAIR}:{PREFIX}:02:00:00:00:00:00:00:11"))
        (text,) = from_kernel(entry, other, None, {})
        assert "02:00:00:00:00:00:00:11', not" in text


def test_a_vf_whose_pf_has_refused_a_setting_is_in_doubt() -> None:
    """What its PF reports may not be in force, although it is as it was set."""
    (text,) = from_kernel(replace(ENTRY, in_doubt=True), FOUND, None, {})
    assert text == f"vf {PCI}: pf 'eth0' refused one of its settings, so the reported settings may not be in force"


def test_what_is_as_it_was_made_has_no_drift() -> None:
    """Link-local addresses and settings that the pod did not request are ignored."""
    found = replace(FOUND, settings=replace(SETTINGS, trust=True))
    assert from_kernel(ENTRY, found, None, {}) == []
    assert from_record([VF], {PCI: ENTRY}, "c1") == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (replace(FOUND, interface=replace(INTERFACE, mac="02:00:00:00:00:02")), f", not '{MAC}'"),
        (replace(FOUND, interface=replace(INTERFACE, mtu=9000)), "has mtu 9000, not 1500"),
        (replace(FOUND, interface=replace(INTERFACE, up=False)), "interface 'net1' is down"),
        (replace(FOUND, interface=replace(INTERFACE, addresses=())), "has lost address '10.0.0.2/24'"),
        (replace(FOUND, interface=None), "interface 'net1' is not in the pod"),
        (LiveState(False, settings=SETTINGS), "network namespace '/run/netns/pod' no longer belongs to its pod"),
        (replace(FOUND, settings=None), "pf 'eth0' does not report the settings of vf 0"),
        (replace(FOUND, settings=replace(SETTINGS, vlan=8)), "vlan is 8, not 7"),
        (replace(FOUND, rdma=False), "rdma device 'mlx5_3' is not in the pod"),
    ],
)  # fmt: skip
def test_each_difference_from_the_kernel_is_named(found: LiveState, says: str) -> None:
    """Each difference gives one text, which begins with the VF."""
    (text,) = from_kernel(ENTRY, found, None, {})
    assert text.startswith(f"vf {PCI}: ")
    assert says in text


def test_what_the_result_lists_or_the_network_gives_is_expected() -> None:
    """A later plugin's MAC and MTU are in the result; a network's own MTU is in its configuration."""
    later = replace(FOUND, interface=replace(INTERFACE, mac="02:00:00:00:00:02", mtu=9000))
    assert from_kernel(ENTRY, later, None, {"mac": "02:00:00:00:00:02", "mtu": 9000}) == []
    assert from_kernel(ENTRY, replace(FOUND, interface=replace(INTERFACE, mtu=4000)), 4000, {}) == []
    assert from_kernel(ENTRY, FOUND, 4000, {}) == [f"vf {PCI}: interface 'net1' has mtu 1500, not 4000"]


def test_a_vf_without_a_netdev_is_in_no_result() -> None:
    """ADD lists its interfaces, and such a VF has none: CHECK finds nothing lacking."""
    bare = replace(ENTRY, original=Original(), addresses=())
    assert from_result(bare, {"interfaces": [], "ips": []}, "/run/netns/pod") == ({}, [])


def test_a_vf_without_a_netdev_lacks_none() -> None:
    """InfiniBand alone: settings and RDMA device count, no interface does."""
    entry = replace(ENTRY, original=Original(), addresses=())
    assert from_kernel(entry, replace(FOUND, interface=None), None, {}) == []


@pytest.mark.parametrize(
    ("vfs", "entries", "says"),
    [
        ([VF], {}, "is assigned to the pod, but the ledger has no entry for it in this sandbox"),
        (
            [VF],
            {PCI: replace(ENTRY, container="c2")},
            "is assigned to the pod, but the ledger has no entry for it in this sandbox",
        ),
        ([VF], {PCI: replace(ENTRY, vf=1)}, "is vf 1 of 'eth0' in the ledger, not vf 0 of 'eth0'"),
        ([VF], {PCI: replace(ENTRY, set=replace(SETTINGS, vlan=0))}, "was set differently: vlan is 0, not 7"),
        ([], {PCI: ENTRY}, "is held by this sandbox, but not assigned to the pod"),
    ],
)
def test_each_difference_from_the_record_is_named(
    vfs: list[AssignedVf], entries: dict[str, LedgerEntry], says: str
) -> None:
    """The record is what was decided, the ledger what was done."""
    (text,) = from_record(vfs, entries, "c1")
    assert text == f"vf {PCI} {says}"


def test_a_result_is_asked_for_the_interface_in_this_sandbox_only() -> None:
    """The same name in another sandbox is another interface."""
    here = {"name": "net1", "mac": MAC, "sandbox": "/run/netns/pod"}
    elsewhere = {**here, "sandbox": "/run/netns/other"}
    assert from_result(ENTRY, {"interfaces": [elsewhere, here]}, "/run/netns/pod") == (here, [])
    lacking = f"vf {PCI}: prevResult has no interface 'net1' in '/run/netns/pod'"
    assert from_result(ENTRY, {"interfaces": [elsewhere]}, "/run/netns/pod") == ({}, [lacking])
    assert from_result(ENTRY, {}, "/run/netns/pod") == ({}, [lacking])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "'prevResult': [] is not an object"),
        ({"cniVersion": "0.2.0"}, "prevResult.cniVersion"),
        ({"cniVersion": 1}, "cniVersion"),
        ({"interfaces": {}}, "'prevResult.interfaces': {} is not a list"),
        ({"interfaces": [None]}, "'prevResult.interfaces[0]': None is not an object"),
        ({"interfaces": [{"name": 5}]}, "'name'"),
        ({"ips": [{"address": "10.0.0.300/24"}]}, "prevResult.ips"),
        ({"ips": [{"address": "10.0.0.3/24", "interface": -1}]}, "interface -1"),
        ({"ips": [{"address": "10.0.0.3/24", "interface": True}]}, "interface True"),
        ({"ips": [{"address": "10.0.0.3/24", "gateway": 1}]}, "prevResult.ips"),
        ({"routes": [{"dst": "nowhere"}]}, "prevResult.routes"),
        ({"dns": []}, "'dns': [] is not an object"),
    ],
)
def test_a_malformed_previous_result_is_code_7(value: Any, says: str) -> None:
    """A malformed result would go on to the next plugin, or be returned as ours."""
    with pytest.raises(CniError) as error:
        read_previous(value, "1.0.0")
    assert error.value.code == 7
    assert says in error.value.msg


def test_a_previous_result_takes_the_shape_of_another_version_and_keeps_the_rest() -> None:
    """Up to 0.4.0 an address names its family; since 1.1.0 an interface has more fields; fields of others stay."""
    old = {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.2/24"}], "x": 1}
    assert read_previous(old, "0.4.0") == old
    new = read_previous(old, "1.1.0")
    assert new == {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}], "x": 1}
    assert read_previous(new, "0.4.0") == old
    rich = {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mtu": 9000, "pciID": PCI}]}
    assert read_previous(rich, "0.4.0")["interfaces"] == [{"name": "net1"}]
    assert read_previous(rich, "1.1.0") == rich
    assert read_previous({"interfaces": None, "ips": None}, "1.0.0") == {
        "cniVersion": "1.0.0",
        "interfaces": None,
        "ips": [],
    }


def test_addresses_and_mac_of_the_runtime_are_held_against_the_assignment() -> None:
    """The MAC must be the assigned one; addresses need one VF, and a plugin to give them to."""
    check_capabilities(CALL, CONF, [VF])
    check_capabilities(CALL, replace(CONF, mac=MAC, ips=("10.0.0.9/24",)), [VF])
    for conf, vfs, code in (
        (replace(CONF, mac="02:00:00:00:00:02"), [VF], 100),
        (replace(CONF, mac=MAC), [replace(VF, settings=VfSettings())], 100),
        (replace(CONF, ips=("10.0.0.9/24",)), [VF, VF], 7),
        (replace(CONF, ips=("10.0.0.9/24",), ipam=None), [VF], 7),
    ):
        with pytest.raises(CniError) as error:
            check_capabilities(CALL, conf, vfs)
        assert error.value.code == code
    with pytest.raises(CniError):
        check_capabilities(replace(CALL, args={"IP": "10.0.0.9/24"}), CONF, [VF, VF])


def test_multus_says_mac_and_addresses_by_argument_too() -> None:
    """Multus' older way puts MAC and IP into CNI_ARGS; what is not an address is refused."""
    raw = {"name": "net"}
    assert read_conf(replace(CALL, args={"MAC": "02:00:00:00:00:01"}), raw, "1.0.0").mac == MAC
    for broken in ({"mac": 5}, {"mac": "01:00:00:00:00:01"}, {"ips": ["x"]}, {"ips": "10.0.0.1"}, {"ips": [5]}):
        with pytest.raises(CniError, match="runtimeConfig"):
            read_conf(CALL, {**raw, "runtimeConfig": broken}, "1.0.0")


def test_the_ipam_plugin_is_given_the_addresses_both_ways_and_never_a_version_beyond_its_own() -> None:
    """static and host-local read runtimeConfig.ips or args.cni.ips; few support 1.1.0."""
    delegated = replace(CONF, version="1.1.0", ips=("10.0.0.9/24",)).ipam_conf({"type": "static"})
    assert delegated["cniVersion"] == "1.0.0"
    assert delegated["runtimeConfig"] == {"ips": ["10.0.0.9/24"]}
    assert delegated["args"] == {"cni": {"ips": ["10.0.0.9/24"]}}
    assert CONF.ipam_conf({"type": "static"}) == {"cniVersion": "1.0.0", "name": "net", "ipam": {"type": "static"}}


def test_del_reads_places_only() -> None:
    """A configuration that ADD refuses does not keep DEL from an earlier pod; a folder must be valid."""
    spoilt = {"state": "/s", "misspelt": 1, "ipam": 5, "prevResult": 7, "network": "rail0"}
    conf = read_conf(replace(CALL, command="DEL"), spoilt, "1.0.0")
    assert (conf.state, conf.network, conf.ipam) == ("/s", "rail0", None)
    with pytest.raises(CniError, match="state"):
        read_conf(replace(CALL, command="DEL"), {"state": "../s"}, "1.0.0")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "'name' is missing"),
        ({"networks": {"rail0": {"ipan": {}}}}, "networks.rail0.ipan"),
        ({"networks": {"rail0": {"mtu": 67}}}, "networks.rail0.mtu"),
        ({"networks": {"rail0": {"mtu": True}}}, "networks.rail0.mtu"),
        ({"networks": {"rail0": {"routes": {}}}}, "networks.rail0.routes"),
        ({"networks": {"rail0": {"routes": [{"dst": "10.0.0.1/8"}]}}}, r"networks.rail0.routes\[0\]"),
        ({"networks": {"rail0": {"routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]}}}, "different address families"),
        ({"policyRouting": "yes"}, "policyRouting"),
        ({"awaitInit": 1}, "awaitInit"),
        ({"disableCheck": 1}, "disableCheck"),
        ({"cni.dev/valid-attachments": {}}, "valid-attachments"),
        ({"cni.dev/valid-attachments": [{"containerID": 1}]}, "valid-attachments"),
        ({"ipam": {"type": "a\0b"}}, "ipam.type"),
        ({"ipam": {"type": ".."}}, "ipam.type"),
        ({"run": "/run/\0"}, "run"),
    ],
)
def test_a_field_that_breaks_its_rule_is_named(fields: dict[str, Any], says: str) -> None:
    """The error has code 7 and the path of the field."""
    with pytest.raises(CniError, match=says) as error:
        read_conf(CALL, {"name": "net", **fields}, "1.0.0")
    assert error.value.code == 7
