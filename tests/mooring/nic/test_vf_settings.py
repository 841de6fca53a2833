"""A PF's answer about its VFs, in the kernel's bytes."""

import struct

import pytest

from mooring.errors import RecordError
from mooring.nic.settings import SETTING_NAMES, VfSettings, read_found_settings
from mooring.nic.vf_settings import settings_listed
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
    first, second = settings_listed("eth0", link(2, info(0, *unknown), info(1, *known))).values()
    assert first == VfSettings(100, 2000, "02:00:00:00:00:00", 7, 3)
    assert second == VfSettings(100, 2000, "02:00:00:00:00:01", 7, 3, trust=True, spoofchk=True, link_state="enable")


def test_a_list_that_is_cut_off_is_an_error() -> None:
    """Its VFs would be without rates: Σ min would be too small, and another user's settings would not be restored."""
    with pytest.raises(OSError, match="lists 1 of the 2 vfs of pf 'eth0'"):
        settings_listed("eth0", link(2, info(0)))


@pytest.mark.parametrize(
    ("guid", "read"),
    [(0x0200000000000001, "02:00:00:00:00:00:00:01"), (0, None), (2**64 - 1, None)],
)
def test_a_node_guid_is_read_and_one_that_was_never_set_is_none(guid: int, read: str | None) -> None:
    """The attribute is struct ifla_vf_guid: u32, padding, u64."""
    content = struct.pack("=I4xQ", 0, guid)
    found = settings_listed("ib0", link(1, info(0, attribute(NODE_GUID, content))))
    assert found[0].guid == read


def test_a_vf_of_mlx4_without_a_vlan_has_vlan_0() -> None:
    """mlx4_get_vf_config answers 4095 (MLX4_VGT), also after mlx4_set_vf_vlan was called with 0: 0 is what to restore.

    The ledger's entry holds what was found: one that cannot be read again would keep the VF for ever.
    """
    found = settings_listed("eth0", link(1, info(0, vlan=4095, qos=0)))[0]
    assert (found.vlan, found.qos) == (0, 0)
    assert read_found_settings(parse(dump(found.to_fields()), "entry", RecordError).fields(SETTING_NAMES)) == found


def test_on_infiniband_only_link_state_and_guid_are_read() -> None:
    """The MAC there is the PF's own, and rates, VLAN, trust and spoof check are zeros (mlx5_ib_get_vf_config)."""
    zeros = [attribute(kind, struct.pack("=II", 0, 0)) for kind in (SPOOFCHK, TRUST)]
    down = attribute(LINK_STATE, struct.pack("=II", 0, 2))
    node_guid = attribute(NODE_GUID, struct.pack("=I4xQ", 0, 0x0200000000000001))
    found = settings_listed("ib0", link(1, info(0, *zeros, down, node_guid)), hardware=32)
    assert found == {0: VfSettings(link_state="disable", guid="02:00:00:00:00:00:00:01")}
