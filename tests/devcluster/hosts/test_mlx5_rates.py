"""mlx5's weights: as its driver computes them, when a VF takes part, and what a reload of the PF forgets."""

from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.hosts.nic import describe_host
from devcluster.hosts.personalities.mlx5_rates import bw_shares
from devcluster.hosts.vftable import ETHERNET, VfTable
from mooring.nic.settings import VfSettings

PF = "enp4s0f0"


@pytest.fixture
def table(tmp_path: Path) -> VfTable:
    table = VfTable(tmp_path / "vftable.json")
    table.reset(describe_host("n1", 1, vfs=4))
    return table


@pytest.mark.parametrize(
    ("mins", "shares"),
    [
        ([], []),
        ([0, 0], [0, 0]),
        # Below 100 the divider is 1: the weight is the rate, and 1 for a VF without one.
        ([50, 7, 0], [50, 7, 1]),
        # 15000 // 100 = 150; 5000 / 150 is rounded up.
        ([15000, 5000, 0], [100, 34, 1]),
        # 1990 // 100 = 19 is rounded down, so that both are capped: what differs by 5 % weighs the same.
        ([1990, 1900, 0], [100, 100, 1]),
        ([50000, 0, 400], [100, 1, 1]),
    ],
)
def test_a_weight_is_the_min_over_a_divider_rounded_up_and_capped(mins: list[int], shares: list[int]) -> None:
    """Computed by hand from MLX5_RATE_TO_BW_SHARE for a firmware with max_tsar_bw_share 100."""
    assert list(bw_shares(dict(enumerate(mins)), 100).values()) == shares


def test_a_vf_that_was_never_given_a_rate_takes_no_part(table: VfTable) -> None:
    """Its rates read 0 either way: mlx5_eswitch_get_vport_config does not tell."""
    table.write(PF, 0, VfSettings(min_tx_rate=5000))
    table.write(PF, 1, VfSettings(vlan=7, trust=True))
    assert table.weights(PF) == {0: 100}
    table.clear_rates(PF, [1])
    assert table.read(PF, 1) == replace(table.read(PF, 2), vlan=7, trust=True)


def test_a_vf_that_is_enrolled_after_the_first_min_weighs_nothing_until_a_min_changes(table: VfTable) -> None:
    """esw_qos_set_vport_min_rate returns early for a value that is set already: the others are not looked at."""
    table.write(PF, 0, VfSettings(min_tx_rate=5000))
    table.clear_rates(PF, [1, 2, 3])
    assert table.weights(PF) == {0: 100, 1: 0, 2: 0, 3: 0}
    table.write(PF, 2, VfSettings(min_tx_rate=1000))
    assert table.weights(PF) == {0: 100, 1: 1, 2: 20, 3: 1}


def test_vfs_that_are_enrolled_first_weigh_one(table: VfTable) -> None:
    """A cap changes no weight; without any min there is no weight."""
    table.clear_rates(PF, range(4))
    table.write(PF, 1, VfSettings(max_tx_rate=500))
    assert table.weights(PF) == dict.fromkeys(range(4), 0)
    table.write(PF, 0, VfSettings(min_tx_rate=5000))
    assert table.weights(PF) == {0: 100, 1: 1, 2: 1, 3: 1}
    table.write(PF, 0, VfSettings(min_tx_rate=0))
    assert table.weights(PF) == dict.fromkeys(range(4), 0)


def test_a_reload_forgets_rates_and_link_state_and_nothing_else(table: VfTable) -> None:
    """vport->qos is cleared, and esw_legacy_enable sets AUTO; MAC, VLAN, trust and spoofchk are set again."""
    table.write(PF, 0, VfSettings(5000, 8000, "02:00:00:00:00:01", 7, 3, trust=True, link_state="enable"))
    table.reload(PF)
    kept = replace(ETHERNET, mac="02:00:00:00:00:01", vlan=7, qos=3, trust=True)
    assert table.read(PF, 0) == kept
    assert table.weights(PF) == {}


def test_a_mac_takes_no_vf_out_of_the_scheduling_of_rates(table: VfTable) -> None:
    """mlx5_esw_set_vport_mac_locked changes nothing of vport->qos."""
    table.write(PF, 0, VfSettings(min_tx_rate=5000))
    table.write(PF, 0, VfSettings(mac="02:00:00:00:00:01"))
    assert table.weights(PF) == {0: 100}


def test_a_vf_that_does_not_exist_takes_settings_and_has_them_when_it_is_made(tmp_path: Path) -> None:
    """mlx5_eswitch_get_vport has a vport for each; mlx5_eswitch_clear_vf_vports_info forgets those that there were."""
    table = VfTable(tmp_path / "vftable.json")
    table.reset(describe_host("n1", 1, vfs=2, total=4))
    table.write(PF, 3, VfSettings(vlan=7, link_state="disable"))
    found = []
    for vfs in (0, 4, 0, 4):
        table.sriov_configure(PF, vfs)
        found += [table.read(PF, 3)] if vfs else []
    assert found == [replace(ETHERNET, vlan=7), ETHERNET]


@pytest.mark.parametrize(
    ("command", "settings", "reads"),
    [
        # The min was set before the max is refused (mlx5_esw_qos_set_vport_rate).
        ("MODIFY_SCHEDULING_ELEMENT", VfSettings(min_tx_rate=0, max_tx_rate=100), VfSettings(0, 0)),
        ("MODIFY_SCHEDULING_ELEMENT", VfSettings(min_tx_rate=100), VfSettings(0, 0)),
        ("CREATE_SCHEDULING_ELEMENT", VfSettings(min_tx_rate=100), VfSettings(0, 0)),
        ("MODIFY_NIC_VPORT_CONTEXT", VfSettings(mac="02:00:00:00:00:01"), VfSettings(mac="00:00:00:00:00:00")),
        ("MODIFY_VPORT_STATE", VfSettings(link_state="enable"), VfSettings(link_state="auto")),
    ],
)
def test_what_the_firmware_refuses_reads_as_before(
    table: VfTable, command: str, settings: VfSettings, reads: VfSettings
) -> None:
    """esw_qos_set_vport_min_rate, mlx5_esw_set_vport_mac_locked and mlx5_eswitch_set_vport_state."""
    table.change_pf(PF, firmware_refuses=1, refused_command=command)
    with pytest.raises(OSError, match=command):
        table.write(PF, 0, settings)
    assert table.read(PF, 0).to_fields().items() >= reads.to_fields().items()
