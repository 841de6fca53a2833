"""The kernel's list of a PF's VFs, as `/getpfs` reads it."""

import struct

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from advertiser.host.rtnetlink import settings_listed
from mooring.nic.settings import VfSettings

ETHERNET, INFINIBAND = 1, 32


def attribute(kind: int, value: bytes) -> bytes:
    """Return a netlink attribute (struct nlattr), padded to 4 bytes."""
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def answer(hardware: int) -> ifinfmsg:
    """Return RTM_NEWLINK about a PF with one VF, with what ipoib_get_vf_config and rtnl_fill_vfinfo put there."""
    mac = attribute(1, struct.pack("=I", 0) + bytes.fromhex("00001087fe80") + bytes(26))
    vlan, rate = (attribute(kind, struct.pack("=III", 0, 0, 0)) for kind in (2, 6))
    # IFLA_VF_LINK_STATE_DISABLE
    spoofchk, state, trust = (attribute(kind, struct.pack("=II", 0, value)) for kind, value in ((4, 0), (5, 2), (9, 0)))
    info = attribute(1, mac + vlan + rate + spoofchk + state + trust)
    body = struct.pack("=BxHiII", 0, hardware, 5, 0, 0) + attribute(22, info)
    message = ifinfmsg(struct.pack("=IHHII", 16 + len(body), 16, 0, 1, 0) + body)
    message.decode()
    return message


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (ETHERNET, VfSettings(0, 0, "00:00:10:87:fe:80", 0, 0, trust=False, spoofchk=False, link_state="disable")),
        (INFINIBAND, VfSettings(link_state="disable")),
    ],
)
def test_on_infiniband_only_the_link_state_is_the_vfs(hardware: int, expected: VfSettings) -> None:
    """The MAC there is the beginning of the PF's own address (ipoib_get_vf_config), the rest zeros."""
    assert settings_listed(answer(hardware)) == {0: expected}
