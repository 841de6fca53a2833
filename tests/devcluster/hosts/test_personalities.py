"""What each driver takes, refuses, reads back and forgets, as its source says; each class names the functions."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devcluster.hosts import sysfs
from devcluster.hosts.nic import describe_host
from devcluster.hosts.personalities.registry import PERSONALITIES
from devcluster.hosts.vftable import ETHERNET, VfTable
from mooring.nic.settings import VfSettings
from tests.support.polling import wait_until

PF, OWN, ADMIN, NONE = "enp4s0f0", "02:00:01:00:00:00", "02:00:00:00:00:77", "00:00:00:00:00:00"
# How VF 0 reads once it is made, beside what it reads as with mlx5 on Ethernet.
FRESH: dict[str, dict[str, Any]] = {
    "mlx5-ethernet": {},
    "mlx5-bluefield": {},
    "bnxt": {"mac": OWN},
    "ice": {"mac": OWN, "spoofchk": True},
    "i40e": {"mac": OWN, "spoofchk": True},
    "mlx4": {"trust": None},
    "hns3": {},
    "ionic": {},
}
ALL = sorted(FRESH)
# (setting, its value, what each driver answers: an errno, or None for success); all others take it.
REFUSALS: list[tuple[VfSettings, dict[str, int]]] = [
    (VfSettings(mac=ADMIN), {}),
    (VfSettings(mac=NONE), {}),
    (VfSettings(mac="01:00:5e:00:00:01"), dict.fromkeys(ALL, errno.EINVAL)),
    (VfSettings(vlan=0, qos=0), {}),
    (VfSettings(vlan=5, qos=3), {"mlx5-bluefield": errno.EPERM, "ionic": errno.EINVAL}),
    (VfSettings(vlan=0, qos=3), {"bnxt": errno.EINVAL, "ionic": errno.EINVAL}),
    (VfSettings(min_tx_rate=0, max_tx_rate=0), {"mlx5-bluefield": errno.EPERM}),
    (
        VfSettings(min_tx_rate=5000, max_tx_rate=0),
        {
            "mlx5-bluefield": errno.EPERM,
            "i40e": errno.EINVAL,
            "mlx4": errno.EPROTONOSUPPORT,
            "hns3": errno.EINVAL,
            "ionic": errno.EINVAL,
        },
    ),
    (VfSettings(max_tx_rate=5000), {"mlx5-bluefield": errno.EPERM}),
    (
        VfSettings(max_tx_rate=200_000),
        {
            "mlx5-bluefield": errno.EPERM,
            "bnxt": errno.EINVAL,
            "ice": errno.EINVAL,
            "i40e": errno.EINVAL,
            "hns3": errno.EINVAL,
        },
    ),
    (VfSettings(spoofchk=False), {"mlx5-bluefield": errno.EPERM}),
    (VfSettings(spoofchk=True), {"mlx5-bluefield": errno.EPERM, "mlx4": errno.EPERM}),
    (VfSettings(link_state="enable"), {"mlx5-bluefield": errno.EPERM}),
    (VfSettings(trust=True), {"mlx5-bluefield": errno.EPERM, "mlx4": errno.EOPNOTSUPP}),
    (VfSettings(guid="02:00:00:00:00:00:00:01"), dict.fromkeys(ALL, errno.EOPNOTSUPP)),
]


def _table(tmp_path: Path, nic: str) -> VfTable:
    table = VfTable(tmp_path / "nic" / "vftable.json")
    (tmp_path / "nic").mkdir()
    table.reset(describe_host("n1", 1, vfs=2, nics=[nic]))
    return table


def _answer(table: VfTable, settings: VfSettings) -> int | None:
    try:
        table.write(PF, 0, settings)
    except OSError as refused:
        return refused.errno
    return None


def test_every_ethernet_driver_is_here() -> None:
    """mlx5 on InfiniBand, which takes nothing of this, is in test_vftable."""
    assert sorted(PERSONALITIES) == sorted([*ALL, "mlx5-infiniband", "mlx4-infiniband"])


def test_mlx4_on_infiniband_lists_no_vf_and_takes_nothing(tmp_path: Path) -> None:
    """ib_get_vf_config answers EOPNOTSUPP for every VF: rtnl_fill_vfinfo leaves it out, and its number is counted."""
    table = _table(tmp_path, "mlx4-infiniband")
    with pytest.raises(OSError, match="listed vfs"):
        table.read_all(PF)
    for settings in (VfSettings(guid="02:00:00:00:00:00:00:01"), VfSettings(link_state="auto")):
        with pytest.raises(OSError, match="not supported"):
            table.write(PF, 0, settings)


@pytest.mark.parametrize("nic", ALL)
def test_each_driver_refuses_with_its_own_errno(tmp_path: Path, nic: str) -> None:
    """Each setting on a fresh VF; one that is refused leaves it as it was."""
    table = _table(tmp_path, nic)
    fresh = replace(ETHERNET, **FRESH[nic])
    for settings, refusals in REFUSALS:
        table.reset(describe_host("n1", 1, vfs=2, nics=[nic]))
        assert (settings, table.read(PF, 0)) == (settings, fresh)
        assert (settings, _answer(table, settings)) == (settings, refusals.get(nic))
        if nic in refusals:
            assert table.read(PF, 0) == fresh


@pytest.mark.parametrize("nic", ["bnxt", "ice", "i40e"])
def test_a_vf_without_an_admin_mac_reads_with_its_own(tmp_path: Path, nic: str) -> None:
    """bnxt_get_vf_config, ice_get_vf_cfg, i40e_ndo_get_vf_config: 00:… removes the admin MAC, and the own one reads."""
    table = _table(tmp_path, nic)
    table.write(PF, 0, VfSettings(mac=ADMIN))
    assert table.read(PF, 0).mac == ADMIN
    table.write(PF, 0, VfSettings(mac=NONE))
    assert table.read(PF, 0).mac == OWN


def test_mlx4_reads_a_max_rate_back_only_with_a_vlan(tmp_path: Path) -> None:
    """mlx4_get_vf_config: a rate without a VLAN is stored and not in force; a change that would end it is refused."""
    table = _table(tmp_path, "mlx4")
    table.write(PF, 0, VfSettings(max_tx_rate=5000))
    assert table.read(PF, 0).max_tx_rate == 0
    table.write(PF, 0, VfSettings(vlan=7))
    assert (table.read(PF, 0).vlan, table.read(PF, 0).max_tx_rate) == (7, 5000)
    assert _answer(table, VfSettings(vlan=7, qos=3)) == errno.EPERM
    table.write(PF, 0, VfSettings(vlan=0))
    assert (table.read(PF, 0).vlan, table.read(PF, 0).max_tx_rate) == (0, 0)


def test_mlx4_keeps_the_mac_of_a_vf_with_spoofchk(tmp_path: Path) -> None:
    """mlx4_set_vf_mac refuses 00:… while it is on, mlx4_set_vf_spoofchk refuses it without a MAC."""
    table = _table(tmp_path, "mlx4")
    table.write(PF, 0, VfSettings(mac=ADMIN, spoofchk=True))
    assert _answer(table, VfSettings(mac=NONE)) == errno.EPERM


def test_bnxt_makes_no_vfs_on_a_pf_that_is_down(tmp_path: Path) -> None:
    """bnxt_sriov_configure answers 0, without an error, and the VFs stay as they were."""
    table = _table(tmp_path, "bnxt")
    table.set_up(PF, up=False)
    assert table.sriov_configure(PF, 0) == 0
    assert len(table.read_all(PF)) == 2
    table.set_up(PF, up=True)
    assert table.sriov_configure(PF, 0) == 0
    assert len(table.read_all(PF)) == 0


def test_bnxt_takes_any_rate_where_the_speed_is_unknown(tmp_path: Path) -> None:
    """bnxt_set_vf_bw holds SPEED_UNKNOWN, -1, in a u32: no rate exceeds it."""
    table = _table(tmp_path, "bnxt")
    table.change_pf(PF, mbps=0)
    table.write(PF, 0, VfSettings(min_tx_rate=5000, max_tx_rate=0x7FFF_FFFF))
    assert table.read(PF, 0).min_tx_rate == 5000


def test_ice_checks_the_sum_of_min_rates(tmp_path: Path) -> None:
    """ice_min_tx_rate_oversubscribed, against the speed of the link, which is 0 without one."""
    table = _table(tmp_path, "ice")
    table.write(PF, 1, VfSettings(min_tx_rate=60_000))
    assert _answer(table, VfSettings(min_tx_rate=50_000)) == errno.EINVAL
    assert _answer(table, VfSettings(min_tx_rate=40_000)) is None
    table.set_up(PF, up=False)
    assert _answer(table, VfSettings(max_tx_rate=1)) == errno.EINVAL


def test_mlx4_makes_no_vfs_by_sysfs(tmp_path: Path) -> None:
    """mlx4_driver has no sriov_configure: sriov_numvfs_store answers ENOENT."""
    with pytest.raises(OSError, match="sriov_numvfs") as caught:
        _table(tmp_path, "mlx4").sriov_configure(PF, 1)
    assert caught.value.errno == errno.ENOENT


def test_a_pf_that_does_not_answer_lists_no_vf(tmp_path: Path) -> None:
    """mlx5e_get_vf_config while the netdev is detached: rtnl_fill_vfinfo leaves the VFs out, without an error."""
    table = _table(tmp_path, "mlx5-ethernet")
    table.change_pf(PF, present=False)
    with pytest.raises(OSError, match="listed vfs") as caught:
        table.read_all(PF)
    assert caught.value.errno == errno.EMSGSIZE


@pytest.mark.parametrize(
    ("nic", "settings"),
    [
        ("ice", VfSettings(mac=ADMIN)),
        ("ice", VfSettings(trust=True)),
        ("ice", VfSettings(vlan=7)),
        ("hns3", VfSettings(mac=ADMIN)),
    ],
)
def test_a_vf_that_is_reset_gets_another_rdma_device(tmp_path: Path, nic: str, settings: VfSettings) -> None:
    """Its RDMA device vanishes after the setting was acknowledged, and comes back as another; its netdev stays."""
    host = describe_host("n1", 1, vfs=2, nics=[nic])
    sysfs.build(tmp_path / "sys", host)
    device = tmp_path / "sys/bus/pci/devices/0000:04:00.2"
    uverbs = device / "infiniband_verbs/uverbs2"
    before = uverbs.stat().st_ino
    _table(tmp_path, nic).write(PF, 0, settings)
    wait_until(lambda: not uverbs.exists())
    assert [path.name for path in (device / "net").iterdir()] == [f"{PF}v0"]
    wait_until(uverbs.exists)
    assert uverbs.stat().st_ino != before
    wait_until((tmp_path / "sys/class/infiniband_verbs/uverbs2/ibdev").exists)


def test_i40es_vfs_have_no_rdma_device(tmp_path: Path) -> None:
    """The PF has one."""
    sysfs.build(tmp_path, describe_host("n1", 1, vfs=1, nics=["i40e"]))
    devices = tmp_path / "bus/pci/devices"
    assert (devices / "0000:04:00.0/infiniband").exists()
    assert not (devices / "0000:04:00.2/infiniband").exists()


def test_the_manager_of_a_switch_shows_its_id(tmp_path: Path) -> None:
    """mlx5e_devlink_port_register: a BlueField's host PF has a port name and no switch id."""
    nics = ["mlx5-ethernet", "mlx5-bluefield"]
    sysfs.build(tmp_path, describe_host("n1", 1, vfs=1, nics=nics))
    shown = [tmp_path / "class/net" / name for name in ("enp4s0f0", "enp4s0f1")]
    assert [(path / "phys_port_name").exists() for path in shown] == [True, True]
    assert [(path / "phys_switch_id").exists() for path in shown] == [True, False]


@pytest.mark.parametrize(
    ("nic", "refused", "reads"),
    [
        ("mlx5-ethernet", VfSettings(mac=ADMIN), VfSettings(mac=ADMIN, spoofchk=True)),
        ("mlx5-ethernet", VfSettings(vlan=7), VfSettings(vlan=7, spoofchk=True)),
        ("mlx5-ethernet", VfSettings(spoofchk=True), VfSettings(spoofchk=True)),
        ("hns3", VfSettings(spoofchk=False), VfSettings(spoofchk=True)),
    ],
)
def test_a_refused_command_leaves_no_spoof_check_that_reads_on(
    tmp_path: Path, nic: str, refused: VfSettings, reads: VfSettings
) -> None:
    """esw_acl_ingress_lgcy_setup removes the ACL before it makes another; hclge_set_vf_spoofchk_hw has two commands."""
    table = _table(tmp_path, nic)
    table.write(PF, 0, VfSettings(mac=OWN, spoofchk=True))
    assert table.checks_macs(PF, 0)
    table.change_pf(PF, firmware_refuses=1)
    assert _answer(table, refused) == errno.EIO
    found = table.read(PF, 0).to_fields()
    assert found.items() >= reads.to_fields().items()
    assert not table.checks_macs(PF, 0)


def test_i40e_reads_the_spoof_check_that_was_refused_and_does_not_ask_again(tmp_path: Path) -> None:
    """i40e_ndo_set_vf_spoofchk sets vf->spoofchk first, and compares with it the next time."""
    table = _table(tmp_path, "i40e")
    table.write(PF, 0, VfSettings(spoofchk=False))
    table.change_pf(PF, firmware_refuses=1)
    assert [_answer(table, VfSettings(spoofchk=True)) for _ in range(2)] == [errno.EIO, None]
    assert (table.read(PF, 0).spoofchk, table.checks_macs(PF, 0)) == (True, False)
    for spoofchk in (False, True):
        table.write(PF, 0, VfSettings(spoofchk=spoofchk))
    assert table.checks_macs(PF, 0)
