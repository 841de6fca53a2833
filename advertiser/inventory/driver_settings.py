"""List which VF settings each PF driver supports through rtnetlink.

Source: the ``ndo_set_vf_*`` functions of each driver in Linux 6.12 and 7.2, which agree here. The lists in
`tests/advertiser/inventory/drivers` have them all. A driver that is not listed supports no setting, so the scheduler
rejects a request for one, instead of the node. On InfiniBand the netdev is IPoIB's: it has only a GUID and a link
state to set, and passes both to the RDMA driver (ib_set_vf_guid, ib_set_vf_link_state in
drivers/infiniband/core/verbs.c). Only mlx5_ib implements them (mlx5_ib_dev_sriov_ops); mlx4 rejects both.
"""

from advertiser.inventory.facts import PciFunction
from advertiser.inventory.port import main_netdev
from mooring.names import LinkType
from mooring.nic.pf_drivers import SETS_INFINIBAND_VFS
from mooring.nic.settings import VfSettings

_ETHERNET = frozenset({"mac", "vlan", "qos", "trust", "spoofchk", "link_state"})
_BOTH_RATES = frozenset({"min_tx_rate", "max_tx_rate"})
_MAX_RATE = frozenset({"max_tx_rate"})
_INFINIBAND = frozenset({"guid", "link_state"})

_BY_DRIVER = {
    "mlx5_core": _ETHERNET | _BOTH_RATES,
    # mlx4_set_vf_rate rejects any min_tx_rate (EPROTONOSUPPORT), and a max_tx_rate is in force only with a VLAN and
    # priority 0 (mlx4_is_vf_vst_and_prio_qos). A pod without that VLAN would not get the rate that it requests.
    "mlx4_core": _ETHERNET - {"trust"},
    "ice": _ETHERNET | _BOTH_RATES,
    # i40e_ndo_set_vf_bw and ixgbe_ndo_set_vf_bw reject any min_tx_rate.
    "i40e": _ETHERNET | _MAX_RATE,
    "ixgbe": _ETHERNET | _MAX_RATE,
    # igb_ndo_set_vf_bw supports only the 82576.
    "igb": _ETHERNET - {"link_state"},
    # bnxt_set_vf_vlan rejects only a priority without a VLAN, as Mooring does.
    "bnxt_en": _ETHERNET | _BOTH_RATES,
    # hclge_vf_rate_param_check rejects any min_tx_rate.
    "hns3": _ETHERNET | _MAX_RATE,
    # ionic_set_vf_vlan rejects any priority, ionic_set_vf_rate any min_tx_rate.
    "ionic": (_ETHERNET - {"qos"}) | _MAX_RATE,
    # be_set_vf_tx_rate rejects any min_tx_rate, and a max_tx_rate that is not a whole percentage of the speed. Only
    # the firmware determines whether a VF has RDMA (be_roce_supported).
    "be2net": _ETHERNET - {"trust"},
    # The software NIC that tests use with the kernel's own SR-IOV core.
    "simvf": _ETHERNET | _BOTH_RATES,
}
# BlueField's devices (mlx5_core_pci_table), and the settings of a PF whose switch another system manages: of these
# functions only mlx5_eswitch_set_vport_mac does not check mlx5_esw_allowed.
_BLUEFIELD = frozenset({"0xa2d2", "0xa2d6", "0xa2dc", "0xa2df"})
_UNMANAGED = frozenset({"mac"})


def settings_of(function: PciFunction, link: LinkType) -> frozenset[str]:
    """Return the names of the settings that a PF supports."""
    if link == "infiniband":
        return _INFINIBAND if function.driver in SETS_INFINIBAND_VFS else frozenset()
    names = _BY_DRIVER.get(function.driver or "", frozenset())
    return names if manages_switch(function) else _UNMANAGED


def refused_settings(settings: VfSettings, function: PciFunction, link: LinkType) -> tuple[str, ...]:
    """Return the names of ``settings`` that a PF does not support or is not allowed to change.

    On Ethernet a driver that is not listed may support any setting, so the kernel decides. On InfiniBand IPoIB accepts
    settings for every driver (ipoib_netdev_ops_pf in drivers/infiniband/ulp/ipoib/ipoib_main.c), and the drivers that
    support them are listed.
    """
    names = settings_of(function, link)
    if link == "ethernet" and names == frozenset():
        return ()
    return tuple(name for name in settings.to_fields() if name not in names)


def manages_switch(function: PciFunction) -> bool:
    """Return whether a PF manages its embedded switch; a BlueField's ARM side can manage it instead of the host.

    For other PFs mlx5 rejects VLAN, rates, trust, spoof check and link state of VFs with EPERM (mlx5_esw_allowed in
    drivers/net/ethernet/mellanox/mlx5/core/eswitch.h). The same firmware capability decides whether the PF's port has a
    switch id (mlx5e_devlink_port_register, since Linux 5.13), so no setting has to be tried on a VF. On older kernels
    no PF in legacy mode has one: there only a BlueField's device id means no.
    """
    if function.driver != "mlx5_core" or function.device not in _BLUEFIELD:
        return True
    netdev = main_netdev(function.netdevs)
    return netdev is None or netdev.phys_port_name is None or netdev.phys_switch_id is not None
