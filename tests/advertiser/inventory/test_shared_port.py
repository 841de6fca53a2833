"""Which PFs are on one cable, and which only look like it."""

from dataclasses import replace
from pathlib import Path

import pytest

from advertiser.inventory.facts import Netdev, PciFunction, RdmaDevice, RdmaPort
from advertiser.inventory.offer import OWN_PORT
from advertiser.inventory.shared_port import port_key, with_ports
from advertiser.publish.scanner import record_shared_ports
from mooring.annotations.inventory import Inventory, Pf
from mooring.indexes import Indexes
from mooring.records.shared_ports import FILE, dump_shared_ports, read_shared_ports, shared_ports_of

SWITCH, GUID = "3042f9000300aa0c", "0caa:0003:00f9:4230"


def ethernet(
    address: str, port_name: str | None, switch: str | None = SWITCH, driver: str = "mlx5_core"
) -> PciFunction:
    """Return a PF with an Ethernet netdev, and the name and switch id of its port."""
    netdev = Netdev("eth0", type="1", dev_port="0", phys_port_name=port_name, phys_switch_id=switch)
    return PciFunction(address, driver=driver, netdevs=(netdev,), rdma=(RdmaDevice("mlx5_0", (), GUID),))


def infiniband(address: str, guid: str | None = GUID, driver: str = "mlx5_core") -> PciFunction:
    """Return a PF with an IPoIB netdev, which has neither a switch id nor a port's name."""
    port = RdmaPort("200 Gb/sec (4X HDR)", "4: ACTIVE", "InfiniBand")
    netdev = Netdev("ib0", type="32", dev_port="0")
    return PciFunction(address, driver=driver, netdevs=(netdev,), rdma=(RdmaDevice("mlx5_0", (port,), guid),))


def joined(*functions: PciFunction, wishes: tuple[str | None, ...] = (None, None)) -> list[str | None]:
    """Return the port of each function's PF."""
    pfs = [
        Pf(f"pf{index}", each.address, "ethernet", "default", 0, 0, up=True, vfs=Indexes(1), vf0=each.address)
        for index, each in enumerate(functions)
    ]
    keys = [port_key(each, wish) for each, wish in zip(functions, wishes, strict=True)]
    return [pf.port for pf in with_ports(pfs, keys)]


@pytest.mark.parametrize("second", ["0002:01:00.0", "0000:82:00.0"])
def test_the_same_port_of_the_same_switch_is_one_cable(second: str) -> None:
    """In another PCI domain (two links to one NIC) or another slot (socket direct)."""
    shared = joined(ethernet("0000:01:00.0", "p0"), ethernet(second, "p0"))
    assert shared == ["0000:01:00.0", "0000:01:00.0"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Two ports of a NIC in legacy mode, as the ConnectX-4 Lx of tests/advertiser/hosts, 02.
        (ethernet("0000:23:00.0", "p0"), ethernet("0000:23:00.1", "p1")),
        # Two NICs.
        (ethernet("0000:01:00.0", "p0"), ethernet("0000:02:00.0", "p0", "4142f9000300aa0c")),
        # A switch id that is not set, a port's name that is not told, a representor's.
        (
            ethernet("0000:01:00.0", "p0", "0000000000000000", "ice"),
            ethernet("0000:02:00.0", "p0", "0000000000000000", "ice"),
        ),
        (ethernet("0000:01:00.0", None, driver="ice"), ethernet("0000:02:00.0", None, driver="ice")),
        (ethernet("0000:01:00.0", "pf0vf0", driver="ice"), ethernet("0000:02:00.0", "pf0vf0", driver="ice")),
        # The two ports of an InfiniBand NIC, and two NICs.
        (infiniband("0000:01:00.0"), infiniband("0000:01:00.1")),
        (infiniband("0000:01:00.0"), infiniband("0000:02:00.0", "0caa:0003:00f9:5678")),
        (infiniband("0000:01:00.0", "0000:0000:0000:0000"), infiniband("0000:02:00.0", "0000:0000:0000:0000")),
        (infiniband("0000:01:00.0", None), infiniband("0000:02:00.0", None)),
        # hfi1 has one GUID for all NICs of a host.
        (infiniband("0000:01:00.0", driver="hfi1"), infiniband("0000:02:00.0", driver="hfi1")),
    ],
)
def test_what_only_looks_alike_is_two_cables(first: PciFunction, second: PciFunction) -> None:
    """Unset ids, numbers of two ports, and identifiers that a driver gives to all NICs join no PFs."""
    assert joined(first, second) == [None, None]


def test_infiniband_goes_by_the_image_guid_and_the_functions_number() -> None:
    """Socket direct with two ports: functions 0 of both slots are one cable, functions 1 another."""
    functions = [infiniband(f"0000:{bus}:00.{number}") for bus in ("05", "82") for number in (0, 1)]
    assert joined(*functions, wishes=(None,) * 4) == ["0000:05:00.0", "0000:05:00.1"] * 2


def test_ethernet_before_switch_ids_goes_by_the_image_guid_too() -> None:
    """Before Linux 5.13 mlx5 has no switch id in legacy mode."""
    assert joined(ethernet("0000:05:00.0", "p0", None), ethernet("0000:82:00.0", "p0", None)) == ["0000:05:00.0"] * 2
    assert joined(ethernet("0000:05:00.0", None, None), ethernet("0000:05:00.1", None, None)) == [None, None]


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ((OWN_PORT, OWN_PORT), [None, None]),
        ((OWN_PORT, None), [None, None]),
        (("left", "right"), [None, None]),
        (("uplink", "uplink"), ["uplink", "uplink"]),
    ],
)
def test_the_operator_decides_first(wishes: tuple[str | None, ...], expected: list[str | None]) -> None:
    """The offer's ``port`` separates PFs that look alike, and joins those that it names alike."""
    assert joined(ethernet("0000:01:00.0", "p0"), ethernet("0002:01:00.0", "p0"), wishes=wishes) == expected


def test_the_record_for_the_cni_plugin_has_the_ports_that_are_shared() -> None:
    """PFs by PCI address, sorted; a PF on a cable of its own is not in it."""
    pf = Pf("a", "0002:01:00.0", "ethernet", "default", 0, 0, up=True, vfs=Indexes(1), port="x")
    pfs = (pf, replace(pf, pci="0000:01:00.0"), replace(pf, pci="0000:05:00.0", port=None))
    assert shared_ports_of(Inventory("b", pfs).pfs) == (("0000:01:00.0", "0002:01:00.0"),)
    assert read_shared_ports(dump_shared_ports(shared_ports_of(pfs))) == shared_ports_of(pfs)


def test_the_record_is_written_and_removed_where_it_changes(tmp_path: Path) -> None:
    """A scan that finds the same writes nothing; without shared ports there is no record."""
    path, shared = tmp_path / FILE, (("0000:01:00.0", "0002:01:00.0"),)
    record_shared_ports(tmp_path, ())
    assert not path.exists()
    record_shared_ports(tmp_path, shared)
    written = path.stat().st_ino
    record_shared_ports(tmp_path, shared)
    assert (read_shared_ports(path.read_text()), path.stat().st_ino) == (shared, written)
    record_shared_ports(tmp_path, ())
    assert not path.exists()
