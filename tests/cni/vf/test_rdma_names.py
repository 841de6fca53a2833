"""RDMA devices whose drivers are bound again, or that are moved, at once: on a fake of ib_core's names and lists."""

import errno
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cni import cmd_add, cmd_del
from cni.kernel import rdma
from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.skel import Call, CniError
from cni.vf import node as nodes
from cni.vf.attach import attach
from cni.vf.ledger import Ledger
from cni.vf.node import Node, in_host_netns, name_device, recorded_device, temporary_name
from mooring.annotations.assignment import AssignedVf
from mooring.nic import netlink_codec, rdma_netlink
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from tests.cni.no_vf_settings import NoVfSettings
from tests.support.polling import wait_until

PF = "0000:3b:00.0"
VFS = ("0000:3b:01.0", "0000:3b:01.1")


DEL = Call(command="DEL", container="c1", netns=None, ifname="net1", args={}, path=(), conf={})
CONF = Conf("net", "1.0.0")


class Devices:
    """RDMA devices by index, the VF's number and its uverbs device's: as alloc_name and ib_device_rename name them.

    In exclusive mode; one that is ``away`` is in another namespace. One that is ``moving`` was listed a moment before
    (disable_device) or is listed again (enable_device_and_get in the kernel's drivers/infiniband/core/device.c). It has
    no uverbs device, and a query for that is answered with EOPNOTSUPP (ib_get_client_nl_info).
    """

    def __init__(self, sys: Path) -> None:
        self.names: dict[int, str] = {}
        self.away: set[int] = set()
        self.moving: set[int] = set()
        self.refused = 0
        self._sys = sys
        self._lock = threading.Lock()
        pf = sys / "bus/pci/devices" / PF
        (pf / "net/eth0").mkdir(parents=True)
        for vf, pci in enumerate(VFS):
            self._device(vf).mkdir()
            (pf / f"virtfn{vf}").symlink_to(f"../{pci}")
            (self._device(vf) / "physfn").symlink_to(f"../{PF}")
            (self._device(vf) / "driver").symlink_to("../../drivers/mlx5_core")

    def begin_move(self, vf: int) -> None:
        self.moving.add(vf)
        shutil.rmtree(self._verbs(vf).parent)

    def end_move(self, vf: int) -> None:
        self.moving.remove(vf)
        self._show_verbs(vf)

    def bind(self, *vfs: int) -> None:
        """Make the devices of VFs one after the other, each with the lowest free name."""
        for vf in vfs:
            used = set(self.names.values())
            self._show(vf, next(name for name in map("mlx5_{}".format, range(9)) if name not in used))

    def exchange(self, command: int, attributes: Mapping[int, bytes], **_: object) -> list[Any]:
        with self._lock:
            if command == rdma_netlink.SYS_GET:
                return [((rdma_netlink.SYS_ATTR_NETNS_MODE, b"\0"),)]
            if command == rdma_netlink.RES_GET:
                return [()]
            if command in (rdma_netlink.RES_CTX_GET, rdma_netlink.RES_CM_ID_GET, rdma_netlink.RES_QP_GET):
                return []
            if command == rdma_netlink.GET:
                return [
                    ((rdma_netlink.DEV_NAME, name.encode() + b"\0"), (rdma_netlink.DEV_INDEX, netlink_codec.u32(index)))
                    for index, name in self.names.items()
                    if index not in self.away
                ]
            index = netlink_codec.number(attributes[rdma_netlink.DEV_INDEX])
            if command == rdma_netlink.GET_CHARDEV:
                if index in self.moving:
                    self.refused += 1
                    raise OSError(errno.EOPNOTSUPP, "Operation not supported")
                return [((rdma_netlink.CHARDEV, (231 << 8 | index).to_bytes(8, "little")),)]
            name = netlink_codec.text(attributes[rdma_netlink.DEV_NAME])
            if any(named == name and at != index for at, named in self.names.items()):
                raise OSError(errno.EEXIST, "File exists")
            self._show(index, name)
            return []

    def _show(self, vf: int, name: str) -> None:
        in_class = self._sys / "class/infiniband"
        if (before := self.names.get(vf)) is not None:
            (in_class / before / "device").unlink()
        self.names[vf] = name
        device = self._device(vf)
        for folder in (device / "infiniband", in_class / name):
            folder.mkdir(parents=True, exist_ok=True)
        (in_class / name / "device").symlink_to(device)
        if vf not in self.moving:
            self._show_verbs(vf)

    def _show_verbs(self, vf: int) -> None:
        """Show a uverbs device whole, with its files; a name in it changes at once."""
        shown, made = self._verbs(vf).parent, self._device(vf) / "made"
        verbs = made / shown.name / self._verbs(vf).name
        verbs.mkdir(parents=True)
        (verbs / "ibdev").write_text(f"{self.names[vf]}\n")
        (verbs / "dev").write_text(f"231:{vf}\n")
        if shown.exists():
            (verbs / "ibdev").replace(self._verbs(vf) / "ibdev")
        else:
            (made / shown.name).rename(shown)
        shutil.rmtree(made)

    def _verbs(self, vf: int) -> Path:
        return self._device(vf) / f"infiniband_verbs/uverbs{vf}"

    def _device(self, vf: int) -> Path:
        return self._sys / "bus/pci/devices" / VFS[vf]


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Devices:
    found = Devices(tmp_path)
    monkeypatch.setattr(rdma_netlink, "exchange", found.exchange)
    return found


class Unset(NoVfSettings):
    """VFs of a PF that reports no settings, and nothing at all of one that is ``sick``."""

    def __init__(self, sick: int | None = None) -> None:
        self._sick = sick

    def read(self, pf: str, vf: int) -> VfSettings:
        if vf == self._sick:
            raise OSError(errno.EIO, "Input/output error")
        return VfSettings()


def _node(tmp_path: Path, sick: int | None = None) -> Node:
    return Node(Sysfs(tmp_path), Ledger(tmp_path / "state"), tmp_path / "run", Unset(sick), "b")


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


def _free_for_the_next_add(node: Node) -> None:
    assert cmd_add._free_stale(node, replace(DEL, command="ADD"), VFS, 0) is None


def _undo_an_add(node: Node) -> None:
    attach._detach_vfs(node, [AssignedVf("eth0", vf, pci, "ethernet", "default") for vf, pci in enumerate(VFS)])


@pytest.mark.parametrize("undo", [_free_for_the_next_add, _undo_an_add, lambda node: cmd_del.run(node, DEL, CONF)])
def test_vfs_that_got_each_others_name_are_given_back_at_once(
    tmp_path: Path, devices: Devices, undo: Callable[[Node], None]
) -> None:
    """A call that broke left them so: given back one after the other, the first would wait for its name in vain."""
    devices.bind(1, 0)
    node = _node(tmp_path)
    node.ledger.write(*map(_entry, (0, 1)))
    undo(node)
    assert list(node.ledger.entries()) == []
    assert devices.names == {0: "mlx5_0", 1: "mlx5_1"}


def test_a_vf_with_a_device_that_its_pod_has_made_on_it_is_rebound(tmp_path: Path, devices: Devices) -> None:
    """Software RDMA on its netdev, where siw puts it below the VF: the next pod would get that for the VF's own."""
    devices.bind(0, 1)
    made = tmp_path / "bus/pci/devices" / VFS[0] / "infiniband_verbs/uverbs10"
    made.mkdir()
    (made / "ibdev").write_text("siw0\n")
    (made / "dev").write_text("231:10\n")
    unbind = tmp_path / "bus/pci/drivers/mlx5_core/unbind"
    unbind.parent.mkdir(parents=True)
    node = _node(tmp_path)
    node.ledger.write(*map(_entry, (0, 1)))
    cmd_del.run(node, DEL, CONF)
    assert unbind.read_text() == VFS[0]
    assert list(node.ledger.entries()) == []


@pytest.mark.parametrize("sick", [0, 1])
def test_a_vf_that_cannot_be_given_back_does_not_keep_anothers_name(
    tmp_path: Path, devices: Devices, sick: int
) -> None:
    """The other one is given back under its own name, which nobody would restore later."""
    devices.bind(1, 0)
    node = _node(tmp_path, sick)
    node.ledger.write(*map(_entry, (0, 1)))
    with pytest.raises(CniError, match="Input/output error"):
        cmd_del.run(node, DEL, CONF)
    assert devices.names == {0: "mlx5_0", 1: "mlx5_1"} | {sick: temporary_name(VFS[sick])}
    cmd_del.run(_node(tmp_path), DEL, CONF)
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
    assert [line["event"] for line in told] == ["cannot rename the rdma device of a vf"]
    for vf in (1, 0):
        name_device(_node(tmp_path), _entry(vf))
    assert devices.names == {0: "mlx5_0", 1: "mlx5_1"}


def test_a_name_that_a_vf_on_its_way_back_has_is_waited_for(
    tmp_path: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry says so: however long its driver takes, it gives the name up, and this one gets it."""
    monkeypatch.setattr(nodes, "RETURNS_S", 0.0)
    monkeypatch.setattr(nodes, "RENAME_S", 0.0)
    devices.bind(1, 0)
    node = _node(tmp_path)
    node.ledger.write(_entry(1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(name_device, node, _entry(0))
        wait_until(lambda: devices.names[0] == "mo0-3b08")
        name_device(node, _entry(1))
        waiting.result()
    assert devices.names == {0: "mlx5_0", 1: "mlx5_1"}


def test_another_device_in_the_middle_of_its_move_hinders_nobody(tmp_path: Path, devices: Devices) -> None:
    """Several VFs of a pod are moved at once; one that is not here is looked for among all that are listed."""
    devices.bind(0, 1)
    devices.begin_move(1)
    devices.away.add(0)
    node = _node(tmp_path)
    assert rdma.device_of(node.sysfs, VFS[0]) is None
    assert not in_host_netns(node, _entry(0), 0)
    devices.away.clear()
    assert in_host_netns(node, _entry(0), 0)


def test_a_device_in_the_middle_of_its_move_is_not_on_the_host_yet(tmp_path: Path, devices: Devices) -> None:
    """Its VF's entry stays until it has arrived: the next ADD would hand the VF out without it."""
    devices.bind(0)
    node = _node(tmp_path)
    devices.begin_move(0)
    assert rdma.device_of(node.sysfs, VFS[0]) is None
    assert not in_host_netns(node, _entry(0), 0)
    with ThreadPoolExecutor(1) as pool:
        arrived = pool.submit(in_host_netns, node, _entry(0), 90)
        devices.end_move(0)
        assert arrived.result()


def test_a_device_whose_driver_has_gone_is_in_no_other_namespace(tmp_path: Path, devices: Devices) -> None:
    """Without ib_core's device there is nothing to wait for."""
    devices.bind(0)
    node = _node(tmp_path)
    for kind in ("infiniband", "infiniband_verbs"):
        shutil.rmtree(tmp_path / "bus/pci/devices" / VFS[0] / kind)
    assert in_host_netns(node, _entry(0), 0)
    assert recorded_device(node, VFS[0]) is None


def test_a_device_in_the_middle_of_its_move_is_recorded_once_it_has_arrived(
    tmp_path: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel brings it back from a namespace that has died, in its own time."""
    monkeypatch.setattr(nodes, "RENAME_S", 90)
    devices.bind(0)
    node = _node(tmp_path)
    devices.begin_move(0)
    with ThreadPoolExecutor(1) as pool:
        recorded = pool.submit(recorded_device, node, VFS[0])
        devices.end_move(0)
        assert recorded.result() == "mlx5_0"


def test_an_add_waits_for_a_device_at_the_end_of_its_move(
    tmp_path: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uverbs device is in sysfs a moment before the kernel says that it is this device's (add_client_context)."""
    monkeypatch.setattr(attach, "RENAME_S", 90)
    devices.bind(0)
    devices.moving.add(0)
    vf = AssignedVf("eth0", 0, VFS[0], "infiniband", "default")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(attach._read_original, _node(tmp_path), vf)
        wait_until(lambda: devices.refused > 0 or found.done())
        devices.end_move(0)
        assert found.result()[1] == "mlx5_0"


def test_a_uverbs_device_that_is_removed_while_it_is_read_is_none(
    tmp_path: Path, devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is open already, and the kernel answers ENODEV (ibdev_show)."""
    devices.bind(0)

    def removed(*_: object, **__: object) -> str:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(Path, "read_text", removed)
    assert Sysfs(tmp_path).rdma(VFS[0]) is None
