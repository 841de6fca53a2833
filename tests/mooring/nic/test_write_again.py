"""What confines a VF is written again, past drivers that skip what they remember and settings that a NIC lacks."""

import errno
import os

import pytest

from mooring.nic.settings import VfSettings
from mooring.nic.write_again import write_again

MAC = "02:00:00:00:00:01"
WHOLE = VfSettings(min_tx_rate=5, mac=MAC, vlan=100, qos=3, trust=True, spoofchk=True, guid="02:00:00:00:00:00:00:01")


class Pf:
    """Takes what it is written, but for one setting that it answers with an errno."""

    def __init__(self, refused: VfSettings | None = None, code: int = errno.EIO) -> None:
        self.written: list[VfSettings] = []
        self._refused = refused
        self._code = code

    def write(self, settings: VfSettings) -> None:
        self.written.append(settings)
        if settings == self._refused:
            raise OSError(self._code, os.strerror(self._code))


def test_mac_vlan_and_spoof_check_go_in_this_order_each_alone() -> None:
    """Spoof check is turned off first, and a VLAN set to the one that was refused."""
    pf = Pf()
    write_again(pf.write, WHOLE, VfSettings(vlan=7))
    assert pf.written == [
        VfSettings(mac=MAC),
        VfSettings(vlan=7),
        VfSettings(vlan=100, qos=3),
        VfSettings(spoofchk=False),
        VfSettings(spoofchk=True),
        VfSettings(guid=WHOLE.guid),
    ]


@pytest.mark.parametrize("refused", [VfSettings(mac=MAC), VfSettings(vlan=100, qos=3), VfSettings(spoofchk=True)])
def test_a_refusal_is_an_error_once_all_else_is_written(refused: VfSettings) -> None:
    """Each of the others may put the check in force."""
    pf = Pf(refused)
    with pytest.raises(OSError, match="Input/output error"):
        write_again(pf.write, WHOLE)
    assert pf.written[-1] == VfSettings(guid=WHOLE.guid)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (VfSettings(spoofchk=False), errno.EPERM),
        (VfSettings(mac=MAC), errno.EOPNOTSUPP),
        (VfSettings(vlan=100, qos=3), errno.EPROTONOSUPPORT),
        (VfSettings(guid=WHOLE.guid), errno.EOPNOTSUPP),
    ],
)
def test_what_a_nic_lacks_or_may_not_turn_off_is_no_refusal(refused: VfSettings, code: int) -> None:
    write_again(Pf(refused, code).write, WHOLE)


def test_a_refused_off_leaves_an_accepted_on_unproved() -> None:
    """hns3 and ice remember "on" then, and skip it: firmware that refuses for good must not look restored."""
    pf = Pf(VfSettings(spoofchk=False))
    with pytest.raises(OSError, match="Input/output error"):
        write_again(pf.write, WHOLE)
    assert VfSettings(spoofchk=True) in pf.written
    write_again(Pf(VfSettings(spoofchk=False)).write, VfSettings(spoofchk=False))


def test_a_spoof_check_that_reads_on_and_cannot_be_set_is_one() -> None:
    with pytest.raises(OSError, match="not supported"):
        write_again(Pf(VfSettings(spoofchk=True), errno.EOPNOTSUPP).write, WHOLE)
