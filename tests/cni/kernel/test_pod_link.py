"""Addresses, routes and announcements in real namespaces, seen by a neighbour on the same network."""

import json
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from cni.kernel import netns, pod_link
from cni.spec.result import Address
from tests.support.polling import wait_until
from tests.support.proc_files import open_files

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]
FIRST = {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3"}
SECOND = {"pf": "enp4s0f0", "vf": 2, "pci": "0000:04:00.4"}
OTHER_PF = {"pf": "enp4s0f1", "vf": 0, "pci": "0000:04:00.6"}
PEER4, PEER6, PEER_MAC = "10.77.0.250", "fd77::fa", "02:00:00:00:77:fa"
_PATIENCE_S = 20.0


@dataclass
class Neighbour:
    """A machine on the VFs' network: it sees every frame that reaches it, and can resolve an address."""

    netns: str
    wire: socket.socket
    seen: list[bytes] = field(default_factory=list)

    def look(self) -> list[bytes]:
        while True:
            try:
                self.seen.append(self.wire.recv(2048))
            except BlockingIOError:
                return self.seen

    def senders(self, source: str) -> set[str]:
        """Return the MACs from which IP packets with this source came."""
        packed = ip_address(source).packed
        at, kind = (26, b"\x08\x00") if len(packed) == 4 else (22, b"\x86\xdd")
        mine = (one for one in self.look() if one[12:14] == kind and one[at : at + len(packed)] == packed)
        return {one[6:12].hex(":") for one in mine}

    def ask(self, address: str) -> None:
        own = bytes.fromhex(PEER_MAC.replace(":", ""))
        request = struct.pack("!6s6sH", b"\xff" * 6, own, 0x0806)
        sender, target = ip_address(PEER4).packed, ip_address(address).packed
        self.wire.send(request + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, own, sender, bytes(6), target))

    def answers(self, address: str) -> list[str]:
        """Return the MACs that answered for an address, each as often as it did."""
        packed = ip_address(address).packed
        return [
            one[22:28].hex(":")
            for one in self.look()
            if one[12:14] == b"\x08\x06" and one[20:22] == b"\x00\x02" and one[28:32] == packed
        ]


@pytest.fixture
def neighbour(host: Any) -> Iterator[Neighbour]:
    """A port of the PF's switch with an address of the VFs' subnet, in a namespace of its own."""
    name = "mooring-cni-peer"
    path = f"/run/netns/{name}"
    subprocess.run(("ip", "netns", "add", name), check=True)
    make = f"ip link add t_peer master enp4s0f0 up type veth peer name peer0 address {PEER_MAC} netns {name}"
    assert host.enter("sh", "-c", make).returncode == 0
    lines = ("link set peer0 up", f"addr add {PEER4}/24 dev peer0", f"addr add {PEER6}/64 dev peer0 nodad")
    for line in lines:
        subprocess.run(("ip", "-n", name, *line.split()), check=True)

    def wire() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        opened.bind(("peer0", 0))
        opened.setblocking(False)
        return opened

    with netns.run_in(path, wire) as opened:
        yield Neighbour(path, opened)
    subprocess.run(("ip", "netns", "delete", name), check=True)
    host.enter("ip", "link", "delete", "t_peer")


def shared_subnet(host: Any, folder: str = "shared", **fields: object) -> dict[str, Any]:
    """A configuration that gives each VF an address of each family, all of the same two subnets."""
    ranges = [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]]
    ipam = {"type": "host-local", "ranges": ranges, "dataDir": str(host.layout.ipam / folder)}
    return dict(host.conf(ipam=ipam, **fields))


def in_pod(host: Any, *command: str) -> Any:
    shown = subprocess.run(("ip", "-n", host.pod, "-j", *command), capture_output=True, text=True, check=True).stdout
    return json.loads(shown or "[]")


def of(host: Any, result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, MAC and address, without its prefix length, of each address that the pod's VFs got by a call."""
    macs = {interface["name"]: interface.get("mac") for interface in result["interfaces"]}
    vfs = host.vf_addresses().items()
    return [(name, macs[name], address.split("/")[0]) for name, addresses in vfs for address in addresses]


def send(host: Any, source: str, to: str) -> None:
    def packet() -> None:
        family = socket.AF_INET6 if ":" in source else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as udp:
            udp.bind((source, 0))
            udp.sendto(b"x", (to, 9))

    netns.run_in(f"/run/netns/{host.pod}", packet)


def test_two_vfs_in_one_subnet_each_speak_for_themselves(host: Any, neighbour: Neighbour) -> None:
    """Packets from an address leave by its own link, and only that link answers for it, IPv4 and IPv6."""
    host.record(FIRST, SECOND)
    result = host.call("ADD", shared_subnet(host))
    assert result["status"] == 0, result
    found = of(host, result)
    assert len(found) == 4
    for _, mac, address in found:
        send(host, address, PEER6 if ":" in address else PEER4)
        wait_until(lambda address=address: bool(neighbour.senders(address)))  # type: ignore[misc]
        assert neighbour.senders(address) == {mac}
    for _, mac, address in found:
        if ":" not in address:
            neighbour.ask(address)
            wait_until(lambda address=address: bool(neighbour.answers(address)))  # type: ignore[misc]
            # A second link would have answered before this third packet comes through: the switch keeps their order.
            neighbour.ask(address)
            wait_until(lambda address=address, mac=mac: neighbour.answers(address).count(mac) == 2)  # type: ignore[misc]
            assert set(neighbour.answers(address)) == {mac}


def test_without_policy_routing_the_kernel_mixes_them_up(host: Any, neighbour: Neighbour) -> None:
    """Without the option one link sends for both addresses, which is why it is on by default."""
    host.record(FIRST, SECOND)
    found = of(host, host.call("ADD", shared_subnet(host, policyRouting=False)))
    addresses = [address for _, _, address in found if ":" not in address]
    for address in addresses:
        send(host, address, PEER4)
        wait_until(lambda address=address: bool(neighbour.senders(address)))  # type: ignore[misc]
    assert len(set().union(*(neighbour.senders(address) for address in addresses))) == 1


def test_addresses_are_announced_to_the_neighbours(host: Any, neighbour: Neighbour) -> None:
    """Gratuitous ARP and an unsolicited neighbour advertisement: a neighbour replaces the MAC that it cached."""
    stale = ("neigh", "replace", "10.77.0.2", "lladdr", "02:00:00:00:00:01", "nud", "stale", "dev", "peer0")
    subprocess.run(("ip", "-n", "mooring-cni-peer", *stale), check=True)
    host.record(FIRST)
    (_, mac, four), (_, _, six) = of(host, host.call("ADD", shared_subnet(host, "announced")))
    assert four == "10.77.0.2"
    arp = bytes.fromhex(mac.replace(":", "")) + ip_address(four).packed + bytes(6) + ip_address(four).packed
    wait_until(lambda: any(one[12:14] == b"\x08\x06" and one[22:42] == arp for one in neighbour.look()))
    advertised = (one for one in neighbour.look() if one[12:14] == b"\x86\xdd" and one[54] == 136)
    assert [one[62:78] for one in advertised] == [ip_address(six).packed]

    def known() -> str | None:
        shown = subprocess.run(
            ("ip", "-n", "mooring-cni-peer", "-j", "neigh", "show", four), capture_output=True, check=True
        )
        return next((entry.get("lladdr") for entry in json.loads(shown.stdout or "[]")), None)

    wait_until(lambda: known() == mac)


def test_del_out_of_a_live_namespace_takes_rules_and_tables_along(host: Any) -> None:
    """The pod's namespace is as it was before ADD: rules, routes of every table."""
    before = [in_pod(host, *what) for what in (("rule",), ("-6", "rule"), ("route", "show", "table", "all"))]
    host.record(FIRST, SECOND)
    assert host.call("ADD", shared_subnet(host))["status"] == 0
    assert len(in_pod(host, "rule")) == len(before[0]) + 2
    assert len(in_pod(host, "-6", "rule")) == len(before[1]) + 2
    assert host.call("DEL") == {"status": 0}
    assert [in_pod(host, *what) for what in (("rule",), ("-6", "rule"), ("route", "show", "table", "all"))] == before


def test_routes_are_applied_and_one_default_is_left(host: Any) -> None:
    """The main plugin sets the first VF's default route, and the network's own routes beside it."""
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "10.200.0.0/16"}]
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": routes}
    ipam["dataDir"] = str(host.layout.ipam / "routed")
    own = {"default": {"routes": [{"dst": "10.201.0.0/16", "gw": "10.77.0.9"}]}}
    conf = host.conf(ipam=ipam, networks=own)
    del conf["prevResult"]
    host.record(FIRST, OTHER_PF)
    result = host.call("ADD", conf)
    assert result["status"] == 0, result
    expected = {("0.0.0.0/0", None), ("10.200.0.0/16", None), ("10.201.0.0/16", "10.77.0.9")}
    assert {(route["dst"], route.get("gw")) for route in result["routes"]} == expected
    made = [route["dst"] for route in in_pod(host, "route") if route["dev"] == "eth0"]
    assert [route["dst"] for route in in_pod(host, "route")].count("default") == 1
    assert {"default", "10.200.0.0/16", "10.201.0.0/16"} <= set(made)


SLOW = """\
#!/bin/sh
# An IPAM plugin that answers ADD only when it is let: it outlives whoever called it.
echo "$CNI_COMMAND begins" >>{folder}/log
while [ "$CNI_COMMAND" = ADD ] && [ ! -e {folder}/go ]; do sleep 0.01; done
/usr/lib/cni/host-local
status=$?
echo "$CNI_COMMAND ends" >>{folder}/log
exit $status
"""


def said(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("served", [False, True])
def test_an_address_that_a_killed_adds_plugin_gives_later_is_given_back(
    host: Any, tmp_path: Path, served: bool
) -> None:
    """kill -9 while the IPAM plugin runs: DEL waits for the orphan, then frees the addresses that no caller read."""
    before = host.everything()
    plugin = host.layout.cni_bin / "slow-local"
    plugin.write_text(SLOW.format(folder=tmp_path))
    plugin.chmod(0o755)
    conf = host.conf()
    conf["ipam"] = {**conf["ipam"], "type": "slow-local"}
    host.record(FIRST)
    if served:
        kill_server_in_the_middle(host, conf, tmp_path)
    else:
        adding = host.begin("ADD", conf)
        wait_until(lambda: said(tmp_path) == ["ADD begins"])
        adding.send_signal(signal.SIGKILL)
        adding.wait()
    deleting = host.begin("DEL", conf)
    wait_until(lambda: "enp4s0f0v1" in host.links())
    # The lock that the orphan holds is open: DEL has come to it.
    wait_until(lambda: any(name.endswith(".ipam") for name in open_files(deleting.pid)))
    assert said(tmp_path) == ["ADD begins"]
    (tmp_path / "go").touch()
    assert deleting.wait(90) == 0
    assert said(tmp_path) == ["ADD begins", "ADD ends", "DEL begins", "DEL ends"]
    assert host.everything() == before
    plugin.unlink()


def kill_server_in_the_middle(host: Any, conf: dict[str, Any], folder: Path) -> None:
    with host.served() as server:
        adding = host.begin("ADD", conf)
        wait_until(lambda: said(folder) == ["ADD begins"])
        server.kill()
        server.wait()
        assert adding.wait(90) == 1


def test_an_announcement_that_cannot_be_made_fails_nothing() -> None:
    """A link that has gone, a link other than Ethernet, an address of the other family: no announcement is sent."""
    began = time.monotonic()
    pod_link.announce({"mo-gone0": [Address("10.77.0.9/24")], "lo": [Address("10.77.0.9/24"), Address("fd00::9/64")]})
    assert time.monotonic() - began < 30
