"""What each PF supports is what its personality takes: the table in the inventory against the drivers' own answers."""

from pathlib import Path

import pytest

from advertiser.host.sysfs import read_functions
from advertiser.inventory.driver_settings import refused_settings, settings_of
from advertiser.inventory.facts import PciFunction
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings

# A value of each setting that differs from a VF just made; a priority and spoof check need what stands beside them.
TRIED = {
    "mac": VfSettings(mac="02:00:00:00:00:77"),
    "vlan": VfSettings(vlan=7),
    "qos": VfSettings(vlan=7, qos=3),
    "min_tx_rate": VfSettings(min_tx_rate=5000, max_tx_rate=0),
    "max_tx_rate": VfSettings(min_tx_rate=0, max_tx_rate=5000),
    "spoofchk": VfSettings(mac="02:00:00:00:00:77", spoofchk=True),
    "link_state": VfSettings(link_state="enable"),
    "trust": VfSettings(trust=True),
    "guid": VfSettings(guid="02:00:00:00:00:00:00:01"),
}


def taken(table: VfTable, pf: str) -> set[str]:
    """Return the settings that a PF takes and reads back."""
    found = set()
    for vf, (name, settings) in enumerate(TRIED.items()):
        try:
            table.write(pf, vf, settings)
        except OSError:
            continue
        if getattr(table.read(pf, vf), name) == getattr(settings, name):
            found.add(name)
    return found


@pytest.mark.parametrize(
    "nic",
    [
        *("mlx5-ethernet", "mlx5-infiniband", "mlx5-bluefield", "bnxt", "ice", "i40e", "mlx4", "mlx4-infiniband"),
        *("hns3", "ionic"),
    ],
)
def test_a_pf_offers_what_its_driver_takes_and_reads_back(tmp_path: Path, nic: str) -> None:
    """mlx4 takes a max rate without a VLAN, which is not in force then and reads back as 0 (mlx4_get_vf_config)."""
    host = describe_host("n1", 1, pfs=1, vfs=len(TRIED), nics=[nic])
    build(tmp_path / "sys", host)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    (function,) = read_functions(tmp_path / "sys")
    assert settings_of(function, host.pfs[0].link) == taken(table, "enp4s0f0")


def test_a_driver_that_nobody_has_read_offers_nothing_and_is_tried() -> None:
    """Placement refuses what is not known; `init` finds out."""
    function = PciFunction("0000:04:00.0", driver="new_nic")
    assert settings_of(function, "ethernet") == frozenset()
    assert refused_settings(VfSettings(trust=True), function, "ethernet") == ()


@pytest.mark.parametrize(("driver", "taken"), [("mlx5_core", {"guid", "link_state"}), ("mlx4_core", set())])
def test_only_mlx5_sets_anything_of_a_vf_on_infiniband(driver: str, taken: set[str]) -> None:
    """IPoIB answers EOPNOTSUPP where the RDMA driver has no set_vf_guid (ib_set_vf_guid): mlx4_ib has none."""
    assert settings_of(PciFunction("0000:04:00.0", driver=driver), "infiniband") == taken
