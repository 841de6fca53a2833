"""ice, with the out-of-tree iavf and irdma: the in-tree iavf of Linux 6.12 has no RDMA device for its VFs.

Sources: drivers/net/ethernet/intel/ice/ice_sriov.c, ice_lib.c, ice_virtchnl.c and ice_vf_lib.c. A VF that is reset
keeps its netdev (iavf_reset_task unregisters none); its RDMA device is removed first and made again last, by
iavf_idc_deinit and iavf_idc_init of Intel's iavf 4.13.27, which iavf_reset_task calls.
"""

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


class Ice(Personality):
    """An E810-C."""

    name = "ice"
    driver, vf_driver = "ice", "iavf"
    vendor = "0x8086"
    device = "0x1592"
    vf_device = "0x1889"
    rdma_prefix = "irdma"
    # ice_devlink_create_pf_port registers the port with ice_devlink_set_switch_id's id, in either mode.
    has_devlink_port = has_switch_id = True
    # ice_get_vf_cfg: hw_lan_addr, which ice_vfhw_mac_add sets from what the VF's driver sends.
    reports_own_mac = True

    def fresh(self, number: int, own_mac: str = NO_MAC) -> Vf:
        """Return a VF with spoofchk on (ice_initialize_vf_entry)."""
        return Vf(number, own_mac, spoofchk=True)

    def set_vf_mac(self, pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast, 00:… to set none, and reset the VF (__ice_set_vf_mac).

        The address that the VF has already is not set as its admin MAC.
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        if mac != self.get_vf_config(pf, vf).mac:
            vf.mac = mac
            pf.reset.add(vf.number)

    def set_vf_vlan(self, pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take any VLAN and priority, and reset the VF if they are others (ice_set_vf_port_vlan)."""
        if vlan >= VLANS or qos >= PRIORITIES:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        if (vlan, qos) != (vf.vlan, vf.qos):
            vf.vlan, vf.qos = vlan, qos
            pf.reset.add(vf.number)

    def set_vf_rate(self, pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Take rates up to the link's speed (ice_set_min_bw_limit, ice_set_max_bw_limit), which is 0 without a link.

        The sum of all VFs' min rates is checked against it too (ice_min_tx_rate_oversubscribed).
        """
        speed = pf.mbps if pf.up else 0
        if min_tx_rate + sum(other.min_tx_rate for other in pf.others) > speed or max_tx_rate > speed:
            raise refusal(errno.EINVAL, "rate", (min_tx_rate, max_tx_rate))
        vf.min_tx_rate, vf.max_tx_rate = min_tx_rate, max_tx_rate

    def set_vf_spoofchk(self, _pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Take either (ice_set_vf_spoofchk)."""
        vf.spoofchk = spoofchk

    def set_vf_link_state(self, _pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (ice_set_vf_link_state)."""
        vf.link_state = link_state

    def set_vf_trust(self, pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take either, and reset the VF if it changes (ice_set_vf_trust)."""
        if trust != vf.trust:
            vf.trust = trust
            pf.reset.add(vf.number)

    def get_vf_config(self, pf: Pf, vf: Vf) -> VfSettings:
        """Answer with the VF's own address where it has no admin MAC (ice_get_vf_cfg)."""
        answer = super().get_vf_config(pf, vf)
        return replace(answer, mac=vf.own_mac) if vf.mac == NO_MAC else answer
