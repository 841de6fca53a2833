"""Decide which admin MAC to restore on a VF: the original one, or none if the original was the VF's own MAC."""

from cni.plan.attachment import NO_MAC
from mooring.nic.vf_addresses import vf_mac
from mooring.records.ledger import Original

# Without an admin MAC these drivers report the address that the VF's own driver chose: ice_get_vf_cfg (hw_lan_addr),
# i40e_ndo_get_vf_config (default_lan_addr), bnxt_get_vf_config (vf_mac_addr). In all three a MAC of zeros means "none":
# __ice_set_vf_mac, i40e_ndo_set_vf_mac, bnxt_set_vf_mac.
_REPORT_OWN_MAC = frozenset({"ice", "i40e", "bnxt_en"})


def was_own(original: Original, driver: str | None, pf_mac: str | None, vf: int) -> bool:
    """Return whether the reported original admin MAC is only the netdev's own MAC.

    Setting it as admin MAC would keep the VF from changing its MAC. An admin MAC from `init` is a real one although the
    netdev has it too. It is recognized because `init` derives it from the PF's MAC and the VF's index.
    """
    mac = original.settings.mac
    if driver not in _REPORT_OWN_MAC or mac is None or mac != original.netdev_mac:
        return False
    return pf_mac is None or len(pf_mac) != len(mac) or mac != vf_mac(pf_mac, vf)


def certain_mac(mac: str | None, driver: str | None) -> str | None:
    """Return a reported admin MAC; None if there is none, or if it may be only the VF's own MAC."""
    return None if mac == NO_MAC or driver in _REPORT_OWN_MAC else mac
