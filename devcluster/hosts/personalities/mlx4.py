"""mlx4_core on Ethernet. Source: drivers/net/ethernet/mellanox/mlx4/cmd.c, behind mlx4_en's ndo_set_vf_*."""

import errno
from dataclasses import replace

from devcluster.hosts.personalities.personality import (
    NO_MAC,
    PRIORITIES,
    VLANS,
    Personality,
    Pf,
    Vf,
    is_multicast,
    refusal,
)
from mooring.nic.settings import LinkState, VfSettings

# MLX4_VGT: the VF tags its frames itself, in other words no VLAN is set.
_NO_VLAN = 4095


class Mlx4(Personality):
    """A ConnectX-3 Pro with one port. mlx4_netdev_ops_master has no ndo_set_vf_trust."""

    name = "mlx4"
    driver = vf_driver = "mlx4_core"
    vendor = "0x15b3"
    device = "0x1007"
    vf_device = "0x1004"
    rdma_prefix = "mlx4_"

    def fresh(self, number: int, own_mac: str = NO_MAC) -> Vf:
        """Return a VF without a VLAN (mlx4_multi_func_init sets MLX4_VGT)."""
        return Vf(number, own_mac, vlan=_NO_VLAN)

    def sriov_configure(self, _pf: Pf, wanted: int) -> int:
        """Refuse: the module's parameter num_vfs makes VFs (mlx4_driver has no sriov_configure, sriov_numvfs_store)."""
        raise refusal(errno.ENOENT, "sriov_numvfs", wanted)

    def set_vf_mac(self, _pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast, but not 00:… while spoofchk is on (mlx4_set_vf_mac).

        It takes effect when the VF's driver is bound again.
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        if vf.spoofchk and mac == NO_MAC:
            raise refusal(errno.EPERM, "mac", mac)
        vf.mac = mac

    def set_vf_vlan(self, _pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take any VLAN and priority, 0/0 as none (mlx4_set_vf_vlan).

        While a rate is in force, refuse what would end it: "no VLAN", or another priority
        (mlx4_valid_vf_state_change).
        """
        if vlan >= VLANS or qos >= PRIORITIES:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        after = _NO_VLAN if (vlan, qos) == (0, 0) else vlan
        if vf.max_tx_rate and _has_rates(vf.vlan, vf.qos) and not _has_rates(vlan, qos):
            raise refusal(errno.EPERM, "vlan", (vlan, qos))
        vf.vlan, vf.qos = after, qos

    def set_vf_rate(self, _pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Refuse any min rate; take a max rate, which is in force only where a VLAN is set (mlx4_set_vf_rate)."""
        if min_tx_rate:
            raise refusal(errno.EPROTONOSUPPORT, "rate", (min_tx_rate, max_tx_rate))
        vf.max_tx_rate = max_tx_rate

    def set_vf_spoofchk(self, _pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Refuse it for a VF without an admin MAC (mlx4_set_vf_spoofchk)."""
        if spoofchk and vf.mac == NO_MAC:
            raise refusal(errno.EPERM, "spoofchk", spoofchk)
        vf.spoofchk = spoofchk

    def set_vf_link_state(self, _pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (mlx4_set_vf_link_state)."""
        vf.link_state = link_state

    def get_vf_config(self, pf: Pf, vf: Vf) -> VfSettings:
        """Answer 4095 for no VLAN, a max rate only where it is in force, nothing about trust (mlx4_get_vf_config)."""
        in_force = vf.max_tx_rate if _has_rates(vf.vlan, vf.qos) else 0
        return replace(super().get_vf_config(pf, vf), max_tx_rate=in_force, trust=None)


def _has_rates(vlan: int, qos: int) -> bool:
    """Return whether a VF with this VLAN and priority has a rate limit (mlx4_is_vf_vst_and_prio_qos).

    Of the priorities only 0 has one by default (MLX4_DEFAULT_QOS_PRIO).
    """
    return vlan != _NO_VLAN and qos == 0
