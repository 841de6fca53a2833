"""The table of drivers against those of the kernel: none is forgotten, and no operation is, without a reason."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from advertiser.inventory.driver_settings import settings_of
from advertiser.inventory.facts import PciFunction
from mooring.nic.pf_drivers import COUNTS_FOR_VFS, SETS_INFINIBAND_VFS

LISTS = sorted((Path(__file__).parent / "drivers").glob("linux-*.txt"))
# The PCI driver of a module that is not one: mlx4_core's functions are mlx4_en's by way of the auxiliary bus.
PCI_DRIVERS = {"mlx4_en": "mlx4_core"}
SETTINGS = {
    "set_vf_mac": {"mac"},
    "set_vf_vlan": {"vlan", "qos"},
    "set_vf_rate": {"min_tx_rate", "max_tx_rate"},
    "set_vf_spoofchk": {"spoofchk"},
    "set_vf_link_state": {"link_state"},
    "set_vf_trust": {"trust"},
}
# Operations for the network of a provider's hypervisor (enic) and for a query of a VF's own (ixgbe): no settings here.
OTHERS = {"set_vf_port", "set_vf_rss_query_en", "get_vf_stats"}
# Drivers that an RDMA driver goes with and whose VFs have no RDMA device, or which nobody makes VFs of: why.
WITHOUT_RDMA_VFS = {
    "cxgb4": "a VF's driver is cxgb4vf, which registers nothing for RDMA (cxgb4_register_uld is the PF's)",
    "libcxgb": "code that cxgb4 and iw_cxgb4 share, no driver of a device",
    "enic": "usnic's own VFs have no netdev and no RoCE (usnic_ib_pci_ids)",
    "qede": "a VF's personality is QED_PCI_ETH (qed_vf_pf_acquire), without RDMA (qede_rdma_supported)",
    "bng_en": "no sriov_configure (bnge_driver)",
    "mana": "no sriov_configure (mana_driver)",
    "vmxnet3": "no sriov_configure (vmxnet3_driver)",
}
# Drivers whose VFs have RDMA devices, and which set nothing of a VF.
WITHOUT_SETTINGS = {"idpf": "idpf_sriov_configure and IIDC_FUNCTION_TYPE_VF of irdma, and no ndo_set_vf_*"}
# Those in the table all the same: their VFs have no RDMA device in a kernel of its own, or none in an earlier one.
TOLD = {"i40e", "ixgbe", "igb", "ionic"}
# What a driver has an operation for, and does not take: the functions are in `advertiser.inventory.driver_settings`.
NOT_TAKEN = {
    "mlx4_core": {"min_tx_rate", "max_tx_rate"},
    "i40e": {"min_tx_rate"},
    "ixgbe": {"min_tx_rate"},
    "igb": {"min_tx_rate", "max_tx_rate"},
    "hns3": {"min_tx_rate"},
    "ionic": {"min_tx_rate", "qos"},
    "be2net": {"min_tx_rate", "max_tx_rate"},
}


@dataclass(frozen=True)
class Driver:
    """One line: a PF's driver, the RDMA drivers beside it, and its operations with the function of each."""

    name: str
    rdma: tuple[str, ...]
    operations: Mapping[str, str]


def drivers(path: Path) -> Iterator[Driver]:
    for line in path.read_text().splitlines()[1:]:
        name, *fields = line.split()
        found = dict(field.split("=") for field in fields)
        rdma = found.pop("rdma")
        yield Driver(PCI_DRIVERS.get(name, name), () if rdma == "-" else tuple(rdma.split(",")), found)


@pytest.fixture(params=LISTS, ids=lambda path: path.stem)
def kernel(request: pytest.FixtureRequest) -> dict[str, Driver]:
    """The drivers of one kernel, by name."""
    return {driver.name: driver for driver in drivers(request.param)}


def can(driver: str) -> frozenset[str]:
    return settings_of(PciFunction("0000:04:00.0", driver=driver), "ethernet")


def test_every_driver_whose_vfs_have_rdma_is_in_the_table(kernel: dict[str, Driver]) -> None:
    """A new one, or a new RDMA driver for an old one, is missing here until somebody has read its source."""
    with_rdma = {driver.name for driver in kernel.values() if driver.rdma and driver.name != "-"}
    expected = with_rdma - WITHOUT_RDMA_VFS.keys() - WITHOUT_SETTINGS.keys()
    assert {name for name in expected if not can(name)} == set()
    assert {name for name in WITHOUT_SETTINGS if can(name)} == set()
    assert {name for name in TOLD if not can(name)} == set()


def test_a_driver_takes_what_it_has_an_operation_for_but_what_is_listed(kernel: dict[str, Driver]) -> None:
    """In either kernel: the table stands for both."""
    for driver in kernel.values():
        if can(driver.name):
            operations = driver.operations.keys() - OTHERS
            expected = {name for operation in operations for name in SETTINGS[operation]}
            assert (driver.name, set(can(driver.name))) == (driver.name, expected - NOT_TAKEN.get(driver.name, set()))


def test_a_driver_counts_for_vfs_where_it_has_the_operation(kernel: dict[str, Driver]) -> None:
    """Of those in the table: for any other the kernel answers zeros."""
    known = {driver.name for driver in kernel.values() if can(driver.name) and "get_vf_stats" in driver.operations}
    assert known == COUNTS_FOR_VFS & kernel.keys()


def test_ipoib_sets_a_guid_and_a_link_state(kernel: dict[str, Driver]) -> None:
    """Everything that an InfiniBand PF can set goes by it."""
    assert kernel["ib_ipoib"].operations.keys() == {"set_vf_guid", "set_vf_link_state", "get_vf_stats"}
    found = {settings_of(PciFunction("0000:04:00.0", driver=name), "infiniband") for name in SETS_INFINIBAND_VFS}
    assert found == {frozenset({"guid", "link_state"})}


def test_two_kernels_are_recorded() -> None:
    """The one that the lab is made from, and Debian's newest when this was written."""
    versions = [re.match(r"# .*, of Linux (\d+\.\d+)\.\d+$", path.read_text().splitlines()[0]) for path in LISTS]
    assert [version[1] for version in versions if version] == ["6.12", "7.2"]
