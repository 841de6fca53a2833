"""What a real kernel says of links and routes, in a network namespace of its own, and sysfs of vdpa devices."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooring.nic import host_facts, netlink_codec, rdma_netlink
from mooring.nic.host_facts import read_facts, read_vf
from mooring.nic.vf_users import Contexts, user_of

ASK = """
import json
from pathlib import Path
from mooring.nic.host_facts import read_facts
from mooring.nic.vf_users import uses_link
facts = read_facts(Path("/nowhere"), {}, [])
print(json.dumps({link.name: list(uses_link(link, facts)) for link in facts.links}))
"""


def uses(*commands: str, ask: str = ASK) -> Any:
    """Run commands of `ip` in a new namespace with links d0 and d1; return how each link there is used."""
    links = [f"link add d{n} type veth peer name p{n}" for n in (0, 1)]
    up = [f"link set {name} up" for name in ("p0", "p1", "d0", "d1")]
    script = "".join(f"ip {command} || exit 1\n" for command in (*links, *up, *commands)) + 'exec "$@"'
    program = (sys.executable, "-c", ask)
    done = subprocess.run(("unshare", "--net", "sh", "-c", script, "sh", *program), capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.root
def test_links_that_are_up_have_no_uses_of_their_own() -> None:
    """Each has a connected and a link-local route, and is the other end of a pair."""
    found = uses("address add 10.0.0.1/24 dev d0", "address add 2001:db8::1/64 dev d0")
    assert set(map(tuple, found.values())) == {()}


@pytest.mark.root
def test_links_above_are_found() -> None:
    found = uses(
        "link add br0 type bridge",
        "link set d0 master br0",
        "link add link d1 name d1.7 type macvlan",
    )
    assert (found["d0"], found["d1"], found["br0"]) == (["port of br0"], ["macvlan d1.7"], [])


@pytest.mark.root
def test_routes_are_read_with_metric_table_and_every_hop() -> None:
    found = uses(
        "address add 10.0.0.1/24 dev d0",
        "address add 10.1.0.1/24 dev d1",
        "route add default via 10.0.0.2 metric 100",
        "route add default via 10.1.0.2 metric 200",
        "route add default via 10.1.0.2 table 1000",
        "route add 10.9.0.0/16 nexthop via 10.0.0.2 nexthop via 10.1.0.2",
        "route add blackhole 10.8.0.0/16",
        "-6 route add default via fe80::1 dev d1 metric 1024",
    )
    assert found["d0"] == ["IPv4 default route", "route to 10.9.0.0/16"]
    assert sorted(found["d1"]) == ["IPv4 default route of table 1000", "IPv6 default route", "route to 10.9.0.0/16"]


@pytest.mark.root
@pytest.mark.parametrize("compat", [0, 1])
def test_routes_by_next_hop_objects_are_read(compat: int) -> None:
    """Routing daemons make them; the kernel lists the hops in the route itself only if its sysctl says so."""
    found = uses(
        "address add 10.0.0.1/24 dev d0",
        "address add 10.1.0.1/24 dev d1",
        "nexthop add id 1 via 10.0.0.2 dev d0",
        "nexthop add id 2 via 10.1.0.2 dev d1",
        "nexthop add id 3 group 1/2",
        f"link set lo up && echo {compat} > /proc/sys/net/ipv4/nexthop_compat_mode",
        "route add default nhid 1",
        "route add 10.9.0.0/16 nhid 3",
        "-6 nexthop add id 4 via fe80::1 dev d0",
        "-6 route add 2001:db8::/32 nhid 4",
    )
    assert sorted(found["d0"]) == ["IPv4 default route", "route to 10.9.0.0/16", "route to 2001:db8::/32"]
    assert found["d1"] == ["route to 10.9.0.0/16"]


@pytest.mark.root
def test_a_route_for_some_traffic_does_not_carry_the_rest() -> None:
    found = uses(
        "address add 10.0.0.1/24 dev d0",
        "address add 10.1.0.1/24 dev d1",
        "route add default via 10.0.0.2 metric 100",
        "route add default via 10.1.0.2 tos 0x10 metric 5",
        "-6 route add default via fe80::1 dev d0 metric 100",
        "-6 route add default from 2001:db8::/32 via fe80::1 dev d1 metric 5",
    )
    assert (found["d0"], found["d1"]) == (["IPv4 default route", "IPv6 default route"],) * 2


ASK_OF_VFS = """
import json, socket
from pathlib import Path
from mooring.nic.host_facts import read_facts
from mooring.nic.vf_users import VfDevices, user_of
vfs = [VfDevices(f"0000:04:00.{n}", netdevs=((f"d{n}", socket.if_nametoindex(f"d{n}")),)) for n in (0, 1)]
facts = read_facts(Path("/nowhere"), {}, vfs)
print(json.dumps([user_of(vf, facts) for vf in vfs]))
"""


@pytest.mark.root
def test_a_macvlan_in_another_namespace_is_found() -> None:
    """Multus and Docker make one for a container. A netdev's own addresses and groups do not count."""
    other = "mooring-nic-other"
    subprocess.run(("ip", "netns", "add", other), check=True)
    try:
        found = uses(
            "address add 192.0.2.1/24 dev d1",
            "address add 2001:db8::1/64 dev d1",
            "link add link d0 name mv address 02:00:00:00:00:07 type macvlan",
            f"link set mv netns {other}",
            f"-n {other} link set mv up",
            ask=ASK_OF_VFS,
        )
    finally:
        subprocess.run(("ip", "netns", "delete", other), check=True)
    use = "link in another namespace with address 02:00:00:00:00:07"
    assert found == [f"the host uses d0 ({use})", None]


def test_vdpa_devices_are_found_below_their_function(tmp_path: Path) -> None:
    """mlx5_vdpa_dev_add of Linux 6.12 makes the VF's PCI function their parent; `vdpa dev add` gives any name."""
    function = tmp_path / "devices/pci0000:00/0000:04:00.3"
    (function / "vhost7").mkdir(parents=True)
    for kind, name, target in (("pci", "0000:04:00.3", function), ("vdpa", "vhost7", function / "vhost7")):
        folder = tmp_path / f"bus/{kind}/devices"
        folder.mkdir(parents=True)
        (folder / name).symlink_to(target)
    facts = read_facts(tmp_path, {}, [read_vf(tmp_path, "0000:04:00.3")])
    assert facts.vdpa["0000:04:00.3"] == ("vhost7",)


PCI = "0000:04:00.3"


@pytest.fixture
def vf(tmp_path: Path) -> Path:
    """A VF with one netdev of index 8 and one RDMA device."""
    folder = tmp_path / "bus/pci/devices" / PCI
    (folder / "net/vf8").mkdir(parents=True)
    (folder / "net/vf8/ifindex").write_text("8\n")
    (folder / "infiniband/rx2").mkdir(parents=True)
    return folder


def rename(device: Path) -> None:
    """Give a VF's device, whose folder this was, udev's name."""
    if device.exists():
        device.rename(device.parent / "by_udev")


def lists_of_links(names: Callable[[], str]) -> Callable[..., list[bytes]]:
    """Return the kernel's lists: the VF's netdev by these names, a port of a bond, as before Linux 5.14; no routes."""

    def dump(kind: int, *_: object) -> list[bytes]:
        if kind != 18:
            return []
        attributes = {3: names().encode() + b"\0", 10: struct.pack("=I", 9)}
        return [struct.pack("=BxHiII", 0, 1, 8, 0, 0) + netlink_codec.pack_attributes(attributes.items())]

    return dump


def lists_of_devices(names: Iterator[str]) -> Callable[..., list[list[netlink_codec.Attribute]]]:
    """Return the kernel's lists of RDMA devices: of one that nobody has open, by these names."""

    def exchange(*_: object, dump: bool) -> list[list[netlink_codec.Attribute]]:
        return [[(rdma_netlink.DEV_INDEX, netlink_codec.u32(5)), (rdma_netlink.DEV_NAME, f"{next(names)}\0".encode())]]

    return exchange


@pytest.mark.parametrize("when", ["before the list", "after it", "never"])
def test_a_netdev_that_is_renamed_is_still_the_vfs(
    tmp_path: Path, vf: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A kernel that reports no parent has only name and index. Another link with that index is none of the VF's."""

    def names() -> str:
        if when != "never":
            rename(vf / "net/vf8")
        return {"before the list": "by_udev", "after it": "vf8", "never": "eth9"}[when]

    monkeypatch.setattr(host_facts, "dump", lists_of_links(names))
    monkeypatch.setattr(rdma_netlink, "exchange", lists_of_devices(iter(["rx2"])))
    found = read_vf(tmp_path, PCI)
    user = user_of(found, read_facts(tmp_path, {}, [found]))
    assert bool(user) == (when != "never"), user


def test_an_rdma_device_that_is_renamed_before_the_list_is_looked_up_again(
    tmp_path: Path, vf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its users are known then, and the VF is nobody's."""

    def names() -> Iterator[str]:
        rename(vf / "infiniband/rx2")
        yield from ("by_udev", "by_udev")

    monkeypatch.setattr(rdma_netlink, "exchange", lists_of_devices(names()))
    found = read_vf(tmp_path, PCI)
    facts = read_facts(tmp_path, {}, [found])
    assert (found.rdma, facts.contexts, user_of(found, facts)) == (("rx2",), {PCI: (Contexts("by_udev"),)}, None)


def test_a_list_may_lack_an_rdma_device_once(tmp_path: Path, vf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel leaves one out while another one leaves the namespace."""
    monkeypatch.setattr(rdma_netlink, "exchange", lists_of_devices(iter(["other", "rx2"])))
    assert read_facts(tmp_path, {}, [read_vf(tmp_path, PCI)]).contexts == {PCI: (Contexts("rx2"),)}


@pytest.mark.parametrize("leaves", [True, False])
def test_an_rdma_device_that_leaves_or_is_never_listed_is_not_known(
    tmp_path: Path, vf: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    found = read_vf(tmp_path, PCI)
    if leaves:
        (vf / "infiniband/rx2").rmdir()
    monkeypatch.setattr(rdma_netlink, "exchange", lists_of_devices(iter(["other"] * (1 if leaves else 99))))
    user = user_of(found, read_facts(tmp_path, {}, [found]))
    assert user == "the kernel does not report who uses its RDMA device rx2"
