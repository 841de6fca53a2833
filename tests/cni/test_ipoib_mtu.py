"""The MTU of a VF whose netdev the kernel makes again while its RDMA device moves: real links, a stand-in for RDMA."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni.kernel import netlink, netns, rdma
from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.network import NetworkConf
from cni.spec.result import AttachedVf
from cni.spec.skel import NIC_REFUSAL, Call, CniError
from cni.vf.attach.move_in import PendingAttachment, move_all_in
from cni.vf.ledger import Ledger
from cni.vf.node import Node, temporary_name
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.pod_record import PodRecord

VF = AssignedVf("ib0", 0, "0000:3b:01.0", "infiniband", "default")
RECORD = PodRecord("ns/p", Assignment("u1", "n1", (VF,)))
HOST, POD = "/run/netns/mooring-ib-host", "/run/netns/mooring-ib-pod"


def _ip(words: str) -> None:
    subprocess.run(("ip", *words.split()), check=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A host and a pod; the host has the VF's netdev, taken down and under its temporary name."""
    spaces = [Path(path).name for path in (HOST, POD)]
    for space in spaces:
        _ip(f"netns add {space}")
    _ip(f"-n {spaces[0]} link add {temporary_name(VF.pci)} type veth peer name port")
    try:
        yield Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path, VfTable(tmp_path / "none"), "b")
    finally:
        for space in spaces:
            _ip(f"netns delete {space}")


def _moved_in(node: Node, mtu: int) -> AttachedVf:
    entry = LedgerEntry(
        pci=VF.pci,
        pf=VF.pf,
        vf=VF.vf,
        phase="taking",
        boot="b",
        uid="u1",
        pod="ns/p",
        container="c1",
        ifname="net1",
        netns=Netns(POD, netns.cookie_of(POD)),
        original=Original("ib1"),
        rdma="mlx5_2",
    )
    pending = PendingAttachment(VF, "0000:3b:00.0", entry, VfSettings())
    call = Call(command="ADD", container="c1", netns=POD, ifname="eth0", args={}, path=(), conf={})
    conf = Conf("net", "1.0.0", networks={"default": NetworkConf(mtu=mtu)})
    (attached,) = netns.run_in(HOST, lambda: move_all_in(node, call, conf, RECORD, [pending]))
    return attached


@pytest.fixture
def exclusive(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ib_ipoib before Linux 6.13: the device's move unmakes its netdev, a new one appears on the host.

    rdma_dev_change_netns disables the device and enables it again (drivers/infiniband/core/device.c):
    ipoib_remove_one unregisters the netdev, ipoib_add_port makes one with an MTU of its own.
    """

    def move(_: int, path: str) -> None:
        _ip(f"-n {Path(path).name} link delete net1")
        _ip(f"-n {Path(HOST).name} link add ib7 type veth peer name ib8")
        folder = node.sysfs.root / "bus/pci/devices" / VF.pci / "net/ib7"
        folder.mkdir(parents=True)
        (folder / "ifindex").write_text(f"{netns.run_in(HOST, lambda: netlink.index_of('ib7'))}\n")

    monkeypatch.setattr(rdma, "mode", lambda: "exclusive")
    monkeypatch.setattr(rdma, "device_of", lambda _sysfs, _pci: rdma.Device("mlx5_2", 5))
    monkeypatch.setattr(rdma, "move", move)


@pytest.mark.usefixtures("exclusive")
def test_a_netdev_made_again_has_its_networks_mtu(node: Node) -> None:
    """The MTU that was set before the move went with the old netdev."""
    assert _moved_in(node, 1400).mtu == 1400


@pytest.mark.usefixtures("exclusive")
def test_an_mtu_that_the_nic_refuses_is_named(node: Node) -> None:
    """A veth takes 65,535 at most."""
    with pytest.raises(CniError, match=r"vf 0 of pf 'ib0' refuses mtu 70000") as error:
        _moved_in(node, 70_000)
    assert error.value.code == NIC_REFUSAL


def test_a_netdev_that_stays_the_same_has_it_too(node: Node) -> None:
    """This covers Ethernet, and every netdev where the RDMA stack is shared."""
    assert _moved_in(node, 1400).mtu == 1400
    assert netns.run_in(POD, lambda: netlink.find("net1")) is not None
