"""What a pod leaves on a VF's netdev, or what happened to its name meanwhile, keeps neither the VF nor the next pod."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devcluster.hosts.chain import composed_cni

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

ROOT = Path(__file__).parents[4]
FIRST = {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3"}
OWN, TEMPORARY = "enp4s0f0v1", "mo0-0403"


def traits(host: Any, name: str) -> tuple[bool, bool, int]:
    """Return whether a link of the host is promiscuous, whether it answers ARP, and how long its queue is."""
    (link,) = json.loads(host.enter("ip", "-j", "link", "show", name).stdout)
    return "PROMISC" in link["flags"], "NOARP" in link["flags"], link["txqlen"]


def test_flags_and_queue_that_a_pod_changed_are_put_back(host: Any) -> None:
    """The pod left it promiscuous, without ARP, with a short queue: the next pod gets none of these."""
    before = traits(host, OWN)
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    inside = ("ip", "-n", host.pod, "link", "set", "net1", "promisc", "on", "arp", "off", "txqueuelen", "7")
    subprocess.run(inside, check=True)
    assert host.call("DEL") == {"status": 0}
    assert traits(host, OWN) == before == (False, False, before[2])


def state(host: Any, name: str = OWN) -> dict[str, str]:
    """Return what can be read of a link of the host beside its flags, by kind."""
    imports = "import json; from cni.kernel import netlink; from cni.kernel.netdev import netdev_state"
    program = f"{imports}; print(json.dumps(netdev_state.read(netlink.index_of({name!r}))))"
    shown = host.enter(sys.executable, "-c", program, cwd=ROOT)
    found: dict[str, str] = json.loads(shown.stdout)
    return found


def in_pod(host: Any, *command: str) -> None:
    inside = ("nsenter", f"--net=/run/netns/{host.pod}", *command)
    subprocess.run(inside, check=True, cwd=ROOT, capture_output=True)


def test_what_a_pod_set_and_attached_is_not_the_next_pods(host: Any) -> None:
    """Generic XDP that drops every frame, offloads, alias, group and limits of GSO: none of them ends with a move."""
    before = state(host)
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    in_pod(host, sys.executable, "-m", "tests.support.bpf_programs", "xdp", "net1")
    in_pod(host, "ethtool", "-K", "net1", "tso", "off", "gso", "off", "rxvlan", "off")
    in_pod(
        host, "ip", "link", "set", "net1", "alias", "theirs", "group", "7", "gso_max_size", "3000", "mode", "dormant"
    )
    assert host.call("DEL") == {"status": 0}
    assert state(host) == before
    assert (before["xdp"], before["alias"], before["group"]) == ("", "", "00000000")


def test_what_the_host_had_set_stays_set(host: Any) -> None:
    """An operator's own choice is what a VF comes back with; the pod had undone it."""
    host.enter("ethtool", "-K", OWN, "tso", "off")
    host.enter("ip", "link", "set", OWN, "alias", "ours")
    before = state(host)
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    in_pod(host, "ethtool", "-K", "net1", "tso", "on")
    in_pod(host, "ip", "link", "set", "net1", "alias", "")
    assert host.call("DEL") == {"status": 0}
    assert state(host) == before
    assert before["alias"] == b"ours".hex()
    host.enter("ethtool", "-K", OWN, "tso", "on")
    host.enter("ip", "link", "set", OWN, "alias", "")


def test_an_altname_of_any_bytes_keeps_no_vf(host: Any) -> None:
    """The kernel takes names that are no UTF-8 from a container with NET_ADMIN; the next pod finds none of them."""
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    inside = (b"ip", b"-n", host.pod.encode(), b"link", b"property", b"add", b"dev", b"net1", b"altname", b"a\xff\xfe")
    subprocess.run(inside, check=True)
    assert host.call("DEL") == {"status": 0}
    (link,) = json.loads(host.enter("ip", "-j", "link", "show", OWN).stdout)
    assert "altnames" not in link
    assert host.ledger() == {}


def test_a_promiscuous_netdev_of_the_hosts_own_making_stays_one(host: Any) -> None:
    """DEL restores the flags that the netdev had before the pod."""
    host.enter("ip", "link", "set", OWN, "promisc", "on", "txqueuelen", "77")
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    subprocess.run(("ip", "-n", host.pod, "link", "set", "net1", "promisc", "off", "txqueuelen", "7"), check=True)
    assert host.call("DEL") == {"status": 0}
    assert traits(host, OWN) == (True, False, 77)
    host.enter("ip", "link", "set", OWN, "promisc", "off", "txqueuelen", "1000")


def test_a_vf_whose_name_is_taken_is_given_back_under_ours_and_shown(host: Any) -> None:
    """DEL succeeds, the log and `show` report it, the next pod gets the VF; its name comes back by hand."""
    host.record(FIRST)
    with host.served():
        assert host.call("ADD")["status"] == 0
        host.enter("ip", "link", "add", OWN, "type", "bridge")
        assert host.call("DEL") == {"status": 0}
        (told,) = [line for line in host.log() if line["event"] == "another link has the vf's name now"]
        assert (told["pci"], told["wanted"], told["name"]) == (FIRST["pci"], OWN, TEMPORARY)
        assert host.ledger() == {}
        assert host.call("ADD")["status"] == 0
        assert host.call("DEL") == {"status": 0}
    state = ("--state", str(host.layout.state), "--sysfs", str(host.layout.sys))
    shown = host.enter(*composed_cni(host.layout), "show", *state).stdout
    assert shown.splitlines()[-1].startswith(f"  ! {TEMPORARY} still has its temporary name")
    host.enter("ip", "link", "delete", OWN)
    host.enter("ip", "link", "set", TEMPORARY, "name", OWN)
