"""hns3, Kunpeng's NIC with hns_roce. Source: drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_main.c."""

import errno

from devcluster.hosts.personalities.personality import (
    PRIORITIES,
    VLANS,
    Personality,
    Pf,
    Vf,
    ask_firmware,
    is_multicast,
    refusal,
)
from mooring.nic.settings import LinkState


class Hns3(Personality):
    """The NIC of a Kunpeng 930 (device version 3)."""

    name = "hns3"
    driver = vf_driver = "hns3"
    vendor = "0x19e5"
    device = "0xa222"
    vf_device = "0xa22f"
    rdma_prefix = "hns_"

    def set_vf_mac(self, pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast (hns3_nic_set_vf_mac); reset the VF if it changes (hclge_set_vf_mac).

        The VF's RDMA device is removed and made again (hclgevf_reset_rebuild), its netdev stays.
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        if mac != vf.mac:
            vf.mac = mac
            pf.reset.add(vf.number)

    def set_vf_vlan(self, _pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take any VLAN and priority (hclge_set_vf_vlan_filter)."""
        if vlan >= VLANS or qos >= PRIORITIES:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        vf.vlan, vf.qos = vlan, qos

    def set_vf_rate(self, pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Refuse any min rate and a max rate above the port's (hclge_vf_rate_param_check)."""
        if min_tx_rate or max_tx_rate > pf.mbps:
            raise refusal(errno.EINVAL, "rate", (min_tx_rate, max_tx_rate))
        vf.max_tx_rate = max_tx_rate

    def set_vf_spoofchk(self, pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Take either, and do nothing for the one that is set (hclge_set_vf_spoofchk).

        MACs are set first, then VLANs (hclge_set_vf_spoofchk_hw): where the second is refused, the first is in force,
        and the whole reads as before.
        """
        if spoofchk != vf.spoofchk:
            vf.unchecked = not spoofchk
            ask_firmware(pf, "VLAN spoof check")
            vf.spoofchk, vf.unchecked = spoofchk, False

    def set_vf_link_state(self, _pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (hclge_set_vf_link_state)."""
        vf.link_state = link_state

    def set_vf_trust(self, _pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take either; the VF is not reset (hclge_set_vf_trust)."""
        vf.trust = trust
