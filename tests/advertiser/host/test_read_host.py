"""Reading a whole host: one thing that cannot be read hides no other."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.facts import EswitchMode
from devcluster.hosts import sysfs
from devcluster.hosts.nic import describe_host
from mooring.files import write_file
from mooring.records.without_devices import WithoutDevices, dump_without_devices

PCI = "0000:04:00.5"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    return Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run")


def test_a_ledger_entry_that_is_not_a_file_is_one_that_cannot_be_read(roots: Roots) -> None:
    """The entry's VF is not offered; the host is read all the same."""
    (roots.state / f"vfs/{PCI}.json").mkdir(parents=True)
    assert read_host(roots).ledger == {PCI: None}


def test_what_is_not_a_file_is_not_a_programs_version(roots: Roots) -> None:
    """The versions are for people; a version that cannot be read does not cost a node its inventory."""
    (roots.run / "version/old").mkdir(parents=True)
    (roots.run / "version/mooring-cni").write_text("1.2\n")
    assert read_host(roots).programs == {"mooring-cni": "1.2"}


def test_containers_without_devices_are_read_from_the_shims_report(roots: Roots) -> None:
    """No report, and one that cannot be read, cost a node nothing but the Events."""
    assert read_host(roots).without_devices == frozenset()
    found = WithoutDevices("ml/web", "8c2f", "trainer", "5f0e", (PCI,))
    write_file(roots.run / "extract/without-devices.json", dump_without_devices([found]))
    assert read_host(roots).without_devices == {found}
    write_file(roots.run / "extract/without-devices.json", "{")
    assert read_host(roots).without_devices == frozenset()


def test_devlink_is_asked_about_every_pf(roots: Roots) -> None:
    """Each is queried by its PCI address, and only NICs with SR-IOV are; what devlink does not report stays unknown."""
    sysfs.build(roots.sysfs, describe_host("n1", 1, vfs=1))
    sysfs.write(roots.sysfs / "bus/pci/devices/0000:01:00.0", {"class": "0x020000"})
    asked: list[str] = []

    def modes(root: Path, addresses: Iterable[str]) -> dict[str, EswitchMode]:
        asked.extend(addresses)
        assert root == roots.sysfs
        return {"0000:04:00.0": "legacy"}

    assert read_host(roots, modes).eswitch == {"0000:04:00.0": "legacy"}
    assert asked == ["0000:04:00.0", "0000:04:00.1"]
