"""The CNI specification on a simulated host: every command in every version, as runtimes and Multus send them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cni.spec.skel import VERSIONS
from mooring.records.run_folder import READY
from tests.cni.spec.calls import FIRST, SECOND, in_pod, previous

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]


RAIL0 = {**FIRST, "network": "rail0"}


RAIL1 = {**SECOND, "network": "rail1"}


# An IPAM plugin of CNI 1.1.0 that keeps its input, and answers what ANSWER has; written for these tests.
TELLTALE = """#!/bin/sh
cat >"$(dirname "$0")/../told-$CNI_COMMAND"
if [ -e "$(dirname "$0")/../refuse-$CNI_COMMAND" ]; then
  echo '{"cniVersion":"1.1.0","code":50,"msg":"no addresses left"}'
  exit 1
fi
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.77.0.5/24"}]}'
"""


@pytest.fixture
def telltale(host: Any) -> Path:
    """Install the telltale IPAM plugin; return the folder where it keeps its input."""
    program = host.layout.cni_bin / "telltale"
    program.write_text(TELLTALE)
    program.chmod(0o755)
    for left in host.layout.cni_bin.parent.glob("told-*"):
        left.unlink()
    folder: Path = host.layout.cni_bin.parent
    return folder


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pods_life_is_answered_in_the_configurations_version(host: Any, version: str) -> None:
    """ADD, CHECK, DEL: a result in the version's own shape, with MAC and sandbox, and the chain's addresses only."""
    host.record(FIRST, SECOND)
    sandbox = f"/run/netns/{host.pod}"
    before: dict[str, Any] = {
        "cniVersion": version,
        "interfaces": [{"name": "eth0", "sandbox": sandbox}],
        "ips": [{"address": "10.244.0.5/24", "interface": 0, **({"version": "4"} if version == "0.4.0" else {})}],
        "dns": {"domain": "d"},
    }
    conf = host.conf(cniVersion=version, prevResult=before)
    result = host.call("ADD", conf)
    assert (result["status"], result["cniVersion"], result["dns"]) == (0, version, {"domain": "d"})
    assert result["interfaces"][0] == before["interfaces"][0]
    names = [(each["name"], each["sandbox"]) for each in result["interfaces"][1:]]
    assert names == [("net1", sandbox), ("rdma7", sandbox)]
    assert result["interfaces"][2]["mac"] == "02:00:00:00:00:77"
    more = [{name for name in each if name in ("mtu", "pciID")} for each in result["interfaces"][1:]]
    assert more == [{"mtu", "pciID"} if version == "1.1.0" else set()] * 2
    assert result["ips"] == before["ips"]
    assert {name: len(addresses) for name, addresses in host.vf_addresses().items()} == {"net1": 1, "rdma7": 1}
    checked = {**conf, "prevResult": previous(host, result)}
    assert host.call("CHECK", checked) == {"status": 0}
    assert host.call("DEL", checked) == {"status": 0}


def test_as_the_main_plugin_the_first_vf_is_the_interface_asked_for(host: Any) -> None:
    """Without a previous result the names are CNI_IFNAME, then net1."""
    host.record(FIRST, {**SECOND, "name": "rdma7"})
    conf = host.conf()
    del conf["prevResult"]
    result = host.call("ADD", conf)
    assert [each["name"] for each in result["interfaces"]] == ["eth0", "rdma7"]
    assert host.call("DEL", conf) == {"status": 0}


def test_a_previous_result_of_another_version_is_converted(host: Any) -> None:
    """A pod that requests no VF gets the chain's result, in the version of its configuration."""
    old = {"cniVersion": "0.3.1", "interfaces": [{"name": "eth0"}], "ips": [{"version": "4", "address": "10.0.0.5/24"}]}
    new = {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "mtu": 1500}], "ips": [{"address": "fd00::5/64"}]}
    upwards = host.call("ADD", host.conf(prevResult=old))
    assert (upwards["cniVersion"], upwards["ips"]) == ("1.0.0", [{"address": "10.0.0.5/24"}])
    downwards = host.call("ADD", host.conf(prevResult=new, cniVersion="0.4.0"))
    assert (downwards["interfaces"], downwards["ips"][0]["version"]) == ([{"name": "eth0"}], "6")


def test_gc_frees_what_the_runtime_does_not_list(host: Any, other_netns: str) -> None:
    """Two sandboxes, one of them still valid: only the other's VF and address are given back."""
    host.record(FIRST)
    host.record(SECOND, uid="u2")
    assert host.call("ADD")["status"] == 0
    assert host.call("ADD", uid="u2", container="c2", netns=other_netns)["status"] == 0
    valid = [{"containerID": "c2", "ifname": "eth0"}]
    fields = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": valid}
    assert host.call("GC", host.conf(**{**fields, "disableGC": True})) == {"status": 0}
    assert host.call("GC", host.conf(**{**fields, "name": "another-network"})) == {"status": 0}
    assert len(host.ledger()) == 2
    assert host.call("GC", host.conf(**fields)) == {"status": 0}
    assert [entry["container"] for entry in host.ledger().values()] == ["c2"]
    assert len(host.addresses()) == 1
    assert "enp4s0f0v1" in host.links()
    assert host.call("DEL", uid="u2", container="c2", netns=other_netns) == {"status": 0}


def test_gc_without_a_list_takes_nothing(host: Any) -> None:
    """Absent is not empty; before 1.1.0 GC does not exist."""
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    missing = host.call("GC", host.conf(cniVersion="1.1.0"))
    assert (missing["code"], len(host.ledger())) == (7, 1)
    assert host.call("GC", host.conf(**{"cni.dev/valid-attachments": []}))["code"] == 1
    assert host.call("GC", host.conf(**{"cniVersion": "1.1.0", "cni.dev/attachments": []})) == {"status": 0}
    assert host.ledger() == {}


def test_gc_tells_the_ipam_plugin_the_names_that_it_knows(host: Any, other_netns: str, telltale: Path) -> None:
    """A runtime lists CNI_IFNAME; the addresses were allocated under each VF's own name, and must not be freed."""
    host.record(FIRST)
    host.record(SECOND, uid="u2")
    ipam = {"type": "telltale"}
    assert host.call("ADD", host.conf(ipam=ipam))["status"] == 0
    assert host.call("ADD", host.conf(ipam=ipam), uid="u2", container="c2", netns=other_netns)["status"] == 0
    valid = [{"containerID": "c2", "ifname": "eth0"}]
    conf = host.conf(**{"cniVersion": "1.1.0", "cni.dev/valid-attachments": valid, "ipam": ipam})
    assert host.call("GC", conf) == {"status": 0}
    told = json.loads((telltale / "told-GC").read_text())
    assert told["cni.dev/valid-attachments"] == [{"containerID": "c2", "ifname": "rdma7"}]
    assert (told["cniVersion"], told["name"]) == ("1.1.0", "mooring")
    assert host.call("DEL", uid="u2", container="c2", netns=other_netns) == {"status": 0}


def test_status_is_of_pods_without_vfs(host: Any, telltale: Path) -> None:
    """What keeps VFs alone is no fault of the node's network. Before 1.1.0 STATUS does not exist."""
    ready = {"cniVersion": "1.1.0"}
    assert host.call("STATUS", host.conf())["code"] == 1
    conf = host.conf(**ready, awaitInit=True, ipam={"type": "telltale"}, networks={"rail0": {"ipam": {"type": "none"}}})
    (telltale / "refuse-STATUS").touch()
    assert host.call("STATUS", conf) == {"status": 0}
    (telltale / "refuse-STATUS").unlink()
    plain = host.call("ADD", {**conf, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": None}}, uid="u9")
    assert plain["status"] == 0


def test_a_node_that_init_has_not_prepared_tries_again(host: Any) -> None:
    """Error 11 until <run>/init/ready is there; a pod without VFs does not wait for it."""
    assert host.call("ADD", host.conf(None, awaitInit=True))["status"] == 0
    host.record(FIRST)
    assert host.call("ADD", host.conf(awaitInit=True))["code"] == 11
    ready = host.layout.run / READY
    ready.parent.mkdir(exist_ok=True)
    ready.touch()
    assert host.call("ADD", host.conf(awaitInit=True))["status"] == 0
    ready.unlink()


def test_multus_has_one_delegate_a_network(host: Any) -> None:
    """No annotations, a CNI_IFNAME each; DEL of one leaves the other's VF in the pod, and what is left is checked."""
    host.record(RAIL0, RAIL1)
    conf = {name: value for name, value in host.conf().items() if name not in ("prevResult", "runtimeConfig")}
    rail0, rail1 = ({**conf, "name": name, "network": name} for name in ("rail0", "rail1"))
    first = host.call("ADD", rail0, ifname="net1")
    second = host.call("ADD", rail1, ifname="net2")
    assert [each["name"] for each in first["interfaces"]] == ["net1"]
    assert [each["name"] for each in second["interfaces"]] == ["rdma7"]
    assert host.call("CHECK", {**rail0, "prevResult": previous(host, first)}, ifname="net1") == {"status": 0}
    assert host.call("DEL", rail1, ifname="net2") == {"status": 0}
    assert "net1" in host.in_pod()
    assert [entry["attachment"]["network"] for entry in host.ledger().values()] == ["rail0"]
    assert host.call("CHECK", {**rail0, "prevResult": previous(host, first)}, ifname="net1") == {"status": 0}
    again = host.call("ADD", rail0, ifname="net3")
    assert (again["code"], "is already attached to this sandbox as interface 'net1'" in again["msg"]) == (100, True)
    assert "net1" in host.in_pod()
    assert host.call("ADD", {**conf, "network": "rail2"}, ifname="net4") == {"status": 0, "cniVersion": "1.0.0"}
    assert host.call("DEL", rail0, ifname="net1") == {"status": 0}
    assert host.ledger() == {}


def test_a_delegate_of_multus_may_have_two_vfs(host: Any) -> None:
    """Multus' names are those that we would give: the second VF has the next one."""
    host.record(RAIL0, {name: value for name, value in RAIL1.items() if name != "name"} | {"network": "rail0"})
    conf = {name: value for name, value in host.conf().items() if name not in ("prevResult", "runtimeConfig")}
    result = host.call("ADD", {**conf, "network": "rail0"}, ifname="net1")
    assert [each["name"] for each in result["interfaces"]] == ["net1", "net2"]


def test_a_mac_that_was_not_assigned_is_refused(host: Any) -> None:
    """The capability must equal the assignment: only the scheduler decides."""
    host.record(SECOND)
    before = host.everything()
    answer = host.call("ADD", host.conf(runtimeConfig={"mac": "02:00:00:00:00:11"}))
    assert (answer["code"], "the assignment of vf 0000:04:00.6 has '02:00:00:00:00:77'" in answer["msg"]) == (100, True)
    assert host.call("ADD", host.conf(runtimeConfig={"mac": "nonsense"}))["code"] == 7
    assert host.everything() == before
    assert host.call("ADD", host.conf(runtimeConfig={"mac": "02:00:00:00:00:77"}))["status"] == 0


@pytest.mark.parametrize(
    ("ipam", "asked", "given"),
    [
        ({"type": "static"}, "10.77.0.9/24", "10.77.0.9/24"),
        (None, "10.56.0.77", "10.56.0.77/16"),
    ],
)
def test_the_runtimes_addresses_reach_the_ipam_plugin(
    host: Any, ipam: dict[str, Any] | None, asked: str, given: str
) -> None:
    """The capability `ips`, in the ways in which static and host-local (None: the host's own) look for it."""
    host.record(FIRST)
    number = host.conf()["ipam"]["ranges"][0][0]["rangeStart"].split(".")[2]
    asked, given = (text.replace("10.56.0.", f"10.56.{number}.") for text in (asked, given))
    fields = {"ipam": ipam} if ipam is not None else {}
    assert host.call("ADD", host.conf(runtimeConfig={"ips": [asked]}, **fields))["status"] == 0
    assert host.vf_addresses() == {"net1": [given]}


def test_addresses_for_one_interface_are_not_given_to_two(host: Any) -> None:
    """The addresses could belong to any of the VFs: the request is refused, with nothing changed."""
    host.record(FIRST, SECOND)
    before = host.everything()
    answer = host.call("ADD", host.conf(runtimeConfig={"ips": ["10.56.0.77"]}))
    assert (answer["code"], "this call has 2 VFs" in answer["msg"]) == (7, True)
    assert host.everything() == before


def test_the_hosts_own_namespace_is_not_a_pod(host: Any) -> None:
    """A VF that never left would look like one that arrived."""
    host.record(FIRST)
    answer = host.call("ADD", netns=str(host.layout.netns))
    assert (answer["code"], "the host's own network namespace" in answer["msg"]) == (4, True)


def test_a_path_that_is_not_a_namespace_holds_nothing_up(host: Any, tmp_path: Path) -> None:
    """A read of a pipe without a writer would block this call, and every later call of the container."""
    host.record(FIRST)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answer = host.call("ADD", netns=str(pipe))
    assert (answer["code"], "cannot be entered" in answer["msg"]) == (4, True)


def test_show_puts_ledger_and_kernel_side_by_side(host: Any) -> None:
    """A table for people, and the same as JSON; drift and entries that cannot be read are marked."""
    assert show(host) == "no pod holds a VF\n"
    host.record(FIRST, SECOND)
    assert host.call("ADD")["status"] == 0
    header, first, second = show(host).splitlines()
    assert header.split() == ["VF", "PCI", "POD", "PHASE", "INTERFACE", "NETNS", "SETTINGS"]
    assert first.split()[:6] == ["enp4s0f0/1", "0000:04:00.3", "ns/u1", "held", "net1", "alive"]
    assert "max_tx_rate=20000" in first
    assert second.split()[4] == "rdma7"
    in_pod(host, "link", "set", "net1", "down")
    broken = host.layout.state / "vfs" / "0000:04:1f.0.json"
    broken.write_text("{")
    shown = show(host)
    assert "  ! vf 0000:04:00.3: interface 'net1' is down\n" in shown
    assert "  ! 0000:04:1f.0.json cannot be read: record" in shown
    document = json.loads(show(host, "-o", "json"))
    assert [vf["drift"] for vf in document["vfs"]] == [["vf 0000:04:00.3: interface 'net1' is down"], []]
    assert document["vfs"][0]["found"]["vlan"] == 7
    assert list(document["unreadable"]) == ["0000:04:1f.0.json"]
    broken.unlink()


def show(host: Any, *options: str) -> str:
    from devcluster.hosts.chain import composed_cni

    places = ("--state", host.layout.state, "--run", host.layout.run, "--sysfs", host.layout.sys)
    done = host.enter(*composed_cni(host.layout), "show", *map(str, places), *options)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)
