"""RDMA devices without a lab: the contents of a resource table, and a kernel without such tables."""

import errno
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cni.kernel import rdma
from cni.kernel.rdma import users_in_message
from cni.kernel.sysfs import Sysfs
from cni.plan import attachment
from cni.vf import rdma_users
from mooring.annotations.assignment import AssignedVf
from mooring.nic import netlink_codec, rdma_netlink
from mooring.nic.settings import VfSettings

VF = AssignedVf("eth0", 3, "0000:3b:00.5", "ethernet", "default")


def test_processes_are_read_from_a_resource_table_and_kernel_objects_are_none() -> None:
    """A table as RES_QP_GET gave it: the queue pair of process 77, and ib_core's own."""
    table = bytes.fromhex(
        "5400140008000300010000000800150011000000080 03c0001000000 08001c004d000000 0800160000000000 0800170000000000"
        "0800180000000000 0500190000000000 05001a0002000000 05001b0001000000"
        "3800140008000300010000000800150001000000 0c001d0069625f636f726500 0800180000000000 05001a0001000000"
        "05001b0003000000".replace(" ", "")
    )
    answer = ((rdma_netlink.DEV_INDEX, bytes(4)), (rdma_netlink.DEV_NAME, b"rx0\0"), (rdma_netlink.RES_QP, table))
    assert list(users_in_message(answer, rdma_netlink.RES_QP, rdma_netlink.RES_QP_ENTRY)) == [77]


@pytest.mark.skipif(Path("/sys/class/infiniband").exists(), reason="this kernel has RDMA")
def test_a_kernel_without_rdma_has_no_mode_no_device_and_no_user(tmp_path: Path) -> None:
    """NETLINK_RDMA is refused: nothing moves, nothing is waited for."""
    sysfs = _sysfs_with(tmp_path, "mlx5_5")
    assert (rdma.mode(), rdma.devices(), rdma_users.users_of(sysfs, VF.pci)) == (None, {}, frozenset())


def _sysfs_with(root: Path, device: str) -> Sysfs:
    verbs = root / "bus/pci/devices" / VF.pci / "infiniband_verbs/uverbs0"
    verbs.mkdir(parents=True)
    (verbs / "ibdev").write_text(f"{device}\n")
    return Sysfs(root)


def test_a_device_that_is_renamed_between_sysfs_and_the_list_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """udev renames it; another device has its old name by then, and must not be taken for it."""
    sysfs = _sysfs_with(tmp_path, "mlx5_5")

    def listed(*_: object, **__: object) -> list[object]:
        (tmp_path / "bus/pci/devices" / VF.pci / "infiniband_verbs/uverbs0/ibdev").write_text("rocep59s0f0v3\n")
        named = {b"rocep59s0f0v3": 5, b"mlx5_5": 6}
        return [((rdma_netlink.DEV_NAME, name), (rdma_netlink.DEV_INDEX, bytes([at]))) for name, at in named.items()]

    monkeypatch.setattr(rdma_netlink, "exchange", listed)
    assert rdma.device_of(sysfs, VF.pci) == rdma.Device("rocep59s0f0v3", 5)


def test_devices_that_exchange_their_names_meanwhile_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the other's name only while the kernel lists them: sysfs says the same before and after it."""
    sysfs = _sysfs_with(tmp_path, "mlx5_5")
    (tmp_path / "bus/pci/devices" / VF.pci / "infiniband_verbs/uverbs0/dev").write_text("231:197\n")

    def answer(command: int, attributes: Mapping[int, bytes], **_: object) -> list[object]:
        if command == rdma_netlink.GET:
            named = {b"mlx5_6": 5, b"mlx5_5": 6}
            return [
                ((rdma_netlink.DEV_NAME, name), (rdma_netlink.DEV_INDEX, bytes([at]))) for name, at in named.items()
            ]
        number = 231 << 8 | 192 + netlink_codec.number(attributes[rdma_netlink.DEV_INDEX])
        return [((rdma_netlink.CHARDEV, number.to_bytes(8, "little")),)]

    monkeypatch.setattr(rdma_netlink, "exchange", answer)
    assert rdma.device_of(sysfs, VF.pci) == rdma.Device("mlx5_6", 5)


def test_a_device_that_one_list_leaves_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another device left while the kernel listed them: the next in the list would have no namespace and no users."""
    first = [(rdma_netlink.DEV_NAME, b"mlx5_5"), (rdma_netlink.DEV_INDEX, netlink_codec.u32(5))]
    second = [(rdma_netlink.DEV_NAME, b"mlx5_6"), (rdma_netlink.DEV_INDEX, netlink_codec.u32(6))]
    lists = iter([[first], [second], [second]])
    monkeypatch.setattr(rdma_netlink, "exchange", lambda *_, **__: next(lists))
    assert rdma.devices() == {"mlx5_5": 5, "mlx5_6": 6}


def test_spoof_check_brings_an_admin_mac_with_it() -> None:
    """Without a requested MAC: a VF without an admin MAC gets the netdev's; the netdev gets an existing admin MAC."""
    wish = VfSettings(spoofchk=True)
    own, other = "02:00:00:00:00:01", "02:00:00:00:00:02"
    assert attachment.effective_settings(wish, VfSettings(mac=attachment.NO_MAC), own).mac == own
    assert attachment.effective_settings(wish, VfSettings(mac=other), own).mac == other
    assert attachment.effective_settings(wish, VfSettings(), own).mac is None
    assert (
        attachment.effective_settings(VfSettings(spoofchk=True, mac=other), VfSettings(mac=attachment.NO_MAC), own).mac
        == other
    )


def test_settings_are_split_by_netlink_attribute_in_the_kernels_order() -> None:
    """VLAN with its priority and the two rates travel together."""
    pieces = attachment.split_settings(VfSettings(5, 9, vlan=7, qos=3, mac="02:00:00:00:00:01", trust=False))
    assert [list(piece.to_fields()) for piece in pieces] == [
        ["mac"],
        ["vlan", "qos"],
        ["min_tx_rate", "max_tx_rate"],
        ["trust"],
    ]


def test_a_refusal_names_pf_vf_setting_and_errno() -> None:
    """The kernel's name for the error, which for 95 is not the C library's."""
    text = attachment.refusal_text(VF, VfSettings(vlan=7), OSError(95, "Operation not supported"))
    assert text == "pf 'eth0' refuses vlan 7 for vf 3: EOPNOTSUPP (Operation not supported)"


class Nldev:
    """Answers as nldev.c of Linux 6.12 does, about one device on which user processes have opened contexts.

    A dump of queue pairs queries the driver about each (fill_res_qp_entry_query), and ends with the first error. mlx5
    returns ENOSYS for a queue pair with an indirection table, as RSS makes them (mlx5_ib_query_qp). On a sick VF it
    returns the firmware's error for any queue pair, ib_core's own GSI queue pair included. Contexts and cm_ids are
    listed without the driver.
    """

    def __init__(self, query: int, *contexts: int, of: int | None = None, has_context_table: bool = True) -> None:
        self._query, self._contexts, self._has_context_table = query, contexts, has_context_table
        self._count = len(contexts) if of is None else of

    def exchange(
        self, command: int, attributes: Mapping[int, bytes], *, dump: bool = False
    ) -> list[Sequence[netlink_codec.Attribute]]:
        if command == rdma_netlink.GET:
            return [((rdma_netlink.DEV_NAME, b"mlx5_5\0"), (rdma_netlink.DEV_INDEX, netlink_codec.u32(5)))]
        assert attributes == {rdma_netlink.DEV_INDEX: netlink_codec.u32(5)}
        if command == rdma_netlink.RES_GET:
            return [((rdma_netlink.RES_SUMMARY, self._summary()),)]
        if command == rdma_netlink.RES_QP_GET:
            raise OSError(self._query, os.strerror(self._query))
        if command == rdma_netlink.RES_CTX_GET and not self._has_context_table:
            raise OSError(errno.EINVAL, "Invalid argument")
        return [((rdma_netlink.RES_CTX, self._table()),)] if command == rdma_netlink.RES_CTX_GET else []

    def _summary(self) -> bytes:
        counts = {"qp": self._count + 1, "ctx": self._count}
        entries = [
            {
                rdma_netlink.RES_SUMMARY_ENTRY_NAME: name.encode() + b"\0",
                rdma_netlink.RES_SUMMARY_ENTRY_CURR: struct.pack("=Q", count),
            }
            for name, count in counts.items()
        ]
        return b"".join(_nested(rdma_netlink.RES_SUMMARY_ENTRY, entry) for entry in entries)

    def _table(self) -> bytes:
        pids = [{rdma_netlink.RES_PID: netlink_codec.u32(pid)} for pid in self._contexts]
        return b"".join(_nested(rdma_netlink.RES_CTX_ENTRY, pid) for pid in pids)


def _nested(kind: int, attributes: Mapping[int, bytes]) -> bytes:
    return netlink_codec.pack_attribute(kind, netlink_codec.pack_attributes(attributes.items()))


@pytest.mark.parametrize("query", [errno.ENOSYS, errno.EINVAL, errno.EIO])
def test_a_queue_pair_that_cannot_be_asked_is_somebodys(query: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that opened the device is known; others that have one of its queue pairs are not."""
    monkeypatch.setattr(rdma_netlink, "exchange", Nldev(query, 77).exchange)
    assert rdma.users(5) == {77, rdma.NAMELESS}


@pytest.mark.parametrize("query", [errno.ENOSYS, errno.EIO])
def test_a_sick_vf_without_a_context_is_nobodys(query: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has a queue pair on one context only. The queue pair whose query always fails is the kernel's."""
    monkeypatch.setattr(rdma_netlink, "exchange", Nldev(query).exchange)
    assert rdma.users(5) == frozenset()


def test_a_context_that_no_table_lists_is_somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel before 5.15 counts contexts and does not list them. A queue pair whose query fails names no process."""
    monkeypatch.setattr(rdma_netlink, "exchange", Nldev(errno.ENOSYS, of=1, has_context_table=False).exchange)
    assert rdma.users(5) == {rdma.NAMELESS}
