"""bnxt_en: Broadcom's NetXtreme-E. Source: drivers/net/ethernet/broadcom/bnxt/bnxt_sriov.c."""

import errno
from contextlib import suppress
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


class Bnxt(Personality):
    """A BCM57508."""

    name = "bnxt"
    driver = vf_driver = "bnxt_en"
    vendor = "0x14e4"
    device = "0x1750"
    vf_device = "0x1806"
    rdma_prefix = "bnxt_re"
    # bnxt_dl_register registers the port with the device's serial number as its switch id, in either mode.
    has_devlink_port = has_switch_id = True
    # bnxt_get_vf_config: vf_mac_addr, which the VF's driver sends by bnxt_approve_mac.
    reports_own_mac = True

    def sriov_configure(self, pf: Pf, wanted: int) -> int:
        """Answer 0 and do nothing, removing VFs included, while the PF's netdev is closed (bnxt_sriov_configure)."""
        if not pf.up:
            return 0
        return super().sriov_configure(pf, wanted)

    def set_vf_mac(self, _pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast; 00:… lets the VF use its own (bnxt_set_vf_mac).

        The VF is not reset; its netdev takes the address when it is opened next (bnxt_update_vf_mac).
        """
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        vf.mac = mac

    def set_vf_vlan(self, _pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take a VLAN with a priority, and no priority without a VLAN (bnxt_set_vf_vlan)."""
        if vlan >= VLANS or qos >= PRIORITIES or (not vlan and qos):
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        vf.vlan, vf.qos = vlan, qos

    def set_vf_rate(self, pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Take rates up to the link's speed each, and any where that is unknown; sums are not checked.

        bnxt_set_vf_bw compares with bnxt_fw_to_ethtool_speed, whose SPEED_UNKNOWN (-1) is the largest number there is
        in the u32 that holds it.
        """
        if pf.mbps and max(min_tx_rate, max_tx_rate) > pf.mbps:
            raise refusal(errno.EINVAL, "rate", (min_tx_rate, max_tx_rate))
        vf.min_tx_rate, vf.max_tx_rate = min_tx_rate, max_tx_rate

    def set_vf_spoofchk(self, _pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Take either (bnxt_set_vf_spoofchk)."""
        vf.spoofchk = spoofchk

    def set_vf_link_state(self, _pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (bnxt_set_vf_link_state)."""
        vf.link_state = link_state

    def set_vf_trust(self, pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take either, also where the firmware refuses it (bnxt_set_vf_trust).

        What the firmware has is reported (bnxt_is_trusted_vf).
        """
        with suppress(OSError):
            ask_firmware(pf, "trusted vf")
            vf.trust = trust

    def get_vf_config(self, pf: Pf, vf: Vf) -> VfSettings:
        """Answer with the VF's own address where it has no admin MAC (bnxt_get_vf_config)."""
        answer = super().get_vf_config(pf, vf)
        return replace(answer, mac=vf.own_mac) if vf.mac == NO_MAC else answer
