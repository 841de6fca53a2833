"""The simulated PFs' VF table answers as the kernel and mlx5 do."""

import errno
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.hosts.nic import describe_host
from devcluster.hosts.vftable import ETHERNET, VfTable
from mooring.nic.settings import VfSettings

PF = "enp4s0f0"


def _table(tmp_path: Path, refuse: tuple[str, ...] = (), link: str = "ethernet") -> VfTable:
    host = describe_host("n1", 1, vfs=8, refuse=refuse)
    table = VfTable(tmp_path / "vftable.json")
    pfs = tuple(replace(pf, link="infiniband") for pf in host.pfs) if link == "infiniband" else host.pfs
    table.reset(replace(host, pfs=pfs))
    return table


def _refused(table: VfTable, vf: int, settings: VfSettings, pf: str = PF) -> int | None:
    with pytest.raises(OSError, match=r".") as caught:
        table.write(pf, vf, settings)
    return caught.value.errno


def test_a_fresh_vf_has_nothing_set(tmp_path: Path) -> None:
    """As with mlx5 it has no MAC, no VLAN and no rates; it is untrusted, unchecked, with link state auto."""
    table = _table(tmp_path)
    assert table.read(PF, 7) == ETHERNET
    assert table.read_all("enp4s0f1") == dict.fromkeys(range(8), ETHERNET)


def test_what_is_written_is_read_back_and_the_rest_stays(tmp_path: Path) -> None:
    """Only the fields that are not None change, on that VF alone; a rate that is not given goes to 0 with the other.

    Both travel in one attribute, which has no "as it is" (struct ifla_vf_rate in include/uapi/linux/if_link.h).
    """
    table = _table(tmp_path)
    table.write(PF, 3, VfSettings(min_tx_rate=5000, max_tx_rate=8000, vlan=100, qos=3, trust=True))
    table.write(PF, 3, VfSettings(max_tx_rate=9000, vlan=100, link_state="enable"))
    expected = replace(ETHERNET, max_tx_rate=9000, vlan=100, trust=True, link_state="enable")
    assert VfTable(tmp_path / "vftable.json").read(PF, 3) == expected
    assert table.read(PF, 2) == ETHERNET


def test_a_cap_below_the_guarantee_is_refused(tmp_path: Path) -> None:
    """max != 0 && max < min is EINVAL, by the message alone: rtnl_set_vf_rate looks at nothing that is set already."""
    table = _table(tmp_path)
    assert _refused(table, 0, VfSettings(min_tx_rate=2, max_tx_rate=1)) == errno.EINVAL
    table.write(PF, 0, VfSettings(min_tx_rate=5000))
    table.write(PF, 0, VfSettings(max_tx_rate=4000))
    assert table.read(PF, 0) == replace(ETHERNET, max_tx_rate=4000)


def test_the_sum_of_min_rates_is_not_checked(tmp_path: Path) -> None:
    """The kernel takes any min rate for any VF: keeping the sum below the line rate is Mooring's work."""
    table = _table(tmp_path)
    for vf in range(8):
        table.write(PF, vf, VfSettings(min_tx_rate=100_000))
    assert sum(each.min_tx_rate or 0 for each in table.read_all(PF).values()) == 800_000


def test_a_refusal_leaves_set_what_came_before_it(tmp_path: Path) -> None:
    """The kernel sets attribute by attribute and stops: MAC and VLAN are set, trust is not."""
    table = _table(tmp_path, refuse=("spoofchk",))
    wanted = VfSettings(mac="02:00:00:00:00:01", vlan=7, spoofchk=True, trust=True)
    assert _refused(table, 1, wanted) == errno.EOPNOTSUPP
    assert table.read(PF, 1) == replace(ETHERNET, mac="02:00:00:00:00:01", vlan=7)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (VfSettings(mac="01:00:5e:00:00:01"), errno.EINVAL),
        (VfSettings(vlan=4096), errno.EINVAL),
        (VfSettings(vlan=1, qos=8), errno.EINVAL),
        (VfSettings(guid="02:00:00:00:00:00:00:01"), errno.EOPNOTSUPP),
    ],
)
def test_what_the_driver_does_not_take_is_refused(tmp_path: Path, settings: VfSettings, code: int) -> None:
    """Multicast MACs, VLANs and priorities out of range, GUIDs on Ethernet."""
    table = _table(tmp_path)
    assert _refused(table, 0, settings) == code
    assert table.read(PF, 0) == ETHERNET


def test_an_infiniband_pf_takes_link_state_and_guid_only(tmp_path: Path) -> None:
    """IPoIB has no MAC, VLAN, rate or trust for its VFs, and reports none; ports are down until set otherwise."""
    table = _table(tmp_path, link="infiniband")
    table.write(PF, 0, VfSettings(guid="02:00:00:00:00:00:00:01", link_state="enable"))
    assert table.read(PF, 0) == VfSettings(guid="02:00:00:00:00:00:00:01", link_state="enable")
    assert _refused(table, 1, VfSettings(vlan=5)) == errno.EOPNOTSUPP
    assert _refused(table, 1, VfSettings(min_tx_rate=0, max_tx_rate=0)) == errno.EOPNOTSUPP
    assert table.read(PF, 1) == VfSettings(link_state="disable")


def test_unknown_pfs_and_vfs_are_refused(tmp_path: Path) -> None:
    """ENODEV for a netdev that is not there, EINVAL for an index past the VFs that the device can have."""
    table = _table(tmp_path)
    assert _refused(table, 0, VfSettings(vlan=1), pf="eth9") == errno.ENODEV
    assert _refused(table, 8, VfSettings(vlan=1)) == errno.EINVAL
    with pytest.raises(OSError, match=r"vf -1"):
        table.read(PF, -1)


def _write_some(path: Path, vf: int) -> None:
    for rate in range(1, 21):
        VfTable(path).write(PF, vf, VfSettings(max_tx_rate=rate))


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Four processes, a VF each, one file: every last value is there."""
    _table(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_some, args=(tmp_path / "vftable.json", vf)) for vf in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    settings = VfTable(tmp_path / "vftable.json").read_all(PF)
    assert [settings[vf].max_tx_rate for vf in range(5)] == [20, 20, 20, 20, 0]


def test_a_vf_given_back_leaves_no_trace(tmp_path: Path) -> None:
    """With its first settings written again the file is what it was: files can be compared."""
    table = _table(tmp_path)
    before = (tmp_path / "vftable.json").read_text()
    table.write(PF, 2, VfSettings(min_tx_rate=10, max_tx_rate=20, trust=True))
    assert (tmp_path / "vftable.json").read_text() != before
    table.write(PF, 2, replace(ETHERNET, mac=None))
    assert (tmp_path / "vftable.json").read_text() == before


def test_a_boot_forgets_every_setting(tmp_path: Path) -> None:
    """The PF's settings of its VFs are gone after a reboot."""
    table = _table(tmp_path)
    table.write(PF, 0, VfSettings(vlan=9))
    table.reset(describe_host("n1", 1, vfs=8))
    assert table.read(PF, 0) == ETHERNET
