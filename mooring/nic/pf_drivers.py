"""Properties of PF drivers that `init` and mooring-cni need: rates, MTUs, InfiniBand, statistics; Linux 6.12, 7.2."""

from collections.abc import Mapping

from mooring.nic.settings import VfSettings

# min_tx_rate is a weight, not a reservation: bw_share is min divided by a divider, capped by the firmware's
# max_tsar_bw_share (esw_qos_calc_bw_share in drivers/net/ethernet/mellanox/mlx5/core/esw/qos.c). Only VFs that were
# given a rate take part. Any write of rates, also 0/0, enrols a VF (mlx5_esw_qos_set_vport_rate calls
# esw_qos_vport_enable first); later writes of the same value are skipped. In Linux 6.12 a VF that is enrolled while
# another one has a min keeps bw_share 0 until a min changes (esw_qos_set_vport_min_rate returns early); in 7.2 it gets
# its share at once (esw_qos_vport_enable). So all VFs are enrolled before the first min is set. There is no source for
# what the firmware gives to a VF that was never enrolled.
#
# A min that reads back was only requested: if the firmware rejects it, 6.12 returns an error, but 7.2 stores it and
# returns 0 (esw_qos_set_node_min_rate ignores the result of esw_qos_sched_elem_config). Only traffic shows whether the
# NIC enforces it (`mooring.records.hardware_result`).
MIN_RATE_IS_A_WEIGHT = frozenset({"mlx5_core"})

# A VF accepts any MTU up to the port's largest (mlx5e_set_netdev_mtu_boundaries in mlx5/core/en_main.c), but the port
# only passes frames up to the MTU of the PF's netdev, which sets the port's (mlx5e_set_mtu). Other drivers have other
# limits: ice gives a VF the port's largest frame, whatever the PF's MTU is (ice_vc_get_max_frame_size).
PF_MTU_LIMITS_VFS = frozenset({"mlx5_core"})

# IPoIB passes reads and writes of VFs' link state and GUIDs to the RDMA driver (ipoib_netdev_ops_pf). Only mlx5_ib
# implements them (mlx5_ib_dev_sriov_ops in drivers/infiniband/hw/mlx5/main.c). Without get_vf_config, as with mlx4_ib,
# the kernel counts the VFs but lists none of them (ib_get_vf_config, rtnl_fill_vfinfo): such a PF stores no settings,
# and its VFs have the defaults of their driver.
SETS_INFINIBAND_VFS = frozenset({"mlx5_core"})

# PF drivers that count the traffic of each VF (ndo_get_vf_stats in Linux 6.12 and 7.2: mlx5e_get_vf_stats,
# ice_get_vf_stats, …; IPoIB calls mlx5_ib_get_vf_stats). For other drivers the kernel returns zeros (rtnl_fill_vfinfo
# in net/core/rtnetlink.c), which would look like a VF without traffic.
COUNTS_FOR_VFS = frozenset({"mlx5_core", "mlx4_core", "ice", "i40e", "ixgbe", "ionic"})


def without_rates(settings_of_vf: Mapping[int, VfSettings]) -> list[int]:
    """Return the indexes of VFs whose rates both read 0, so that they may never have been given any."""
    return [vf for vf, settings in settings_of_vf.items() if settings.min_tx_rate == 0 and settings.max_tx_rate == 0]
