"""Simulated hosts' links on the machine's own kernel: they carry traffic, and sysfs follows them."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devcluster.hosts import sysfs
from devcluster.hosts.layout import Layout
from devcluster.hosts.links import (
    LinkError,
    fabric_path,
    make_fabric,
    make_links,
    make_netns,
    remove_links,
    remove_netns,
)
from devcluster.hosts.nic import Host, describe_host
from devcluster.hosts.sync import Sync
from tests.support.polling import wait_until

pytestmark = pytest.mark.root


def ip(netns: str, *words: str) -> str:
    done = subprocess.run(["ip", "-n", netns, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Cluster:
    """Two hosts of this test alone, and pods' namespaces that end with it."""

    root: Path
    hosts: tuple[Host, ...]
    pods: list[str] = field(default_factory=list)

    def layout(self, index: int = 0) -> Layout:
        return Layout.at(self.root, self.hosts[index].name)

    def netns(self, index: int = 0) -> str:
        return self.layout(index).netns.name

    def pod(self) -> str:
        name = f"mooring-test-{os.getpid()}-pod{len(self.pods)}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.pods.append(name)
        return name

    def end(self, pod: str) -> None:
        subprocess.run(["ip", "netns", "del", pod], check=True)
        self.pods.remove(pod)

    def end_all(self) -> None:
        for pod in list(self.pods):
            self.end(pod)

    def shown(self, pci: str) -> list[str]:
        """The netdevs that the first host's sysfs shows below a PCI function, each in class/net too."""
        sys = self.layout().sys
        found = sorted(path.name for path in (sys / "bus/pci/devices" / pci / "net").iterdir())
        return [name for name in found if _function_of(sys / "class/net" / name) == pci]


def _function_of(in_class: Path) -> str | None:
    """Return the PCI function that a link of class/net leads to; None if it is gone, perhaps since the folder was read.

    `Path.resolve` looks whether there is a link and then reads it, and raises for one that goes away in between.
    """
    try:
        return in_class.readlink().parent.parent.name
    except FileNotFoundError:
        return None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, tuple(describe_host(f"test-{os.getpid()}-{n}", n, vfs=3) for n in (1, 2)))
    fabric = fabric_path(tmp_path, made.hosts)
    with contextlib.ExitStack() as undo:
        undo.enter_context(make_fabric(fabric, made.hosts))
        undo.callback(remove_netns, fabric)
        for index, host in enumerate(made.hosts):
            undo.enter_context(make_links(host, made.layout(index), fabric))
            undo.callback(remove_links, host, made.layout(index))
            sysfs.build(made.layout(index).sys, host)
        undo.callback(made.end_all)
        yield made


@pytest.fixture
def synced(cluster: Cluster) -> Iterator[Cluster]:
    """The first host's tree follows its links while the test runs."""
    sync = Sync(cluster.hosts[0], cluster.layout())
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(0.002):
            sync.catch_up()

    thread = threading.Thread(target=follow)
    thread.start()
    yield cluster
    ended.set()
    thread.join()
    sync.close()


def test_vfs_of_one_network_reach_each_other(cluster: Cluster) -> None:
    """Two VFs of one PF, and two of different hosts on the same network, exchange packets; other networks do not."""
    places = [("a", 0, "enp4s0f0v0"), ("b", 0, "enp4s0f0v1"), ("c", 1, "enp4s0f0v0"), ("d", 1, "enp4s0f1v0")]
    pods = {}
    for number, (pod, host, netdev) in enumerate(places, start=1):
        pods[pod] = cluster.pod()
        ip(cluster.netns(host), "link", "set", netdev, "netns", pods[pod])
        ip(pods[pod], "addr", "add", f"10.9.0.{number}/24", "dev", netdev)
        ip(pods[pod], "link", "set", netdev, "up")

    def is_reached(number: int) -> bool:
        command = ["ip", "netns", "exec", pods["a"], "python3", "-c", _KNOCK, f"10.9.0.{number}"]
        return subprocess.run(command, check=False).returncode == 0

    # A link may take a second until it carries packets.
    wait_until(lambda: is_reached(2) and is_reached(3))
    assert not is_reached(4)


# A refused connection is an answer: the packets went there and back.
_KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=1)
except ConnectionRefusedError:
    sys.exit(0)
except OSError:
    sys.exit(1)
"""


def test_a_pf_is_up_and_a_vf_is_closed(cluster: Cluster) -> None:
    """Fresh links are as after a boot: PFs with carrier, VFs closed with their own addresses."""
    assert "state UP" in ip(cluster.netns(), "link", "show", "enp4s0f1")
    vf = ip(cluster.netns(), "link", "show", "enp4s0f1v2")
    assert "state DOWN" in vf
    assert "02:00:01:01:00:02" in vf


def test_a_second_cluster_with_the_same_node_is_refused(cluster: Cluster) -> None:
    """A namespace that a process holds is never taken over, and the refusal leaves it whole."""
    with pytest.raises(LinkError, match="end that first"):
        make_links(cluster.hosts[0], cluster.layout(), fabric_path(cluster.root, cluster.hosts))
    assert "enp4s0f1v2" in ip(cluster.netns(), "link", "show")


def test_a_namespace_that_a_killed_cluster_left_is_replaced(tmp_path: Path) -> None:
    """No process holds the namespace, so the kernel removes it with its contents."""
    path = Layout.at(tmp_path, f"test-{os.getpid()}-stale").netns
    try:
        make_netns(path).close()
        ip(path.name, "link", "add", "old", "type", "bridge")
        make_netns(path).close()
        assert "old" not in ip(path.name, "link", "show")
    finally:
        remove_netns(path)


def test_sysfs_follows_a_rename(synced: Cluster) -> None:
    """A netdev is shown under its present name."""
    ip(synced.netns(), "link", "set", "enp4s0f0v0", "name", "spare")
    wait_until(lambda: synced.shown("0000:04:00.2") == ["spare"])
    assert (synced.layout().sys / "class/net/spare/device").resolve().name == "0000:04:00.2"


def test_sysfs_follows_a_move_into_a_pod_and_back(synced: Cluster) -> None:
    """Away, the VF shows no netdev; back, it shows the one it has, renamed in the pod or not."""
    pod = synced.pod()
    ip(synced.netns(), "link", "set", "enp4s0f0v1", "netns", pod)
    wait_until(lambda: synced.shown("0000:04:00.3") == [])
    ip(pod, "link", "set", "enp4s0f0v1", "name", "net1")
    ip(pod, "link", "set", "net1", "netns", f"/run/netns/{synced.netns()}")
    wait_until(lambda: synced.shown("0000:04:00.3") == ["net1"])


def test_a_vf_comes_back_from_a_dead_namespace_under_its_pod_name(synced: Cluster) -> None:
    """It has the same MAC, MTU and altname, is closed, and keeps its name from the pod, as with the kernel."""
    pod = synced.pod()
    ip(synced.netns(), "link", "set", "enp4s0f1v0", "netns", pod)
    ip(pod, "link", "set", "enp4s0f1v0", "name", "net7")
    ip(pod, "link", "set", "net7", "address", "02:aa:bb:cc:dd:ee", "mtu", "1400")
    ip(pod, "link", "property", "add", "dev", "net7", "altname", "rail")
    ip(pod, "link", "set", "net7", "up")
    synced.end(pod)
    wait_until(lambda: synced.shown("0000:04:00.5") == ["net7"])
    back = ip(synced.netns(), "link", "show", "net7")
    assert "state DOWN" in back
    assert "02:aa:bb:cc:dd:ee" in back
    assert "mtu 1400" in back
    assert "altname rail" in back
    ip(synced.netns(), "link", "set", "net7", "up")
    wait_until(lambda: "LOWER_UP" in ip(synced.netns(), "link", "show", "net7"))


def test_two_vfs_with_one_pod_name_come_back_apart(synced: Cluster) -> None:
    """Where the name is taken the kernel calls the netdev dev<ifindex>; every VF is back in any case."""
    pods = [synced.pod(), synced.pod()]
    indexes = []
    for vf, pod in enumerate(pods):
        ip(synced.netns(), "link", "set", f"enp4s0f0v{vf}", "netns", pod)
        ip(pod, "link", "set", f"enp4s0f0v{vf}", "name", "net1")
        indexes.append(ip(pod, "-o", "link", "show", "net1").split(":")[0])
    synced.end(pods[0])
    wait_until(lambda: synced.shown("0000:04:00.2") == ["net1"])
    synced.end(pods[1])
    wait_until(lambda: synced.shown("0000:04:00.3") == [f"dev{indexes[1]}"])


def test_many_vfs_of_one_pod_come_back(synced: Cluster) -> None:
    """All VFs of a host die in one namespace and all return."""
    pod = synced.pod()
    functions = [each for each in synced.hosts[0].functions() if each.vf is not None]
    for each in functions:
        ip(synced.netns(), "link", "set", each.netdev, "netns", pod)
    wait_until(lambda: all(synced.shown(each.pci) == [] for each in functions))
    synced.end(pod)
    wait_until(lambda: all(synced.shown(each.pci) == [each.netdev] for each in functions))


def test_a_pf_that_goes_down_shows_it(synced: Cluster) -> None:
    """operstate, speed and the RDMA port follow the PF's administrative state."""
    pf = synced.layout().sys / "class/net/enp4s0f0"
    ip(synced.netns(), "link", "set", "enp4s0f0", "down")
    wait_until(lambda: (pf / "operstate").read_text() == "down\n" and not (pf / "speed").exists())
    wait_until(lambda: (pf / "device/infiniband/mlx5_0/ports/1/state").read_text() == "1: DOWN\n")
    ip(synced.netns(), "link", "set", "enp4s0f0", "up")
    wait_until(lambda: (pf / "operstate").read_text() == "up\n")


def test_a_sync_that_starts_late_finds_a_vf_in_its_pod(cluster: Cluster) -> None:
    """Started again while a VF is away, it shows nothing there, knows the pod's name for it, and gives it back."""
    pod = cluster.pod()
    ip(cluster.netns(), "link", "set", "enp4s0f0v0", "netns", pod)
    ip(pod, "link", "set", "enp4s0f0v0", "name", "net3")
    sync = Sync(cluster.hosts[0], cluster.layout())
    try:
        assert cluster.shown("0000:04:00.2") == []
        cluster.end(pod)

        def back() -> bool:
            sync.catch_up()
            return cluster.shown("0000:04:00.2") == ["net3"]

        wait_until(back)
    finally:
        sync.close()


def test_no_pod_namespace_is_kept_alive(synced: Cluster) -> None:
    """A namespace with a VF in it ends when its last user does: the watcher has no hold on it."""
    pod = synced.pod()
    ip(synced.netns(), "link", "add", "witness", "type", "veth", "peer", "name", "w1", "netns", pod)
    ip(synced.netns(), "link", "set", "enp4s0f0v2", "netns", pod)
    wait_until(lambda: synced.shown("0000:04:00.4") == [])
    synced.end(pod)
    wait_until(lambda: "witness" not in ip(synced.netns(), "link", "show"))
