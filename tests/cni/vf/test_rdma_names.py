"""The names of RDMA devices whose drivers are bound again at once, on a fake of ib_core's names."""

import errno
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cni.kernel.sysfs import Sysfs
from cni.vf import node as nodes
from cni.vf.ledger import Ledger
from cni.vf.node import Node, name_device
from devcluster.hosts.vftable import VfTable
from mooring import rdma_netlink
from mooring.ledger import LedgerEntry, Netns, Original
from mooring.settings import VfSettings

VFS = ("0000:3b:01.0", "0000:3b:01.1")


class Devices:
    """RDMA devices by index, the VF's number and its uverbs device's: as alloc_name and ib_device_rename name them."""

    def __init__(self, sys: Path) -> None:
        self.names: dict[int, str] = {}
        self._sys = sys
        self._lock = threading.Lock()

    def bind(self, *vfs: int) -> None:
        """Make the devices of VFs one after the other, each with the lowest free name."""
        for vf in vfs:
            used = set(self.names.values())
            self._show(vf, next(name for name in map("mlx5_{}".format, range(9)) if name not in used))

    def exchange(self, command: int, attributes: Mapping[int, bytes], **_: object) -> list[Any]:
        with self._lock:
            if command == rdma_netlink.GET:
                return [
                    ((rdma_netlink.DEV_NAME, name.encode() + b"\0"), (rdma_netlink.DEV_INDEX, rdma_netlink.u32(index)))
                    for index, name in self.names.items()
                ]
            index = rdma_netlink.number(attributes[rdma_netlink.DEV_INDEX])
            if command == rdma_netlink.GET_CHARDEV:
                return [((rdma_netlink.CHARDEV, (231 << 8 | index).to_bytes(8, "little")),)]
            name = rdma_netlink.text(attributes[rdma_netlink.DEV_NAME])
            if any(named == name and at != index for at, named in self.names.items()):
                raise OSError(errno.EEXIST, "File exists")
            self._show(index, name)
            return []

    def _show(self, vf: int, name: str) -> None:
        in_class = self._sys / "class/infiniband"
        if (before := self.names.get(vf)) is not None:
            (in_class / before / "device").unlink()
        self.names[vf] = name
        device = self._sys / "bus/pci/devices" / VFS[vf]
        verbs = device / f"infiniband_verbs/uverbs{vf}"
        for folder in (verbs, device / "physfn", in_class / name):
            folder.mkdir(parents=True, exist_ok=True)
        (verbs / "ibdev").write_text(f"{name}\n")
        (verbs / "dev").write_text(f"231:{vf}\n")
        (in_class / name / "device").symlink_to(device)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Devices:
    found = Devices(tmp_path)
    monkeypatch.setattr(rdma_netlink, "exchange", found.exchange)
    return found


def _node(tmp_path: Path) -> Node:
    return Node(Sysfs(tmp_path), Ledger(tmp_path / "state"), tmp_path / "run", VfTable(tmp_path / "table"), "b")


def _entry(vf: int) -> LedgerEntry:
    return LedgerEntry(
        pci=VFS[vf],
        pf="eth0",
        vf=vf,
        phase="taking",
        boot="b",
        uid="u1",
        pod="ns/p",
        container="c1",
        ifname="net1",
        netns=Netns("/run/netns/pod", 1),
        original=Original(settings=VfSettings()),
        set=VfSettings(),
        rdma=f"mlx5_{vf}",
    )


def test_vfs_that_got_each_others_name_at_their_rebind_get_their_own_again(tmp_path: Path, devices: Devices) -> None:
    """Both were unbound when the second was bound: it has the first's name, and the first the second's."""
    devices.bind(1, 0)
    assert devices.names == {1: "mlx5_0", 0: "mlx5_1"}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda vf: name_device(_node(tmp_path), _entry(vf)), (0, 1)))
    assert devices.names == {0: "mlx5_0", 1: "mlx5_1"}


def test_a_device_whose_name_another_keeps_has_a_name_that_hinders_nobody(
    tmp_path: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that keeps it is not on its way back: a warning, and the temporary name, until somebody asks again."""
    monkeypatch.setattr(nodes, "RETURNS_S", 0.01)
    devices.bind(1, 0)
    with capture_logs() as told:
        name_device(_node(tmp_path), _entry(0))
    assert devices.names == {1: "mlx5_0", 0: "mo0-3b08"}
    assert [line["event"] for line in told] == ["rdma device keeps another name"]
    for vf in (1, 0):
        name_device(_node(tmp_path), _entry(vf))
    assert devices.names == {0: "mlx5_0", 1: "mlx5_1"}
