"""A netdev's own MAC is restored through the admin MAC, also on a PF whose driver resets the VF for that."""

import errno
from pathlib import Path

import pytest

from cni.kernel import netlink
from cni.kernel.sysfs import Sysfs
from cni.vf import restore, vf_reset
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.ledger import LedgerEntry, Netns, Original
from mooring.settings import VfSettings

PF, VF0 = "enp4s0f0", "0000:04:00.2"
OWN, ADMIN, OF_POD = "02:00:00:00:00:01", "02:00:00:00:00:77", "02:00:00:00:00:99"


@pytest.mark.parametrize("nic", ["ice", "hns3", "mlx5-ethernet"])
def test_the_rdma_device_is_back_after_each_admin_mac(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nic: str
) -> None:
    """Else what follows finds a device that is about to vanish, and gives another one its name (__ice_set_vf_mac)."""
    host = describe_host("n1", 1, vfs=2, nics=[nic])
    build(tmp_path / "sys", host)
    (tmp_path / "nic").mkdir()
    table = VfTable(tmp_path / "nic" / "vftable.json")
    table.reset(host)
    node = Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")
    vf_reset.write(node, VF0, PF, 0, VfSettings(mac=ADMIN), table.read(PF, 0))
    seen: list[tuple[str, int | None]] = []

    def set_mac(_index: int, mac: str) -> None:
        """Take the admin MAC only, as iavf does from a VF that is not trusted."""
        if table.read(PF, 0).mac != mac:
            raise OSError(errno.EPERM, "not the admin MAC")
        seen.append((mac, node.sysfs.rdma_identity(VF0)))

    monkeypatch.setattr(netlink, "set_mac", set_mac)
    original = Original(name="eth2", netdev_mac=OWN, settings=VfSettings(mac=ADMIN))
    entry = LedgerEntry(VF0, PF, 0, "held", "b", "u1", "ns/p", "c", "net1", Netns("/n", 1), original)
    before = node.sysfs.rdma_identity(VF0)
    restore._restore_mac(node, entry, netlink.Link(2, "eth2", OF_POD, 1500, False, (), None))
    assert [mac for mac, _ in seen] == [OWN]
    assert table.read(PF, 0).mac == ADMIN
    during, after = seen[0][1], node.sysfs.rdma_identity(VF0)
    assert None not in (before, during, after)
    assert len({before, during, after}) == (1 if nic == "mlx5-ethernet" else 3)
