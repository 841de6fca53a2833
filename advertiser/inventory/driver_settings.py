"""Which settings of a VF each PF supports through rtnetlink, by the name of the setting.

Read from the ``ndo_set_vf_*`` functions of each driver in Linux 6.12. A driver that is not listed supports none, so a
request for one is refused before placement rather than on the node. On InfiniBand the netdev is IPoIB's, which only has
a GUID and a link state to set, and hands both to the RDMA driver below (ib_set_vf_guid, ib_set_vf_link_state in
drivers/infiniband/core/verbs.c). Only mlx5_ib has operations for them (mlx5_ib_dev_sriov_ops): mlx4 refuses both.
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
    # mlx4_set_vf_rate refuses any min_tx_rate (EPROTONOSUPPORT), and a max_tx_rate is in force only with a VLAN and
    # priority 0 (mlx4_is_vf_vst_and_prio_qos): a pod with one and without the other would not get what it requests.
    "mlx4_core": _ETHERNET - {"trust"},
    "ice": _ETHERNET | _BOTH_RATES,
    # i40e_ndo_set_vf_bw and ixgbe_ndo_set_vf_bw refuse any min_tx_rate.
    "i40e": _ETHERNET | _MAX_RATE,
    "ixgbe": _ETHERNET | _MAX_RATE,
    # igb_ndo_set_vf_bw supports only the 82576.
    "igb": _ETHERNET - {"link_state"},
    # bnxt_set_vf_vlan refuses a priority without a VLAN only, as Mooring does.
    "bnxt_en": _ETHERNET | _BOTH_RATES,
    # hclge_vf_rate_param_check refuses any min_tx_rate.
    "hns3": _ETHERNET | _MAX_RATE,
    # The software NIC on which Mooring is tested with the kernel's own SR-IOV core.
    "simvf": _ETHERNET | _BOTH_RATES,
}
# BlueField's devices (mlx5_core_pci_table), and what one supports whose switch another system manages:
# mlx5_eswitch_set_vport_mac is the one function of these that does not ask mlx5_esw_allowed.
_BLUEFIELD = frozenset({"0xa2d2", "0xa2d6", "0xa2dc", "0xa2df"})
_UNMANAGED = frozenset({"mac"})


def settings_of(function: PciFunction, link: LinkType) -> frozenset[str]:
    """Return the names of the settings that a PF supports."""
    if link == "infiniband":
        return _INFINIBAND if function.driver in SETS_INFINIBAND_VFS else frozenset()
    taken = _BY_DRIVER.get(function.driver or "", frozenset())
    return taken if manages_switch(function) else _UNMANAGED


def refused_settings(settings: VfSettings, function: PciFunction, link: LinkType) -> tuple[str, ...]:
    """Return the names of those of ``settings`` that a PF has no operation for, or none that it is allowed.

    On Ethernet a driver that is not listed must be tried: only then is it known what it refuses. On InfiniBand IPoIB
    handles settings for every driver (ipoib_netdev_ops_pf in drivers/infiniband/ulp/ipoib/ipoib_main.c), and those that
    have the operations are known.
    """
    taken = settings_of(function, link)
    if link == "ethernet" and taken == frozenset():
        return ()
    return tuple(name for name in settings.to_fields() if name not in taken)


def manages_switch(function: PciFunction) -> bool:
    """Return whether a PF is the manager of its embedded switch; on the host of a BlueField the ARM side may be.

    mlx5 refuses the other PFs a VLAN, rates, trust, spoof check and link state of their VFs with EPERM
    (mlx5_esw_allowed in drivers/net/ethernet/mellanox/mlx5/core/eswitch.h). The same capability of the firmware decides
    whether the PF's port has a switch id (mlx5e_devlink_port_register, since Linux 5.13), so that nothing has to be
    tried on a VF. Before that no PF had one in legacy mode: without a BlueField's device id the answer is yes.
    """
    if function.driver != "mlx5_core" or function.device not in _BLUEFIELD:
        return True
    netdev = main_netdev(function.netdevs)
    return netdev is None or netdev.phys_port_name is None or netdev.phys_switch_id is not None
