"""A PF's answer about its VFs, in the kernel's bytes."""

import errno
import socket
import struct

import pytest

from mooring.errors import RecordError
from mooring.nic import vf_settings
from mooring.nic.settings import SETTING_NAMES, VfSettings, read_found_settings
from mooring.nic.vf_settings import RtnetlinkVfSettings, read_vf_settings
from mooring.parsing import dump, parse

MAC, VLAN, SPOOFCHK, LINK_STATE, RATE, TRUST, NODE_GUID = 1, 2, 4, 5, 6, 9, 10


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def info(vf: int, *more: bytes, vlan: int = 7, qos: int = 3) -> bytes:
    """struct ifla_vf_mac has room for 32 bytes; every other one begins with the VF's number too."""
    plain = (
        attribute(MAC, struct.pack("=I6s26x", vf, bytes((2, 0, 0, 0, 0, vf)))),
        attribute(VLAN, struct.pack("=III", vf, vlan, qos)),
        attribute(RATE, struct.pack("=III", vf, 100, 2000)),
    )
    return attribute(1, b"".join((*plain, *more)))


def link(vfs: int, *infos: bytes) -> bytes:
    """A link's attributes: IFLA_NUM_VF (21) and IFLA_VFINFO_LIST (22)."""
    return attribute(21, struct.pack("=I", vfs)) + attribute(22, b"".join(infos))


def test_settings_are_read_and_what_reads_as_minus_one_is_unsupported() -> None:
    """A driver that does not know a flag leaves it at all ones: None, never False, and never restored."""
    unknown = [attribute(kind, struct.pack("=Ii", 0, -1)) for kind in (SPOOFCHK, TRUST)]
    known = [attribute(kind, struct.pack("=II", 1, 1)) for kind in (SPOOFCHK, TRUST, LINK_STATE)]
    first, second = read_vf_settings("eth0", link(2, info(0, *unknown), info(1, *known))).values()
    assert first == VfSettings(100, 2000, "02:00:00:00:00:00", 7, 3)
    assert second == VfSettings(100, 2000, "02:00:00:00:00:01", 7, 3, trust=True, spoofchk=True, link_state="enable")


def test_a_list_that_is_cut_off_is_an_error() -> None:
    """Its VFs would be without rates: Σ min would be too small, and another user's settings would not be restored."""
    with pytest.raises(OSError, match="lists 1 of the 2 vfs of pf 'eth0'"):
        read_vf_settings("eth0", link(2, info(0)))


@pytest.mark.parametrize(
    ("guid", "read"),
    [(0x0200000000000001, "02:00:00:00:00:00:00:01"), (0, None), (2**64 - 1, None)],
)
def test_a_node_guid_is_read_and_one_that_was_never_set_is_none(guid: int, read: str | None) -> None:
    """The attribute is struct ifla_vf_guid: u32, padding, u64."""
    content = struct.pack("=I4xQ", 0, guid)
    found = read_vf_settings("ib0", link(1, info(0, attribute(NODE_GUID, content))))
    assert found[0].guid == read


def test_a_vf_of_mlx4_without_a_vlan_has_vlan_0() -> None:
    """mlx4_get_vf_config answers 4095 (MLX4_VGT), also after mlx4_set_vf_vlan was called with 0: 0 is what to restore.

    The ledger's entry holds what was found: one that cannot be read again would keep the VF for ever.
    """
    found = read_vf_settings("eth0", link(1, info(0, vlan=4095, qos=0)))[0]
    assert (found.vlan, found.qos) == (0, 0)
    assert read_found_settings(parse(dump(found.to_fields()), "entry", RecordError).fields(SETTING_NAMES)) == found


def test_on_infiniband_only_link_state_and_guid_are_read() -> None:
    """The MAC there is the PF's own, and rates, VLAN, trust and spoof check are zeros (mlx5_ib_get_vf_config)."""
    zeros = [attribute(kind, struct.pack("=II", 0, 0)) for kind in (SPOOFCHK, TRUST)]
    down = attribute(LINK_STATE, struct.pack("=II", 0, 2))
    node_guid = attribute(NODE_GUID, struct.pack("=I4xQ", 0, 0x0200000000000001))
    found = read_vf_settings("ib0", link(1, info(0, *zeros, down, node_guid)), hardware=32)
    assert found == {0: VfSettings(link_state="disable", guid="02:00:00:00:00:00:00:01")}


def message(kind: int, flags: int, body: bytes) -> bytes:
    whole = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body
    return whole + bytes(-len(whole) % 4)


class KernelWithoutRoomForGuids:
    """Answers about links as Linux before 6.15: rtnl_getlink with EMSGSIZE, netlink_dump by 32 KiB at the most.

    It has the link with index 1, whose VFs take as many bytes as mlx5's, and one before it.
    """

    def __init__(self, vfs: int) -> None:
        infos = [info(vf, attribute(NODE_GUID, struct.pack("=I4xQ", vf, vf + 1)), bytes(100)) for vf in range(vfs)]
        self.pf = struct.pack("=BxHiII", 0, 32, 1, 0, 0) + link(vfs, *infos)
        self.answers: list[bytes] = []

    def __enter__(self) -> "KernelWithoutRoomForGuids":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, request: bytes) -> None:
        _, _, flags, *_ = struct.unpack_from("=IHHII", request)
        refused = struct.pack("=i", -errno.EMSGSIZE)
        if not flags & 0x300:
            self.answers = [message(2, 0, refused + bytes(16))]
            return
        other = message(16, 2, struct.pack("=BxHiII", 0, 1, 9, 0, 0))
        pf = message(16, 2, self.pf)
        self.answers = [other, pf, message(3, 2, bytes(4))] if len(pf) < 32 << 10 else [other, message(3, 2, refused)]

    def recv(self, _: int) -> bytes:
        return self.answers.pop(0)


@pytest.mark.parametrize("vfs", [2, 127])
def test_an_infiniband_pf_that_a_kernel_has_no_room_for_is_read_from_the_list(
    vfs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ConnectX has up to 127 VFs a port by default."""
    monkeypatch.setattr(socket, "socket", lambda *_: KernelWithoutRoomForGuids(vfs))
    found = RtnetlinkVfSettings().read_all("lo")
    assert [each.guid for each in found.values()] == [f"00:00:00:00:00:00:00:{vf + 1:02x}" for vf in range(vfs)]


def test_more_vfs_than_a_list_has_room_for_are_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: KernelWithoutRoomForGuids(240))
    with pytest.raises(OSError, match=r"that many vfs of pf 'lo' with GUIDs: create fewer, or upgrade"):
        RtnetlinkVfSettings().read_all("lo")


def test_a_link_is_found_in_the_list_of_this_kernel() -> None:
    """As it is asked for alone, but for the statistics of other links meanwhile."""
    mask = vf_settings._VF | vf_settings._WITHOUT_STATISTICS
    assert vf_settings._link_from_list("lo", mask)[0] == vf_settings._link("lo", mask)[0]
