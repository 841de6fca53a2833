"""A netdev's own MAC is restored through the admin MAC, also on a PF whose driver resets the VF for that."""

import errno
from pathlib import Path

import pytest

from cni.kernel import netlink
from cni.kernel.sysfs import Sysfs
from cni.vf import vf_reset
from cni.vf.detach import restore
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original

PF, VF0 = "enp4s0f0", "0000:04:00.2"
OWN, ADMIN, OF_POD = "02:00:00:00:00:01", "02:00:00:00:00:77", "02:00:00:00:00:99"


def host(tmp_path: Path, nic: str) -> tuple[Node, VfTable]:
    """Return a host whose VF 0 has the admin MAC ADMIN, and the table of its settings."""
    described = describe_host("n1", 1, vfs=2, nics=[nic])
    build(tmp_path / "sys", described)
    (tmp_path / "nic").mkdir()
    table = VfTable(tmp_path / "nic" / "vftable.json")
    table.reset(described)
    node = Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")
    vf_reset.write(node, VF0, PF, 0, VfSettings(mac=ADMIN), table.read(PF, 0))
    return node, table


def entry() -> LedgerEntry:
    """Return the entry of a pod that got VF 0 with the admin MAC ADMIN and a netdev whose MAC was OWN."""
    original = Original(name="eth2", netdev_mac=OWN, settings=VfSettings(mac=ADMIN))
    return LedgerEntry(VF0, PF, 0, "held", "b", "u1", "ns/p", "c", "net1", Netns("/n", 1), original)


def link(mac: str) -> netlink.Link:
    """Return the VF's netdev with a MAC."""
    return netlink.Link(2, "eth2", mac, 1500, False, (), None)


@pytest.mark.parametrize("nic", ["ice", "hns3", "mlx5-ethernet"])
def test_the_rdma_device_is_back_after_each_admin_mac(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nic: str
) -> None:
    """Else what follows finds a device that is about to vanish, and gives another one its name (__ice_set_vf_mac)."""
    node, table = host(tmp_path, nic)
    seen: list[tuple[str, int | None]] = []

    def set_mac(_index: int, mac: str) -> None:
        """Take the admin MAC only, as iavf does from a VF that is not trusted."""
        if table.read(PF, 0).mac != mac:
            raise OSError(errno.EPERM, "not the admin MAC")
        seen.append((mac, node.sysfs.rdma_identity(VF0)))

    monkeypatch.setattr(netlink, "set_mac", set_mac)
    before = node.sysfs.rdma_identity(VF0)
    restore._restore_mac(node, entry(), link(OF_POD))
    assert [mac for mac, _ in seen] == [OWN]
    assert table.read(PF, 0).mac == ADMIN
    during, after = seen[0][1], node.sysfs.rdma_identity(VF0)
    assert None not in (before, during, after)
    assert len({before, during, after}) == (1 if nic == "mlx5-ethernet" else 3)


def test_a_call_broken_after_the_first_admin_mac_leaves_the_pf_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The netdev has its own MAC then: who looks at it alone would take the rest for done."""
    node, table = host(tmp_path, "ice")
    netdev_mac = OF_POD

    def set_mac(_index: int, mac: str) -> None:
        """Take the admin MAC only, and break the call once it is set."""
        nonlocal netdev_mac
        if table.read(PF, 0).mac != mac:
            raise OSError(errno.EPERM, "not the admin MAC")
        netdev_mac = mac
        raise InterruptedError

    monkeypatch.setattr(netlink, "set_mac", set_mac)
    with pytest.raises(InterruptedError):
        restore._restore_mac(node, entry(), link(OF_POD))
    assert (netdev_mac, table.read(PF, 0).mac) == (OWN, OWN)
    restore._restore_mac(node, entry(), link(OWN))
    assert table.read(PF, 0).mac == ADMIN


def test_an_admin_mac_that_another_set_meanwhile_stays(tmp_path: Path) -> None:
    """Only the netdev's own MAC is taken back from the PF."""
    node, table = host(tmp_path, "ice")
    table.write(PF, 0, VfSettings(mac=OF_POD))
    restore._restore_mac(node, entry(), link(OWN))
    assert table.read(PF, 0).mac == OF_POD
