"""A VF whose PF's driver resets it for a setting: what is written returns once its RDMA device is back."""

import errno
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.vf import vf_reset
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings

PF, VF0, ADMIN = "enp4s0f0", "0000:04:00.2", "02:00:00:00:00:77"


def _node(tmp_path: Path, nic: str) -> Node:
    host = describe_host("n1", 1, vfs=2, nics=[nic])
    build(tmp_path / "sys", host)
    (tmp_path / "nic").mkdir()
    table = VfTable(tmp_path / "nic" / "vftable.json")
    table.reset(host)
    return Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")


def _write(node: Node, settings: VfSettings) -> None:
    vf_reset.write(node, VF0, PF, 0, settings, node.vf_settings.read(PF, 0))


@pytest.mark.parametrize(
    ("nic", "settings"),
    [
        ("ice", VfSettings(mac=ADMIN)),
        ("ice", VfSettings(trust=True)),
        ("ice", VfSettings(mac=ADMIN, vlan=7, trust=True)),
        ("hns3", VfSettings(mac=ADMIN, vlan=7)),
    ],
)
def test_the_rdma_device_that_a_reset_made_is_there(tmp_path: Path, nic: str, settings: VfSettings) -> None:
    """Another one than before: a pod would get the one that vanishes a moment later."""
    node = _node(tmp_path, nic)
    before = node.sysfs.rdma_identity(VF0)
    _write(node, settings)
    assert node.sysfs.rdma_identity(VF0) not in (None, before)
    assert node.sysfs.rdma(VF0) is not None
    found = node.vf_settings.read(PF, 0)
    assert {name: getattr(found, name) for name in settings.to_fields()} == settings.to_fields()


@pytest.mark.parametrize(
    ("nic", "settings"),
    [
        ("mlx5-ethernet", VfSettings(mac=ADMIN, vlan=7, trust=True)),
        ("bnxt", VfSettings(mac=ADMIN, trust=True)),
        ("hns3", VfSettings(trust=True)),
        ("ice", VfSettings(mac="02:00:01:00:00:00", trust=False)),
        ("ice", VfSettings(max_tx_rate=5000, link_state="enable")),
    ],
)
def test_nothing_is_waited_for_where_no_vf_is_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nic: str, settings: VfSettings
) -> None:
    """Drivers that reset none, settings that reset none, values that the VF has already."""
    waits: list[int] = []

    def note(_node: Node, _pci: str, before: int) -> None:
        waits.append(before)

    monkeypatch.setattr(vf_reset, "_await_device", note)
    _write(_node(tmp_path, nic), settings)
    assert waits == []


def test_a_device_that_does_not_come_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of its driver was unloaded meanwhile, for instance."""
    monkeypatch.setattr(vf_reset, "RESETS_S", 0.1)
    monkeypatch.setattr("devcluster.hosts.vf_reset._GONE_AFTER_S", 0)
    monkeypatch.setattr("devcluster.hosts.vf_reset._BACK_AFTER_S", 30)
    monkeypatch.setattr("devcluster.hosts.vf_reset._make_again", lambda *_: None)
    with pytest.raises(OSError, match="did not come back within") as caught:
        _write(_node(tmp_path, "hns3"), VfSettings(mac=ADMIN))
    assert caught.value.errno == errno.ENODEV
