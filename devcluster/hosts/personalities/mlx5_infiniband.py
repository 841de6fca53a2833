"""mlx5_core on InfiniBand: the PF's netdev is IPoIB's, which has a link state and GUIDs to set, and nothing else.

Sources: drivers/infiniband/ulp/ipoib/ipoib_main.c, drivers/infiniband/hw/mlx5/ib_virt.c.
"""

from collections.abc import Iterable

from devcluster.hosts.personalities.personality import Personality, Pf, Vf, ask_if_named
from mooring.nic.settings import LinkState, VfSettings

# What ipoib_get_vf_config puts in the MAC's place: the beginning of the PF's own address, flags, queue pair, and the
# first bytes of its GID.
_PF_ADDRESS = "00:00:10:87:fe:80"
_COMMAND = "MODIFY_HCA_VPORT_CONTEXT"
# What `ip` and Mooring read as no GUID (the driver answers 0 where none was set).
_NO_GUIDS = ("00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff")


class Mlx5Infiniband(Personality):
    """A ConnectX-6 on InfiniBand. ipoib_netdev_ops_pf has no other ndo_set_vf_* than these two."""

    name = "mlx5-infiniband"
    driver = vf_driver = "mlx5_core"
    link = "infiniband"
    vendor = "0x15b3"
    device = "0x101d"
    vf_device = "0x101e"
    rdma_prefix = "mlx5_"
    # Policy and GUIDs are written again when VFs are enabled (sriov_restore_guids in mlx5/core/sriov.c).
    keeps_settings = True

    def fresh(self, number: int, own_mac: str = "") -> Vf:
        """Return a VF with the port policy Down: sriov_restore_guids in mlx5/core/sriov.c writes none by itself."""
        return Vf(number, own_mac, link_state="disable")

    def vfs_with_settings(self, pf: Pf) -> int:
        """Return the VFs that the device can have: vfs_ctx has room for each (mlx5_sriov_init)."""
        return max(pf.total, pf.vfs)

    def set_vf_link_state(self, pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it as the port's policy (mlx5_ib_set_vf_link_state)."""
        ask_if_named(pf, _COMMAND)
        vf.link_state = link_state

    def set_vf_guid(self, pf: Pf, vf: Vf, guid: str) -> None:
        """Take any; the VF reads it when its driver is bound (mlx5_ib_set_vf_guid)."""
        ask_if_named(pf, _COMMAND)
        vf.guid = guid

    def reload(self, _pf: Pf, _vfs: Iterable[Vf]) -> None:
        """Forget nothing: policy and GUIDs are kept and written again (sriov_restore_guids in mlx5/core/sriov.c)."""

    def node_guid(self, vf: Vf, _netdev_mac: str) -> str:
        """Return the one that was set, else 0 (mlx5_query_hca_vport_node_guid)."""
        digits = (vf.guid or "0" * 16).replace(":", "")
        return ":".join(digits[start : start + 4] for start in range(0, 16, 4))

    def get_vf_config(self, _pf: Pf, vf: Vf) -> VfSettings:
        """Answer zeros for all that has no operation (mlx5_ib_get_vf_config), and the PF's address as the MAC."""
        return VfSettings(
            min_tx_rate=0,
            max_tx_rate=0,
            mac=_PF_ADDRESS,
            vlan=0,
            qos=0,
            trust=False,
            spoofchk=False,
            link_state=vf.link_state,
            guid=None if vf.guid in _NO_GUIDS else vf.guid,
        )
