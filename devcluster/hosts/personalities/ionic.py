"""ionic, AMD Pensando's. Source: drivers/net/ethernet/pensando/ionic/ionic_lif.c, the same in Linux 6.12 and 7.2.

Its RDMA devices are ionic_rdma's, which is in 7.2 and not in 6.12. The VFs have some where the firmware says so
(ionic_auxbus_register).
"""

import errno

from devcluster.hosts.personalities.personality import VLANS, Personality, Pf, Vf, ask_firmware, is_multicast, refusal
from mooring.nic.settings import LinkState


class Ionic(Personality):
    """A Pollara 400; what the firmware refuses stays as it was (ionic_set_vf_config)."""

    name = "ionic"
    driver = vf_driver = "ionic"
    vendor = "0x1dd8"
    device = "0x1002"
    vf_device = "0x1003"
    rdma_prefix = "ionic_"
    # ionic_devlink_register: a physical port without a switch id.
    has_devlink_port = True

    def set_vf_mac(self, _pf: Pf, vf: Vf, mac: str) -> None:
        """Take any address that is not multicast, 00:… to set none (ionic_set_vf_mac)."""
        if is_multicast(mac):
            raise refusal(errno.EINVAL, "mac", mac)
        vf.mac = mac

    def set_vf_vlan(self, _pf: Pf, vf: Vf, vlan: int, qos: int) -> None:
        """Take any VLAN, and refuse any priority (ionic_set_vf_vlan)."""
        if qos or vlan >= VLANS:
            raise refusal(errno.EINVAL, "vlan", (vlan, qos))
        vf.vlan = vlan

    def set_vf_rate(self, _pf: Pf, vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        """Refuse any min rate; no max rate is compared with the link's speed (ionic_set_vf_rate)."""
        if min_tx_rate:
            raise refusal(errno.EINVAL, "rate", (min_tx_rate, max_tx_rate))
        vf.max_tx_rate = max_tx_rate

    def set_vf_spoofchk(self, pf: Pf, vf: Vf, *, spoofchk: bool) -> None:
        """Ask the firmware each time (ionic_set_vf_spoofchk)."""
        ask_firmware(pf, "vf setattr")
        vf.spoofchk = spoofchk

    def set_vf_link_state(self, _pf: Pf, vf: Vf, link_state: LinkState) -> None:
        """Take it (ionic_set_vf_link_state)."""
        vf.link_state = link_state

    def set_vf_trust(self, _pf: Pf, vf: Vf, *, trust: bool) -> None:
        """Take either (ionic_set_vf_trust)."""
        vf.trust = trust
