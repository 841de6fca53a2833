"""Which settings of a VF each PF driver supports through rtnetlink, by the name of the setting.

Read from the ``ndo_set_vf_*`` functions of each driver in Linux 6.12. A driver that is not listed supports none, so a
request for one is refused before placement rather than on the node. On InfiniBand the netdev is IPoIB's, which only has
a GUID and a link state to set, whichever driver is below.
"""

from mooring.names import LinkType
from mooring.settings import VfSettings

_ETHERNET = frozenset({"mac", "vlan", "qos", "trust", "spoofchk", "link_state"})
_BOTH_RATES = frozenset({"min_tx_rate", "max_tx_rate"})
_MAX_RATE = frozenset({"max_tx_rate"})
_INFINIBAND = frozenset({"guid", "link_state"})

_BY_DRIVER = {
    "mlx5_core": _ETHERNET | _BOTH_RATES,
    # mlx4_set_vf_rate refuses any min_tx_rate (EPROTONOSUPPORT).
    "mlx4_core": _ETHERNET - {"trust"} | _MAX_RATE,
    "ice": _ETHERNET | _BOTH_RATES,
    # i40e_ndo_set_vf_bw and ixgbe_ndo_set_vf_bw refuse any min_tx_rate.
    "i40e": _ETHERNET | _MAX_RATE,
    "ixgbe": _ETHERNET | _MAX_RATE,
    # igb_ndo_set_vf_bw supports only the 82576.
    "igb": _ETHERNET - {"link_state"},
    # bnxt_set_vf_vlan refuses a priority.
    "bnxt_en": _ETHERNET - {"qos"} | _BOTH_RATES,
    # The software NIC on which Mooring is tested with the kernel's own SR-IOV core.
    "simvf": _ETHERNET | _BOTH_RATES,
}


def settings_of(driver: str | None, link: LinkType) -> frozenset[str]:
    """Return the names of the settings that a PF with this driver supports."""
    taken = _BY_DRIVER.get(driver or "", frozenset())
    return _INFINIBAND if taken and link == "infiniband" else taken


def refused_settings(settings: VfSettings, driver: str | None, link: LinkType) -> tuple[str, ...]:
    """Return the names of those of ``settings`` that a PF with this driver has no operation for.

    On Ethernet a driver that is not listed must be tried: only then is it known what it refuses. On InfiniBand IPoIB
    handles settings for every driver (ipoib_netdev_ops_pf in drivers/infiniband/ulp/ipoib/ipoib_main.c).
    """
    if link == "infiniband":
        taken = _INFINIBAND
    elif (taken := settings_of(driver, link)) == frozenset():
        return ()
    return tuple(name for name in settings.to_fields() if name not in taken)
