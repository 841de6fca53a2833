"""What the CNI plugin decides before it touches anything: calls, configuration, names, settings, rates, results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni.plan import attachment
from cni.server.dispatch import answer
from cni.spec.capabilities import check_capabilities
from cni.spec.conf import Conf, read_conf
from cni.spec.network import NetworkConf
from cni.spec.result import Address, AttachedVf, Route, add_result
from cni.spec.skel import REFUSAL, VERSIONS, Call, CniError, read_call
from cni.vf.ledger import Ledger
from cni.vf.node import temporary_name
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, PodInterface, dump_assignment
from mooring.errors import RecordError
from mooring.names import is_interface
from mooring.nic.settings import VfSettings
from mooring.records.ledger import Ipam, LedgerEntry, Netns, Original
from mooring.records.pod_record import PodRecord

ENVIRONMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/pod",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u1",
    "CNI_PATH": "/opt/cni/bin:relative",
}
CONF: dict[str, Any] = {"cniVersion": "1.0.0", "name": "net", "type": "mooring-cni"}
VF = AssignedVf("eth0", 0, "0000:3b:01.0", "ethernet", "default", VfSettings(min_tx_rate=5000))
RECORD = PodRecord("ns/p", Assignment("u1", "n1", (VF,)))


def call(**changes: str) -> Call:
    return read_call({**ENVIRONMENT, **changes}, json.dumps(CONF).encode())


def conf(**fields: Any) -> Conf:
    return read_conf(call(), {**CONF, **fields}, "1.0.0")


def refused(**changes: str) -> dict[str, Any]:
    """Return the error object of a call that must fail before it touches anything."""
    done = answer({**ENVIRONMENT, **changes}, json.dumps(CONF).encode(), vf_settings=lambda: pytest.fail("made"))
    assert done.status == 1
    error: dict[str, Any] = json.loads(done.text)
    return error


def test_a_call_is_read_as_the_specification_says() -> None:
    """Arguments by name, absolute plugin folders only, an empty netns is none."""
    read = call(CNI_NETNS="", CNI_COMMAND="DEL")
    assert (read.command, read.container, read.netns) == ("DEL", "c1", None)
    assert (read.args["K8S_POD_UID"], read.path) == ("u1", ("/opt/cni/bin",))


@pytest.mark.parametrize(
    "changes",
    [
        {"CNI_COMMAND": "FROB"},
        {"CNI_CONTAINERID": ""},
        {"CNI_CONTAINERID": "../x"},
        {"CNI_NETNS": ""},
        {"CNI_NETNS": "run/netns/pod"},
        {"CNI_COMMAND": "CHECK", "CNI_NETNS": ""},
        {"CNI_IFNAME": ""},
        {"CNI_COMMAND": "DEL", "CNI_IFNAME": ""},
        {"CNI_IFNAME": "a/b"},
        {"CNI_IFNAME": ".."},
        {"CNI_IFNAME": "net%d"},
        {"CNI_IFNAME": "sixteen-letters-"},
        {"CNI_IFNAME": "with space"},
    ],
)
def test_a_bad_environment_is_code_4(changes: dict[str, str]) -> None:
    """The error object has the specification's code."""
    assert refused(**changes)["code"] == 4


def test_version_lists_what_we_speak() -> None:
    """VERSION needs nothing but its command."""
    done = answer({"CNI_COMMAND": "VERSION"}, b'{"cniVersion":"1.0.0"}', vf_settings=lambda: pytest.fail("made"))
    assert (done.status, json.loads(done.text)["supportedVersions"]) == (0, list(VERSIONS))


def test_another_version_is_code_1() -> None:
    """A configuration of an unsupported version is refused."""
    done = answer(ENVIRONMENT, b'{"cniVersion":"0.2.0"}', vf_settings=lambda: pytest.fail("made"))
    assert (done.status, json.loads(done.text)["code"]) == (1, 1)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_no_json_has_is_code_6(number: str) -> None:
    """Passed on, it would make the chain's result unreadable."""
    conf = f'{{"cniVersion":"1.0.0","name":"net","type":"mooring-cni","prevResult":{{"dns":{{"ndots":{number}}}}}}}'
    done = answer(ENVIRONMENT, conf.encode(), vf_settings=lambda: pytest.fail("made"))
    assert (done.status, json.loads(done.text)["code"]) == (1, 6)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"minTxRate": 5}, "minTxRate"),
        ({"state": "relative"}, "state"),
        ({"state": "/var/../etc"}, "state"),
        ({"holdTimeoutSeconds": True}, "holdTimeoutSeconds"),
        ({"name": "../../etc"}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"ipam": {"type": "../../bin/sh"}}, "ipam.type"),
        ({"networks": {"rail0": {"ipam": []}}}, "networks.rail0.ipam"),
        ({"ipMasq": True}, "ipMasq"),
        ({"server": "cni.sock"}, "server"),
        ({"dns": ["10.0.0.53"]}, "dns"),
        ({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": 1}}}, "annotations"),
    ],
)
def test_a_bad_configuration_is_code_7_and_names_the_field(fields: dict[str, Any], says: str) -> None:
    """Unknown fields and paths that leave their place are refused."""
    with pytest.raises(CniError, match=says) as error:
        conf(**fields)
    assert error.value.code == 7


def test_what_the_cni_itself_adds_is_let_through() -> None:
    """Fields of the specification and of Multus are accepted; annotations may be null."""
    read = conf(**{"cni.dev/valid-attachments": [], "deviceID": "x", "runtimeConfig": None, "prevResult": None})
    assert (read.annotations, read.previous) == ({}, None)
    assert conf(runtimeConfig={"io.kubernetes.cri.pod-annotations": None}).annotations == {}


def test_a_network_has_its_own_ipam_or_the_common_one() -> None:
    """`networks` overrides by network name."""
    read = conf(ipam={"type": "host-local"}, networks={"rail0": {"ipam": {"type": "static"}}})
    assert read.network_of("rail0") == NetworkConf({"type": "static"})
    assert read.network_of("rail1") == NetworkConf({"type": "host-local"})


def annotated(**annotations: str) -> Conf:
    return conf(runtimeConfig={"io.kubernetes.cri.pod-annotations": annotations})


def test_a_pod_that_requests_nothing_is_passed_on() -> None:
    """A pod without request, assignment and record is passed on, an empty request included."""
    assert attachment.record_to_apply(call(), annotated(), None) is None
    assert attachment.record_to_apply(call(), annotated(**{names.REQUEST: "[]"}), None) is None


@pytest.mark.parametrize("key", [names.REQUEST, names.RIT_REQUEST, names.ASSIGNMENT])
def test_a_request_without_a_record_means_the_shim_was_bypassed(key: str) -> None:
    """The tripwire of promise 3: code 100, and the pod does not start."""
    with pytest.raises(CniError, match="bypassed") as error:
        attachment.record_to_apply(call(), annotated(**{key: "[{}]"}), None)
    assert error.value.code == REFUSAL


def test_the_record_counts_and_must_agree_with_the_annotation() -> None:
    """An annotation changed since, or one for another pod, is refused; without any (Multus) the record serves."""
    same = annotated(**{names.ASSIGNMENT: dump_assignment(RECORD.assignment)})
    assert attachment.record_to_apply(call(), same, RECORD) == RECORD
    assert attachment.record_to_apply(call(), conf(), RECORD) == RECORD
    for other in (Assignment("u1", "n1", ()), Assignment("u2", "n1", (VF,)), Assignment("u1", "n2", (VF,))):
        with pytest.raises(CniError) as error:
            attachment.record_to_apply(call(), annotated(**{names.ASSIGNMENT: dump_assignment(other)}), RECORD)
        assert error.value.code == REFUSAL


def test_a_record_for_another_node_is_refused() -> None:
    """A state folder copied from another host gives no pod a VF."""
    with pytest.raises(CniError, match="this is node 'n2'"):
        attachment.record_to_apply(call(), conf(node="n2"), RECORD)


def vfs(*wished: str | None) -> list[AssignedVf]:
    return [
        AssignedVf("eth0", index, f"0000:3b:01.{index}", "ethernet", "default", interface=PodInterface(name))
        for index, name in enumerate(wished)
    ]


def test_interfaces_are_named_by_the_user_or_in_order() -> None:
    """Chained, the names are net1, net2, …; as the main plugin CNI_IFNAME comes first.

    A name that the user took is skipped, and one that an interface in the pod has.
    """
    assert attachment.interface_names(vfs(None, None), "eth0", previous={}) == ("net1", "net2")
    assert attachment.interface_names(vfs(None, None), "eth0", previous=None) == ("eth0", "net1")
    assert attachment.interface_names(vfs("net1", None, "rdma0"), "eth0", previous={}) == ("net1", "net2", "rdma0")
    assert attachment.interface_names(vfs(None), "eth0", previous={"interfaces": [{"name": "net1"}]}) == ("net2",)
    assert attachment.interface_names(vfs(None, None, None), "net2", previous=None) == ("net2", "net1", "net3")
    there = ["lo", "eth0", "net1", "net2"]
    assert attachment.interface_names(vfs(None, "net4", None), "eth0", previous={}, in_pod=there) == (
        ("net3", "net4", "net5")
    )


def test_a_vf_that_is_requested_without_a_netdev_takes_no_others_name() -> None:
    """Its own is in the ledger only; Multus' names are not taken by it either."""
    first, second = vfs(None, None)
    alone = replace(first, link="infiniband", interface=PodInterface(netdev=False))
    assert attachment.interface_names([alone, second], "eth0", previous={}) == ("net2", "net1")
    assert attachment.interface_names([alone, second], "eth0", previous=None) == ("net1", "eth0")
    record = PodRecord("ns/p", Assignment("u1", "n1", (alone, second, replace(VF, vf=2, network="rail1"))))
    attachment.check_names(record, [alone, second], conf(network="default"), "net1")


def test_addresses_that_the_runtime_asks_for_are_refused_for_a_vf_without_a_netdev() -> None:
    ips = conf(capabilities={"ips": True}, runtimeConfig={"ips": ["10.0.0.9/24"]}, ipam={"type": "host-local"})
    check_capabilities(call(), ips, [VF])
    with pytest.raises(CniError, match="without a netdev") as said:
        check_capabilities(call(), ips, [replace(VF, link="infiniband", interface=PodInterface(netdev=False))])
    assert said.value.code == REFUSAL


def test_a_delegate_of_multus_takes_no_name_that_multus_gives() -> None:
    """Two networks, two VFs of one without names: the second would be the other delegate's net1 or net2."""
    both = [replace(VF, network="rail0"), replace(VF, vf=1, network="rail0"), replace(VF, vf=2, network="rail1")]
    record = PodRecord("ns/p", Assignment("u1", "n1", tuple(both)))
    delegate = conf(network="rail0")
    with pytest.raises(CniError, match=r"2 unnamed VFs of network 'rail0' and VFs of rail1") as said:
        attachment.check_names(record, both[:2], delegate, "net1")
    assert said.value.code == REFUSAL
    attachment.check_names(record, [both[0], replace(both[1], interface=PodInterface("rail0b"))], delegate, "net1")
    attachment.check_names(record, both[:2], delegate, "fast0")
    attachment.check_names(record, both[2:], conf(network="rail1"), "net2")
    attachment.check_names(record, both, conf(), "eth0")


def test_a_rate_left_over_from_before_is_cleared() -> None:
    """A pod without a rate does not inherit one; what a NIC does not report is left alone."""
    assert attachment.effective_settings(VfSettings(), VfSettings(min_tx_rate=5, max_tx_rate=9)) == VfSettings(0, 0)
    assert attachment.effective_settings(VfSettings(), VfSettings()) == VfSettings()
    assert attachment.effective_settings(VfSettings(vlan=5), VfSettings(0, 0)) == VfSettings(vlan=5)
    assert attachment.effective_settings(VfSettings(min_tx_rate=0, qos=0, trust=False), VfSettings()) == VfSettings()
    assert attachment.effective_settings(VfSettings(min_tx_rate=5), VfSettings()) == VfSettings(min_tx_rate=5)


def test_a_vf_whose_spoof_check_is_on_gets_a_mac_that_it_lets_pass() -> None:
    """mlx5 lets pass frames from the admin MAC alone (esw_acl_ingress_lgcy_setup): with none, no frame at all."""
    own = "02:00:00:00:00:09"
    without_mac = VfSettings(mac=attachment.NO_MAC, spoofchk=True)
    assert attachment.effective_settings(VfSettings(), without_mac, own).mac == own
    assert attachment.effective_settings(VfSettings(spoofchk=False), without_mac, own).mac is None
    assert (
        attachment.effective_settings(VfSettings(mac="02:00:00:00:00:08"), without_mac, own).mac == "02:00:00:00:00:08"
    )
    assert attachment.effective_settings(VfSettings(), replace(without_mac, mac=own), "02:00:00:00:00:07").mac is None
    assert attachment.effective_settings(VfSettings(), replace(without_mac, spoofchk=False), own).mac is None


def test_what_a_vf_has_already_is_not_written() -> None:
    """A NIC cannot refuse it then. One attribute is written whole: both rates, a VLAN with its priority."""
    found = VfSettings(0, 0, "02:00:00:00:00:01", 7, 3, trust=False, spoofchk=True, link_state="auto", guid=None)
    assert attachment.changes(VfSettings(0, 0, trust=False, spoofchk=True, link_state="auto"), found) == VfSettings()
    assert attachment.changes(VfSettings(5, 0, trust=True), found) == VfSettings(5, 0, trust=True)
    assert attachment.changes(VfSettings(vlan=7, qos=3), found) == VfSettings()
    assert attachment.changes(VfSettings(vlan=7), found) == VfSettings(vlan=7)
    assert attachment.changes(VfSettings(mac="02:00:00:00:00:01"), found) == VfSettings(mac="02:00:00:00:00:01")
    assert attachment.changes(VfSettings(guid="02:00:00:00:00:00:00:01"), VfSettings()).guid is not None


def test_min_rates_within_the_line_rate_pass_and_one_more_does_not() -> None:
    """Promise 8 at ADD: the VF's own earlier rate does not count twice."""
    found = {0: VfSettings(min_tx_rate=60), 1: VfSettings(min_tx_rate=30), 2: VfSettings()}
    attachment.check_rates("eth0", 100, found, {2: VfSettings(min_tx_rate=10)})
    attachment.check_rates("eth0", 100, found, {0: VfSettings(min_tx_rate=70)})
    attachment.check_rates("eth0", 0, found, {2: VfSettings()})
    with pytest.raises(CniError, match="min rates of 101 Mb/s would exceed its line rate of 100 Mb/s"):
        attachment.check_rates("eth0", 100, found, {2: VfSettings(min_tx_rate=11)})
    with pytest.raises(CniError):
        attachment.check_rates("eth0", 0, {}, {2: VfSettings(min_tx_rate=1)})


def test_what_reads_back_otherwise_is_named() -> None:
    """Only requested settings are compared."""
    found = VfSettings(vlan=6, qos=0, trust=False)
    assert attachment.differences(VfSettings(vlan=5, trust=False), found) == ["vlan is 6, not 5"]


ENTRY = LedgerEntry(
    pci="0000:3b:01.0",
    pf="eth0",
    vf=0,
    phase="returning",
    boot="b",
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=Netns("/run/netns/pod", 4711),
    original=Original("eth2"),
    # As a VF without an admin MAC reads, with a priority tag and no VLAN.
    set=VfSettings(0, 0, "00:00:00:00:00:00", 0, 3, trust=False, spoofchk=False, link_state="auto"),
    ipam=Ipam("net1", {"ipam": {"type": "host-local"}}, ("/" + "folder/" * 40, "/opt/cni/bin")),
)


def test_whatever_a_vf_was_found_with_can_be_entered_and_read_again(tmp_path: Path) -> None:
    """An entry that could not be read again would keep its VF for ever: DEL skips it."""
    ledger = Ledger(tmp_path)
    ledger.write(ENTRY)
    assert list(ledger.entries("c1")) == [ENTRY]


def test_an_entry_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    """More folders than an entry may have, as CNI_PATH can have them: refused before the VF is touched."""
    ledger = Ledger(tmp_path)
    with pytest.raises(RecordError, match="path"):
        ledger.write(replace(ENTRY, ipam=Ipam("net1", {}, ("/opt/cni/bin",) * 65)))
    assert ledger.read(ENTRY.pci) is None


def test_a_temporary_name_is_an_interfaces_name_and_nobody_elses() -> None:
    """Every address gives a different name, wide PCI domains included."""
    addresses = ["0000:3b:01.0", "0000:3b:01.1", "0000:3c:01.0", "0001:3b:01.0", "10000:ff:1f.7", "ffffffff:ff:1f.7"]
    made = [temporary_name(address) for address in addresses]
    assert len(set(made)) == len(addresses)
    assert all(is_interface(name) for name in made)


def test_a_result_keeps_what_was_there_and_counts_on() -> None:
    """Interfaces are appended; 1.1.0 has the MTU. Without a chain the result has addresses and routes, too."""
    previous = {"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.0.0.5/24", "interface": 0}], "dns": {}}
    vf = AttachedVf("net1", "02:00:00:00:00:01", 1500, [Address("10.1.0.2/24", "10.1.0.1")], [Route("10.2.0.0/16")])
    result = add_result(previous, "1.0.0", "/run/netns/pod", [vf])
    assert result["interfaces"][0] == {"name": "eth0"}
    assert result["interfaces"][1] == {"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/pod"}
    assert (result["ips"], "routes" in result, result["dns"], result["cniVersion"]) == (
        previous["ips"],
        False,
        {},
        "1.0.0",
    )
    assert add_result(previous, "1.1.0", "/x", [vf])["interfaces"][1]["mtu"] == 1500
    alone = add_result(None, "1.0.0", "/run/netns/pod", [vf])
    assert alone["ips"] == [{"address": "10.1.0.2/24", "interface": 0, "gateway": "10.1.0.1"}]
    assert alone["routes"] == [{"dst": "10.2.0.0/16"}]
    assert add_result(None, "0.4.0", "/x", [vf])["ips"][0]["version"] == "4"


def test_name_servers_are_the_chains_else_the_configurations_else_ipams() -> None:
    """The specification's `dns` is passed on, and added only where the result has none."""
    ours, confs, chains = ({"nameservers": [address]} for address in ("10.1.0.53", "10.2.0.53", "10.3.0.53"))
    vf = AttachedVf("eth0", "02:00:00:00:00:01", 1500, dns=ours)
    assert add_result({"dns": chains}, "1.0.0", "/x", [vf], confs)["dns"] == chains
    assert add_result({"dns": {}}, "1.0.0", "/x", [vf], confs)["dns"] == confs
    assert add_result(None, "1.0.0", "/x", [vf], {})["dns"] == ours
    assert "dns" not in add_result(None, "1.0.0", "/x", [replace(vf, dns={})])
