"""A simulated VF's node GUID: what mlx5 on Ethernet reads at probe, and only then."""

from pathlib import Path

import pytest

from devcluster.hosts.nic import describe_host
from devcluster.hosts.pci_bus import PciBus
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings

PF, VF = "enp4s0f0", "0000:04:00.2"


@pytest.fixture
def bus(tmp_path: Path) -> PciBus:
    """A host whose VFs nobody has given a MAC."""
    host = describe_host("n1", 1, vfs=2)
    build(tmp_path / "sys", host)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    return PciBus(tmp_path / "sys", host, table)


def node_guid(bus: PciBus) -> str:
    (device,) = (bus.root / "bus/pci/devices" / VF / "infiniband").iterdir()
    return (device / "node_guid").read_text().strip()


def mac(bus: PciBus) -> str:
    (netdev,) = (bus.root / "bus/pci/devices" / VF / "net").iterdir()
    return (netdev / "address").read_text().strip()


def rebind(bus: PciBus) -> None:
    drivers = bus.root / "bus/pci/drivers/mlx5_core"
    bus.write(drivers / "unbind", VF)
    assert not (bus.root / "bus/pci/devices" / VF / "infiniband").exists()
    bus.write(drivers.parent.parent / "drivers_probe", VF)


def test_a_vf_without_an_admin_mac_has_node_guid_0_and_a_random_mac_at_each_bind(bus: PciBus) -> None:
    """esw_vport_setup writes the zeros of its record; mlx5e_set_netdev_dev_addr then chooses an address."""
    first = mac(bus)
    rebind(bus)
    assert node_guid(bus) == "0000:0000:0000:0000"
    assert mac(bus) != first


def test_a_mac_makes_the_node_guid_at_the_next_bind(bus: PciBus) -> None:
    """node_guid_gen_from_mac, without the bit that EUI-64 inverts; init_node_data reads it at probe only."""
    bus.table.write(PF, 0, VfSettings(mac="02:00:01:02:03:04"))
    assert node_guid(bus) == "0000:0000:0000:0000"
    rebind(bus)
    assert (node_guid(bus), mac(bus)) == ("0200:01ff:fe02:0304", "02:00:01:02:03:04")


def test_a_mac_that_is_taken_away_leaves_a_node_guid_that_all_such_vfs_have(bus: PciBus) -> None:
    """mlx5_esw_set_vport_mac_locked takes zeros, and makes a GUID of them."""
    bus.table.write(PF, 0, VfSettings(mac="02:00:01:02:03:04"))
    rebind(bus)
    bus.table.write(PF, 0, VfSettings(mac="00:00:00:00:00:00"))
    assert node_guid(bus) == "0200:01ff:fe02:0304"
    rebind(bus)
    assert node_guid(bus) == "0000:00ff:fe00:0000"


def test_vfs_that_init_made_have_their_own(tmp_path: Path) -> None:
    """The MAC was set before the driver was bound."""
    host = describe_host("n1", 1, vfs=2)
    build(tmp_path / "sys", host, admin_macs=True)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host, admin_macs=True)
    bus = PciBus(tmp_path / "sys", host, table)
    digits = mac(bus).replace(":", "")
    assert node_guid(bus).replace(":", "") == f"{digits[:6]}fffe{digits[6:]}"
    assert table.read(PF, 0).mac == mac(bus)
