"""Reading a whole host: one thing that cannot be read hides no other."""

import os
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import pytest

from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.facts import ClusterFacts, EswitchMode
from advertiser.publish.scanner import Scanner
from devcluster.hosts import sysfs
from devcluster.hosts.nic import describe_host
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.files import write_file
from mooring.records import runtime_handlers
from mooring.records.without_devices import WithoutDevices, dump_without_devices
from tests.support.foreign import litter

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


@pytest.mark.root
def test_whatever_lies_in_its_folders_is_passed_over(roots: Roots) -> None:
    """Pipes, links without an end, folders: the host is read, and a VF whose entry is none is not offered."""
    offer = OfferFile(roots.run / "no-offer.yaml", required=False)
    for root in (roots.run / "extract", roots.state):
        for name in ("vfs", "pods", "rates"):
            litter(root / name, f"{PCI}.json" if name == "vfs" else "u1.json")
    for folder, name in (("version", "mooring-cni"), ("init/preparing", PCI), ("advertiser/rates", "u1.json")):
        litter(roots.run / folder, name)
    for name in ("extract/without-devices.json", "extract/node-check.json", "extract/rates-server"):
        os.mkfifo(roots.run / name)
    scan = Scanner(roots, offer, "n1").scan(ClusterFacts())
    assert scan.host.ledger == {PCI: None}
    assert (scan.host.programs, scan.host.preparing) == ({"mooring-advertiser": version("mooring")}, frozenset())
    assert (scan.rates, scan.rates_server) == ({}, False)


@pytest.mark.parametrize(
    ("text", "handlers"), [('{"v":1,"handlers":["runc"]}', frozenset({"runc"})), ("{", None), (None, None)]
)
def test_the_inventory_has_the_runtime_handlers_that_the_shim_has_left(
    text: str | None, handlers: frozenset[str] | None, roots: Roots
) -> None:
    """Without a list that can be read, the inventory has none: then the scheduler rejects no pod for its handler."""
    if text is not None:
        write_file(roots.run / runtime_handlers.NAME, text)
    offer = OfferFile(roots.run / "no-offer.yaml", required=False)
    inventory = Scanner(roots, offer, "n1").scan(ClusterFacts()).result.inventory
    assert inventory.handlers == handlers
    assert read_inventory(dump_inventory(inventory)) == inventory


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
