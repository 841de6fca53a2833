"""mlx4_core on InfiniBand: the PF's netdev is IPoIB's, and mlx4_ib below it has no operation for VFs.

Sources: drivers/infiniband/ulp/ipoib/ipoib_main.c, drivers/infiniband/core/verbs.c (ib_set_vf_guid and the functions
around it), drivers/infiniband/hw/mlx4/main.c, whose ib_device_ops have none of those that these ask for.
"""

import errno

from devcluster.hosts.personalities.personality import Personality, Pf, Vf, guid_of, refusal, unsupported
from mooring.nic.settings import VfSettings


class Mlx4Infiniband(Personality):
    """A ConnectX-3 with one port on InfiniBand; every ndo_set_vf_* answers EOPNOTSUPP."""

    name = "mlx4-infiniband"
    driver = vf_driver = "mlx4_core"
    link = "infiniband"
    vendor = "0x15b3"
    device = "0x1007"
    vf_device = "0x1004"
    rdma_prefix = "mlx4_"

    def sriov_configure(self, _pf: Pf, wanted: int) -> int:
        """Refuse: the module's parameter num_vfs makes VFs (mlx4_driver has no sriov_configure, sriov_numvfs_store)."""
        raise refusal(errno.ENOENT, "sriov_numvfs", wanted)

    def node_guid(self, _vf: Vf, netdev_mac: str) -> str:
        """Return one that the PF's driver chose; nobody else sets it (mlx4_MAD_IFC_wrapper in mlx4/cmd.c)."""
        return guid_of(netdev_mac)

    def get_vf_config(self, _pf: Pf, vf: Vf) -> VfSettings:
        """Refuse: the kernel then leaves the VF out of its list (ib_get_vf_config, rtnl_fill_vfinfo)."""
        raise unsupported("vf", vf.number)
