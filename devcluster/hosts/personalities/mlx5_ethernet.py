"""mlx5_core on Ethernet, as the manager of its embedded switch in legacy mode: the default personality.

Sources: drivers/net/ethernet/mellanox/mlx5/core, en_main.c (mlx5e_set_vf_*), eswitch.c, esw/legacy.c, esw/qos.c.
"""

import errno
from collections.abc import Iterable

from devcluster.hosts.personalities.mlx5_rates import bw_shares
from devcluster.hosts.personalities.personality import (
    NO_MAC,
    PRIORITIES,
    VLANS,
    Personality,
    Pf,
    Vf,
    ask_firmware,
    ask_if_named,
    guid_of,
    is_multicast,
    refusal,
)
from mooring.nic.settings import LinkState, VfSettings

# In ``kept`` of a VF that is enrolled: its weight, vport->qos.bw_share.
BW_SHARE = "bw_share"
# An admin MAC was written, perhaps 00:…; a command for the VF's egress ACL was refused.
_MAC_WAS_TAKEN, _NO_EGRESS_ACL = "mac_was_taken", "no_egress_acl"


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

    def set_vf_mac(self, pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast, 00:… too, spoofchk or not (mlx5_esw_set_vport_mac_locked).

        It changes the VF's vport in the firmware, and nothing in the VF: its netdev keeps its own until it is probed
        again (mlx5e_set_netdev_dev_addr), and so does its RDMA device. The node GUID of the vport is made from the MAC,
        from 00:… too.
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        ask_if_named(pf, "MODIFY_NIC_VPORT_CONTEXT")
        vf.mac = mac
        if mac == NO_MAC:
            vf.kept[_MAC_WAS_TAKEN] = True
        else:
            vf.kept.pop(_MAC_WAS_TAKEN, None)
        _make_ingress_acl(pf, vf, exists=_has_ingress_acl(pf, vf))

    def node_guid(self, vf: Vf, _netdev_mac: str) -> str:
        """Return the vport's: 0 until a MAC is written (esw_vport_setup), then its MAC's (node_guid_gen_from_mac).

        The VF reads it at probe only (init_node_data in drivers/infiniband/hw/mlx5/main.c).
        """
        has_one = vf.mac != NO_MAC or _MAC_WAS_TAKEN in vf.kept
        return guid_of(vf.mac) if has_one else "0000:0000:0000:0000"

    def set_vf_vlan(self, pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take 0 to 4095 and priorities 0 to 7, a priority without a VLAN too (__mlx5_eswitch_set_vport_vlan)."""
        if vlan >= VLANS or qos >= PRIORITIES:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        ask_if_named(pf, "MODIFY_ESW_VPORT_CONTEXT")
        ingress, egress = _has_ingress_acl(pf, vf), _has_egress_acl(pf, vf)
        vf.vlan, vf.qos = vlan, qos
        _make_ingress_acl(pf, vf, exists=ingress)
        _make_egress_acl(pf, vf, exists=egress)

    def set_vf_rate(self, pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Take any rates: neither the line rate nor the sum of min rates is checked (mlx5_esw_qos_set_vport_rate).

        The first write enrols the VF, with weight 0, whatever the rates are (esw_qos_vport_enable). All weights are
        calculated again only if a min changes (esw_qos_set_vport_min_rate). A max rate that is refused leaves the min
        set (mlx5_esw_qos_set_vport_rate).
        """
        if BW_SHARE not in vf.kept:
            ask_if_named(pf, "CREATE_SCHEDULING_ELEMENT")
            vf.kept[BW_SHARE] = 0
        if min_tx_rate != vf.min_tx_rate:
            before, vf.min_tx_rate = vf.min_tx_rate, min_tx_rate
            try:
                _normalize_min_rates(pf, vf)
            except OSError:
                vf.min_tx_rate = before
                raise
        if max_tx_rate != vf.max_tx_rate:
            ask_if_named(pf, "MODIFY_SCHEDULING_ELEMENT")
            vf.max_tx_rate = max_tx_rate

    def vfs_with_settings(self, pf: Pf) -> int:
        """Return the VFs that the device can have: there is a vport for each of them (mlx5_eswitch_get_vport)."""
        return max(pf.total, pf.vfs)

    def make(self, _pf: Pf, vf: Vf) -> None:
        """Set the link state to AUTO (esw_legacy_enable). Other settings were written before, and last.

        mlx5_eswitch_clear_vf_vports_info has forgotten only those of VFs that existed.
        """
        vf.link_state = "auto"

    def reload(self, pf: Pf, vfs: Iterable[Vf]) -> None:
        """Forget every VF's rates, enrolment and link state; keep the rest, and make the PF's netdev again.

        mlx5_unload calls mlx5_sriov_detach, by which mlx5_esw_qos_vport_disable clears vport->qos. vport->info (MAC,
        VLAN, trust, spoofchk) stays (esw_vport_cleanup) and is set again (esw_vport_setup), but esw_legacy_enable sets
        every link state to AUTO. mlx5_detach_device removes the netdev; the new one is down, with ETH_DATA_LEN.
        """
        pf.up, pf.mtu = False, 1500
        for vf in vfs:
            vf.min_tx_rate = vf.max_tx_rate = 0
            vf.link_state = "auto"
            vf.unchecked = False
            for name in (BW_SHARE, _NO_EGRESS_ACL):
                vf.kept.pop(name, None)

    def set_vf_spoofchk(self, pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Take either; a VF without a MAC only makes it log (mlx5_eswitch_set_vport_spoofchk).

        What the firmware refuses reads as before.
        """
        before, exists = vf.spoofchk, _has_ingress_acl(pf, vf)
        vf.spoofchk = spoofchk
        try:
            _make_ingress_acl(pf, vf, exists=exists)
        except OSError:
            vf.spoofchk = before
            raise

    def set_vf_link_state(self, pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (mlx5_eswitch_set_vport_state)."""
        ask_if_named(pf, "MODIFY_VPORT_STATE")
        vf.link_state = link_state

    def set_vf_trust(self, _pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take it (mlx5_eswitch_set_vport_trust)."""
        vf.trust = trust

    def get_vf_config(self, pf: Pf, vf: Vf) -> VfSettings:
        """Answer with what was set; EOPNOTSUPP while the PF's netdev is detached (mlx5e_get_vf_config)."""
        if not pf.present:
            raise refusal(errno.EOPNOTSUPP, "vf", vf.number)
        return super().get_vf_config(pf, vf)


def _normalize_min_rates(pf: Pf, changed: Vf) -> None:
    """Calculate the weights of the VFs that are enrolled (esw_qos_normalize_vports_min_rate).

    The firmware gets those that change, one by one, until it refuses one.
    """
    vfs = sorted((changed, *pf.others), key=lambda vf: vf.number)
    enrolled = [vf for vf in vfs if vf.number < pf.vfs and BW_SHARE in vf.kept]
    shares = bw_shares({vf.number: vf.min_tx_rate for vf in enrolled})
    for vf in enrolled:
        if vf.kept[BW_SHARE] != shares[vf.number]:
            ask_if_named(pf, "MODIFY_SCHEDULING_ELEMENT")
            vf.kept[BW_SHARE] = shares[vf.number]


def _has_ingress_acl(pf: Pf, vf: Vf) -> bool:
    return vf.number < pf.vfs and not vf.unchecked and bool(vf.spoofchk or vf.vlan or vf.qos)


def _has_egress_acl(pf: Pf, vf: Vf) -> bool:
    return vf.number < pf.vfs and _NO_EGRESS_ACL not in vf.kept and bool(vf.vlan or vf.qos)


def _make_ingress_acl(pf: Pf, vf: Vf, *, exists: bool) -> None:
    """Make a VF's ingress ACL again, by which alone spoof check is in force: if that is refused, there is none.

    Source: esw_acl_ingress_lgcy_setup, which removes the rules first, and the rest where it fails. MAC and VLAN are set
    by then (mlx5_esw_set_vport_mac_locked, __mlx5_eswitch_set_vport_vlan). A VF that does not exist has none.
    """
    vf.unchecked = False
    if vf.number < pf.vfs and (vf.spoofchk or vf.vlan or vf.qos):
        try:
            _make_acl(pf, exists=exists)
        except OSError:
            vf.unchecked = True
            raise


def _make_egress_acl(pf: Pf, vf: Vf, *, exists: bool) -> None:
    """Make a VF's egress ACL again, which keeps frames of other VLANs away (esw_acl_egress_lgcy_setup)."""
    vf.kept.pop(_NO_EGRESS_ACL, None)
    if vf.number < pf.vfs and (vf.vlan or vf.qos):
        try:
            _make_acl(pf, exists=exists)
        except OSError:
            vf.kept[_NO_EGRESS_ACL] = True
            raise


def _make_acl(pf: Pf, *, exists: bool) -> None:
    """Send the commands for a table and its groups, unless it ``exists``, and for its entries."""
    if not exists:
        ask_if_named(pf, "CREATE_FLOW_TABLE")
        ask_if_named(pf, "SET_FLOW_TABLE_ROOT")
        ask_if_named(pf, "CREATE_FLOW_GROUP")
    ask_firmware(pf, "SET_FLOW_TABLE_ENTRY")
