"""i40e, whose VFs have no RDMA device. Source: drivers/net/ethernet/intel/i40e/i40e_virtchnl_pf.c."""

import errno
from dataclasses import replace

from devcluster.hosts.personalities.personality import (
    NO_MAC,
    PRIORITIES,
    VLANS,
    Personality,
    Pf,
    Vf,
    ask_firmware,
    is_multicast,
    refusal,
)
from mooring.nic.settings import LinkState, VfSettings


class I40e(Personality):
    """An XL710."""

    name = "i40e"
    driver, vf_driver = "i40e", "iavf"
    vendor = "0x8086"
    device = "0x1583"
    vf_device = "0x154c"
    rdma_prefix = "irdma"
    has_rdma = False
    # i40e_ndo_get_vf_config: default_lan_addr, which i40e_vc_add_mac_addr_msg sets from what the VF's driver sends.
    reports_own_mac = True

    def fresh(self, number: int, own_mac: str = NO_MAC) -> Vf:
        """Return a VF with spoofchk on (i40e_alloc_vfs)."""
        return Vf(number, own_mac, spoofchk=True)

    def set_vf_mac(self, pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast, 00:… to set none, and reset the VF, changed or not.

        Source: i40e_ndo_set_vf_mac.
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        vf.mac = mac
        pf.reset.add(vf.number)

    def set_vf_vlan(self, pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take any VLAN and priority, and reset the VF if they are others (i40e_ndo_set_vf_port_vlan)."""
        if vlan >= VLANS or qos >= PRIORITIES:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        if (vlan, qos) != (vf.vlan, vf.qos):
            vf.vlan, vf.qos = vlan, qos
            pf.reset.add(vf.number)

    def set_vf_rate(self, pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Refuse any min rate (i40e_ndo_set_vf_bw), and a max rate above the link's speed (i40e_set_bw_limit)."""
        if min_tx_rate or max_tx_rate > pf.mbps:
            raise refusal(errno.EINVAL, "rate", (min_tx_rate, max_tx_rate))
        vf.max_tx_rate = max_tx_rate

    def set_vf_spoofchk(self, pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Take either, and do nothing for the one that is set (i40e_ndo_set_vf_spoofchk).

        What the firmware refuses reads as set, and is not asked for again.
        """
        if spoofchk != vf.spoofchk:
            in_force, vf.spoofchk = vf.spoofchk and not vf.unchecked, spoofchk
            vf.unchecked = spoofchk and not in_force
            ask_firmware(pf, "update vsi")
            vf.unchecked = False

    def set_vf_link_state(self, pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it, and reset the VF unless it is "disable" (i40e_ndo_set_vf_link_state)."""
        vf.link_state = link_state
        if link_state != "disable":
            pf.reset.add(vf.number)

    def set_vf_trust(self, pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take either, and reset the VF if it changes (i40e_ndo_set_vf_trust)."""
        if trust != vf.trust:
            vf.trust = trust
            pf.reset.add(vf.number)

    def get_vf_config(self, pf: Pf, vf: Vf) -> VfSettings:
        """Answer with the VF's own address where it has no admin MAC (i40e_ndo_get_vf_config)."""
        answer = super().get_vf_config(pf, vf)
        return replace(answer, mac=vf.own_mac) if vf.mac == NO_MAC else answer
