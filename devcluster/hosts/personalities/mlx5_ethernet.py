"""mlx5_core on Ethernet, as the manager of its embedded switch in legacy mode: the default personality.

Sources: drivers/net/ethernet/mellanox/mlx5/core, en_main.c (mlx5e_set_vf_*), eswitch.c, esw/legacy.c, esw/qos.c.
"""

import errno

from devcluster.hosts.personalities.personality import (
    NO_MAC,
    PRIORITIES,
    VLANS,
    Personality,
    Pf,
    Vf,
    guid_of,
    is_multicast,
    refusal,
)
from mooring.settings import LinkState, VfSettings


class Mlx5Ethernet(Personality):
    """A ConnectX-6 Dx on Ethernet."""

    name = "mlx5-ethernet"
    driver = vf_driver = "mlx5_core"
    vendor = "0x15b3"
    device = "0x101d"
    vf_device = "0x101e"
    rdma_prefix = "mlx5_"
    # mlx5e_devlink_port_register, since Linux 5.13: in legacy mode too.
    has_devlink_port = has_switch_id = True

    def set_vf_mac(self, _pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast, 00:… too, spoofchk or not (mlx5_esw_set_vport_mac_locked).

        It changes the VF's vport in the firmware, and nothing in the VF: its netdev keeps its own until it is probed
        again (mlx5e_set_netdev_dev_addr), and so does its RDMA device. The node GUID of the vport is made from the MAC,
        from 00:… too.
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        vf.mac = mac
        vf.kept = {"mac_was_taken": True} if mac == NO_MAC else {}

    def node_guid(self, vf: Vf, _netdev_mac: str) -> str:
        """Return the vport's: 0 until a MAC is written (esw_vport_setup), then its MAC's (node_guid_gen_from_mac).

        The VF reads it at probe only (init_node_data in drivers/infiniband/hw/mlx5/main.c).
        """
        has_one = vf.mac != NO_MAC or "mac_was_taken" in vf.kept
        return guid_of(vf.mac) if has_one else "0000:0000:0000:0000"

    def set_vf_vlan(self, _pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take 0 to 4095 and priorities 0 to 7, a priority without a VLAN too (__mlx5_eswitch_set_vport_vlan)."""
        if vlan >= VLANS or qos >= PRIORITIES:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        vf.vlan, vf.qos = vlan, qos

    def set_vf_rate(self, _pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Take any rates: neither the line rate nor the sum of min rates is checked (mlx5_esw_qos_set_vport_rate)."""
        vf.min_tx_rate, vf.max_tx_rate = min_tx_rate, max_tx_rate

    def set_vf_spoofchk(self, _pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Take either; a VF without a MAC only makes it log (mlx5_eswitch_set_vport_spoofchk)."""
        vf.spoofchk = spoofchk

    def set_vf_link_state(self, _pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (mlx5_eswitch_set_vport_state)."""
        vf.link_state = link_state

    def set_vf_trust(self, _pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take it (mlx5_eswitch_set_vport_trust)."""
        vf.trust = trust

    def get_vf_config(self, pf: Pf, vf: Vf) -> VfSettings:
        """Answer with what was set; EOPNOTSUPP while the PF's netdev is detached (mlx5e_get_vf_config)."""
        if not pf.present:
            raise refusal(errno.EOPNOTSUPP, "vf", vf.number)
        return super().get_vf_config(pf, vf)
