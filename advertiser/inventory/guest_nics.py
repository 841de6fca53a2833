"""Explain why a NIC has no SR-IOV files in sysfs.

The kernel shows ``sriov_*`` only for a physical function that can have VFs. VFs do not have these files, nor do
functions whose TotalVFs is 0, for example because SR-IOV is off in the firmware (sriov_init in drivers/pci/iov.c). This
machine's own VFs have a link ``physfn`` (pci_iov_sysfs_link). VFs that a hypervisor passed to this machine do not;
their PCI ids or their driver identify them. The ids are those of Linux 6.12 and 7.2: mlx5_core_pci_table and
mlx4_pci_table (``*_PCI_DEV_IS_VF``), bnxt_pci_tbl, iavf_devids.h, IDPF_DEV_ID_VF, ixgbevf/defines.h, igbvf/vf.h,
hnae3.h (HNAE3_DEV_ID_VF and HNAE3_DEV_ID_RDMA_DCB_PFC_VF; hns3 drives PFs too), efa_pci_tbl,
ena_pci_id_tbl.h, MANA_VF_DEVICE_ID in include/net/mana/gdma.h, ionic_id_table, erdma_pci_tbl (its PCI class is not
a NIC's).
"""

from advertiser.inventory.facts import PciFunction

_MLX4 = (0x1002, 0x1004)
_MLX5 = (0x1012, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3)
_BNXT = (
    *(0x1606, 0x1607, 0x1608, 0x1609, 0x16BD, 0x16C1, 0x16C2, 0x16C3, 0x16C4, 0x16C5, 0x16CB, 0x16D3, 0x16DC, 0x16E1),
    *(0x16E5, 0x16E6, 0x1806, 0x1807, 0x1808, 0x1809, 0x1819, 0x181B, 0xD800),
)
_INTEL = (
    *(0x154C, 0x1571, 0x1889, 0x37CD, 0x145C),
    *(0x10ED, 0x152E, 0x1515, 0x1530, 0x1565, 0x1564, 0x15A8, 0x15A9, 0x15C5, 0x57AD),
    *(0x10CA, 0x1520),
)
_HNS3 = (0xA22E, 0xA22F)
_EFA, _ENA, _MANA = (0xEFA0, 0xEFA1, 0xEFA2, 0xEFA3), (0xEC20, 0xEC21), (0x00BA,)
_IONIC, _ERDMA = (0x1003,), (0x107F,)
_VFS = {
    0x15B3: {*_MLX4, *_MLX5},
    0x14E4: {*_BNXT},
    0x8086: {*_INTEL},
    0x19E5: {*_HNS3},
    0x1D0F: {*_EFA, *_ENA},
    0x1414: {*_MANA},
    0x1DD8: {*_IONIC},
    0x1DED: {*_ERDMA},
}
_IDS = frozenset(f"{vendor:04x}:{device:04x}" for vendor, devices in _VFS.items() for device in devices)
# Drivers for VFs only.
_VF_DRIVERS = frozenset({"efa", "iavf", "igbvf", "ixgbevf"})
_CLOUD_NAMES = {"efa": "EFA", "ena": "ENA", "erdma": "eRDMA", "mana": "MANA"}


def why_without_sriov(function: PciFunction) -> str:
    """Return why a NIC has no SR-IOV files, as far as its PCI ids and its driver show."""
    ids = ":".join((text or "").removeprefix("0x") for text in (function.vendor, function.device))
    if ids in _IDS or function.driver in _VF_DRIVERS:
        kind = _CLOUD_NAMES.get(function.driver or "", ids)
        return f"the NIC is a VF that a hypervisor passed to this machine ({kind}), and a VF has no VFs"
    return "no sriov_totalvfs: SR-IOV is off in the device's firmware or in the BIOS, or the device does not support it"
