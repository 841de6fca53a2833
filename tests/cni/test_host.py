"""The CNI plugin on a simulated host: real network namespaces, real IPAM plugins, the forwarder as its entry."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devcluster.hosts.vftable import VfTable
from mooring import names
from tests.support.polling import wait_until
from tests.support.simulated_nics import MLX5, ON_EACH, ON_MLX5, Nic

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

FIRST = MLX5.first


@ON_EACH
def test_add_brings_the_recorded_vfs_and_del_takes_them_back(host: Any, nic: Nic) -> None:
    """Names, rates, MAC, addresses and the ledger on ADD; everything as before on DEL, and on a second DEL."""
    before = host.everything()
    host.record(nic.first, nic.second)
    result = host.call("ADD", host.conf({names.REQUEST: "[{},{}]"}))
    assert [interface["name"] for interface in result["interfaces"]] == ["eth0", "net1", "rdma7"]
    assert result["ips"] == []
    assert {name: len(addresses) for name, addresses in host.vf_addresses().items()} == {"net1": 1, "rdma7": 1}
    if "mac" in nic.second:
        assert result["interfaces"][2]["mac"] == nic.second["mac"]
    assert {"net1", "rdma7"} <= host.in_pod().keys()
    assert not {"enp4s0f0v1", "enp4s0f1v0"} & host.links().keys()
    pfs = host.table()["pfs"]
    assert (pfs["enp4s0f0"]["set"]["1"], pfs["enp4s0f1"]["set"]["0"]) == (nic.first_wishes, nic.second_kept)
    assert {(entry["phase"], entry["container"]) for entry in host.ledger().values()} == {("held", "c1")}
    assert len(host.addresses()) == 2
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before
    assert host.call("DEL", netns="") == {"status": 0}
    assert host.everything() == before


@ON_MLX5
def test_a_delegate_is_for_the_network_of_its_definitions_name(host: Any) -> None:
    """The offer, the assignment and the configuration name it alike; a delegate of another network has no VF here."""
    host.offer(network="sriov/rail0")
    host.record(FIRST | {"network": "sriov/rail0"})
    other = host.call("ADD", host.conf({names.REQUEST: "[{}]"}, network="sriov/rail1"))
    assert [interface["name"] for interface in other["interfaces"]] == ["eth0"]
    result = host.call("ADD", host.conf({names.REQUEST: "[{}]"}, network="sriov/rail0"))
    assert [interface["name"] for interface in result["interfaces"]] == ["eth0", "net1"]
    assert [entry["attachment"]["network"] for entry in host.ledger().values()] == ["sriov/rail0"]


@ON_MLX5
def test_a_pod_without_a_request_is_passed_on(host: Any) -> None:
    """The previous result comes back as it was; annotations may be null."""
    result = host.call("ADD", host.conf(None))
    assert result == {"status": 0, "cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": []}


@ON_MLX5
def test_a_request_without_a_record_is_refused(host: Any) -> None:
    """The tripwire: the shim was bypassed, the pod does not start."""
    answer = host.call("ADD", host.conf({names.REQUEST: "[{}]"}))
    assert (answer["status"], answer["code"]) == (1, 100)
    assert "bypassed" in answer["msg"]


@ON_EACH
def test_a_vf_of_a_live_sandbox_is_not_taken(host: Any, nic: Nic) -> None:
    """Error 11 names the holder, and the holder keeps it."""
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    host.record(nic.first, uid="u2")
    answer = host.call("ADD", host.conf(holdTimeoutSeconds=0.2), uid="u2", container="c2")
    assert (answer["status"], answer["code"]) == (1, 11)
    assert "ns/u1" in answer["msg"]
    assert "net1" in host.in_pod()
    assert host.call("DEL", uid="u2", container="c2") == {"status": 0}
    assert "net1" in host.in_pod()


@ON_EACH
def test_a_vf_of_a_dead_sandbox_is_freed_and_taken(host: Any, nic: Nic) -> None:
    """The namespace died without a DEL: the next ADD restores the VF first."""
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    subprocess.run(("ip", "netns", "add", host.pod), check=True)
    host.record({**nic.first, **nic.second_wishes}, uid="u2")
    assert host.call("ADD", uid="u2", container="c2")["status"] == 0
    assert host.ledger()[nic.first["pci"]]["uid"] == "u2"
    assert host.ledger()[nic.first["pci"]]["original"]["name"] == "enp4s0f0v1"
    assert host.call("DEL", uid="u2", container="c2") == {"status": 0}


@ON_EACH
def test_a_vf_of_a_dead_sandbox_is_freed_though_another_one_is_in_use(host: Any, nic: Nic, other_netns: str) -> None:
    """The ADD that asks for both is refused; it has given the first one back all the same."""
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    subprocess.run(("ip", "netns", "add", host.pod), check=True)
    theirs = {"uid": "u2", "container": "c2", "netns": other_netns}
    host.record(nic.second, uid="u2")
    assert host.call("ADD", **theirs)["status"] == 0
    host.record(nic.first, nic.second, uid="u3")
    answer = host.call("ADD", host.conf(holdTimeoutSeconds=0), uid="u3", container="c3")
    assert (answer["status"], answer["code"]) == (1, 11)
    assert "ns/u2" in answer["msg"]
    assert set(host.ledger()) == {nic.second["pci"]}
    assert host.call("DEL", **theirs) == {"status": 0}


@ON_EACH
def test_a_vf_in_a_namespace_that_lost_only_its_path_keeps_its_settings(host: Any, nic: Nic) -> None:
    """A process keeps the namespace alive: the VF still works there, no pod may get it or change its settings."""
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    before = host.table()
    keeper = subprocess.Popen(("nsenter", f"--net=/run/netns/{host.pod}", "sleep", "60"))
    ours = Path("/proc/self/ns/net").stat().st_ino
    wait_until(lambda: Path(f"/proc/{keeper.pid}/ns/net").stat().st_ino != ours)
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    subprocess.run(("ip", "netns", "add", host.pod), check=True)
    host.record(nic.first, uid="u2")
    answer = host.call("ADD", host.conf(holdTimeoutSeconds=0), uid="u2", container="c2")
    assert (answer["status"], answer["code"], host.table()) == (1, 11, before)
    assert host.call("DEL", netns="")["code"] == 11
    assert host.table() == before
    keeper.kill()
    keeper.wait()
    assert host.call("ADD", uid="u2", container="c2")["status"] == 0
    assert host.call("DEL", uid="u2", container="c2") == {"status": 0}


@ON_EACH
def test_del_leaves_the_links_of_other_plugins_alone(host: Any, nic: Nic) -> None:
    """eth0 in the pod and its peer in the host belong to another plugin, before, between and after our calls."""
    host.enter("ip", "link", "add", "theirs", "type", "veth", "peer", "name", "eth0", "netns", host.pod)
    before = host.everything(), host.in_pod()
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    assert set(host.in_pod()) - set(before[1]) == {"net1"}
    assert host.call("DEL")["status"] == 0
    assert (host.everything(), host.in_pod()) == before
    host.enter("ip", "link", "delete", "theirs")


def test_a_configuration_that_cannot_be_read_is_an_error_of_the_specification() -> None:
    """The runtime reads stdout: code, message and exit status 1, never only a line on stderr."""
    environment = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "a", "PATH": "/bin", "MOORING_CONFIG": "/nonexistent.yaml"}
    done = subprocess.run([sys.executable, "-m", "cni"], env=environment, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["code"]) == (1, 7)
    assert "'/nonexistent.yaml' does not exist" in answer["msg"]


@ON_EACH
def test_del_after_the_namespace_died_restores_everything(host: Any, nic: Nic) -> None:
    """The kernel gives the VF back under its pod name; DEL without a netns puts the rest right."""
    before = host.everything()
    host.record(nic.first, nic.second)
    assert host.call("ADD")["status"] == 0
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    assert host.call("DEL", netns="") == {"status": 0}
    assert host.everything() == before
    subprocess.run(("ip", "netns", "add", host.pod), check=True)


@ON_MLX5
def test_rates_beyond_the_line_are_refused_and_undone(host: Any) -> None:
    """Promise 8 at ADD: rates that are set already count."""
    before = host.everything()
    host.record({**FIRST, "min_tx_rate": 90000, "max_tx_rate": 0}, {**FIRST, "vf": 2, "pci": "0000:04:00.4"})
    answer = host.call("ADD")
    assert (answer["status"], answer["code"]) == (1, 101)
    assert "line rate of 100000" in answer["msg"]
    assert host.everything() == before


@ON_EACH
@pytest.mark.parametrize(
    "wrong", [{"pci": "0000:04:00.4"}, {"pf": "enp4s0f1"}, {"vf": 3, "pci": "0000:04:1f.7"}, {"pf": "nope"}]
)
def test_a_vf_that_is_not_the_one_named_is_refused(host: Any, nic: Nic, wrong: dict[str, Any]) -> None:
    """PF, index and address must be one and the same VF: error 102."""
    host.record({**nic.first, **wrong})
    answer = host.call("ADD")
    assert (answer["status"], answer["code"]) == (1, 102)


@ON_EACH
def test_without_addresses_a_pod_gets_its_vfs_all_the_same(host: Any, nic: Nic) -> None:
    """Without `ipam` the pod gets its interfaces, and no addresses."""
    host.record(nic.first)
    conf = host.conf()
    del conf["ipam"]
    result = host.call("ADD", conf)
    assert (len(result["interfaces"]), host.vf_addresses()) == (2, {"net1": []})
    assert host.call("DEL", conf) == {"status": 0}


@ON_EACH
def test_the_static_ipam_plugin_gives_its_address(host: Any, nic: Nic) -> None:
    """Any IPAM plugin serves, by the same protocol."""
    host.record(nic.first)
    answer = host.call("ADD", host.conf(ipam={"type": "static", "addresses": [{"address": "10.77.0.5/24"}]}))
    assert answer["status"] == 0
    assert host.vf_addresses() == {"net1": ["10.77.0.5/24"]}


@ON_EACH
def test_a_failing_ipam_plugin_undoes_the_vf(host: Any, nic: Nic) -> None:
    """The plugin's own text reaches the user; the VF never left."""
    before = host.everything()
    host.record(nic.first)
    answer = host.call("ADD", host.conf(ipam={"type": "nonesuch"}))
    assert (answer["status"], answer["code"]) == (1, 7)
    assert host.everything() == before


@ON_MLX5
def test_a_vf_without_a_min_gets_the_operators_share_and_every_vf_takes_part(host: Any) -> None:
    """As `init` left the offer; the ledger marks the share, and a pod that requests a min has none."""
    host.offer(default_share_mbps=500)
    host.record({"pf": "enp4s0f0", "vf": 0, "pci": "0000:04:00.2", "max_tx_rate": 300}, FIRST)
    assert host.call("ADD")["status"] == 0
    assert host.table()["pfs"]["enp4s0f0"]["set"]["0"] == {"max_tx_rate": 300, "min_tx_rate": 300}
    assert {pci: entry.get("share") for pci, entry in host.ledger().items()} == {
        "0000:04:00.2": True,
        "0000:04:00.3": None,
    }
    # 15000 // 100 = 150, and 300 / 150 = 2.
    assert VfTable(host.layout.vftable).weights("enp4s0f0") == {0: 2, 1: 100, 2: 1, 3: 1}
    assert host.call("DEL") == {"status": 0}


@ON_MLX5
def test_an_mtu_above_the_pfs_is_refused_before_anything_is_changed(host: Any) -> None:
    """The PF has 1500; mlx5 would take 9000 for the VF, and its port would drop the frames."""
    before = host.everything()
    host.record(FIRST)
    answer = host.call("ADD", host.conf(networks={"default": {"mtu": 9000}}))
    assert (answer["status"], answer["code"]) == (1, 101)
    assert answer["msg"] == "vf 1 of pf 'enp4s0f0': mtu 9000 of network 'default' exceeds its pf's mtu of 1500"
    assert host.everything() == before


@ON_MLX5
def test_a_vf_with_a_larger_mtu_than_its_pf_is_refused_unless_its_network_has_one(host: Any) -> None:
    """Without an mtu the VF would keep its own 9000, and its port would drop the frames. Nothing is changed."""
    host.enter("ip", "link", "set", "enp4s0f0v1", "mtu", "9000")
    try:
        before = host.everything()
        host.record(FIRST)
        answer = host.call("ADD")
        assert (answer["status"], answer["code"]) == (1, 101)
        assert answer["msg"] == "vf 1 of pf 'enp4s0f0': its netdev has mtu 9000, which exceeds its pf's mtu of 1500"
        assert host.everything() == before
        assert host.call("ADD", host.conf(networks={"default": {"mtu": 1500}}))["status"] == 0
        assert host.in_pod()["net1"]["mtu"] == 1500
        assert host.call("DEL") == {"status": 0}
        assert host.everything() == before
    finally:
        host.enter("ip", "link", "set", "enp4s0f0v1", "mtu", "1500")
