"""Decide which admin MAC a VF is given back: the one that was found, or none where that was the VF's own."""

from cni.plan.attachment import NO_MAC
from mooring.nic.vf_addresses import vf_mac
from mooring.records.ledger import Original

# Drivers that report the address which the VF's own driver chose where no admin MAC is set: ice_get_vf_cfg
# (hw_lan_addr), i40e_ndo_get_vf_config (default_lan_addr), bnxt_get_vf_config (vf_mac_addr). All three take 00:… for
# "none": __ice_set_vf_mac, i40e_ndo_set_vf_mac, bnxt_set_vf_mac.
_REPORT_OWN_MAC = frozenset({"ice", "i40e", "bnxt_en"})


def was_own(original: Original, driver: str | None, pf_mac: str | None, vf: int) -> bool:
    """Return whether the admin MAC that was found is not known to have been set: it is the netdev's own.

    To set it would forbid the VF to change it from then on. One that `init` made is an admin MAC, although the netdev
    has it too: it is made of the PF's MAC, and the VF's number.
    """
    mac = original.settings.mac
    if driver not in _REPORT_OWN_MAC or mac is None or mac != original.netdev_mac:
        return False
    return pf_mac is None or len(pf_mac) != len(mac) or mac != vf_mac(pf_mac, vf)


def known(mac: str | None, driver: str | None) -> str | None:
    """Return a reported admin MAC; None where there is none, or it may be the VF's own, which is not to be set."""
    return None if mac == NO_MAC or driver in _REPORT_OWN_MAC else mac
