"""NICs without sriov_* in sysfs: VFs that a hypervisor gave to the machine, or PFs without VFs."""

import pytest

from advertiser.inventory.facts import PciFunction
from advertiser.inventory.guest_nics import why_without_sriov


def why(ids: str, driver: str | None) -> str:
    vendor, device = ids.split(":")
    return why_without_sriov(PciFunction("0000:00:05.0", vendor=f"0x{vendor}", device=f"0x{device}", driver=driver))


@pytest.mark.parametrize("driver", [None, "vfio-pci", "the driver of its family"])
@pytest.mark.parametrize(
    "ids",
    [
        *("15b3:101e", "15b3:1004", "14e4:1806", "1d0f:efa1", "1414:00ba"),
        # iavf_pci_tbl, idpf_pci_tbl, ixgbevf_pci_tbl, igbvf_pci_tbl and hclgevf's ae_algovf_pci_tbl in Linux 6.12.
        *("8086:154c", "8086:1889", "8086:145c", "8086:10ed", "8086:57ad", "8086:1520", "19e5:a22e", "19e5:a22f"),
        # ionic_id_table and erdma_pci_tbl.
        *("1dd8:1003", "1ded:107f"),
    ],
)
def test_a_vf_is_known_by_its_ids_whatever_drives_it(ids: str, driver: str | None) -> None:
    """A guest passes VFs on with vfio-pci, or lacks the driver; hns3 drives PFs and VFs."""
    assert why(ids, driver).startswith(f"the NIC is a VF that a hypervisor passed to this machine ({ids})")


@pytest.mark.parametrize("ids", ["15b3:101d", "8086:1592", "8086:1452", "19e5:a222", "14e4:1750", "1dd8:1002"])
def test_a_pf_without_sriov_files_has_it_off(ids: str) -> None:
    """ConnectX-6 Dx, E810, an IPU's PF, hns3's 25G RDMA PF, bnxt's 57508 in the same tables."""
    assert "SR-IOV is off in the device's firmware" in why(ids, "mlx5_core")
