"""Write the node's part of the offer into the state folder, where mooring-cni reads it at ADD."""

import structlog

from advertiser.host.read_host import Roots
from advertiser.init.set_aside import mark_set_aside
from advertiser.inventory.driver_settings import settings_of
from advertiser.inventory.facts import Host, PciFunction
from advertiser.inventory.matching import OfferedPf, offered_pf
from advertiser.inventory.offer import Offer
from mooring.files import read_file, write_file
from mooring.nic.pf_drivers import MIN_RATE_IS_A_WEIGHT
from mooring.records.node_offer import NAME, PfOffer, dump_node_offer

_log = structlog.get_logger()


def leave_offer(roots: Roots, host: Host, offer: Offer, node: str) -> None:
    """Write the offer's terms for each PF on offer, with or without ``init``; raise OSError."""
    pfs = {
        function.address: _of_pf(function, found)
        for function in host.functions
        if (found := offered_pf(function, host, offer, node)) is not None
    }
    mark_set_aside(roots.state, roots.sysfs, host, pfs)
    text = dump_node_offer(pfs)
    # An unchanged file keeps its time: ADD answers "try again later" only shortly after the offer has changed.
    if read_file(roots.state / NAME) != text:
        write_file(roots.state / NAME, text)


def _of_pf(function: PciFunction, found: OfferedPf) -> PfOffer:
    """Return a PF's terms; drop ``default_share_mbps``, with a warning, if min_tx_rate is not a share on this NIC."""
    share = found.terms.default_share_mbps
    is_share = function.driver in MIN_RATE_IS_A_WEIGHT and "min_tx_rate" in settings_of(function, found.link)
    if share and not is_share:
        _log.warning(
            "setting of the offer ignored: min_tx_rate is not a share on this NIC",
            pf=found.name,
            pci=function.address,
            driver=function.driver,
            settings="default_share_mbps",
        )
        share = 0
    terms = found.terms
    return PfOffer(
        default_share_mbps=share,
        repair_node_guid=terms.repair_node_guid,
        rebind_after_privileged=terms.rebind_after_privileged,
        network=terms.network,
        set_aside=terms.set_aside,
        keep_percent=terms.keep_percent,
        allow=terms.allow,
        vlan=terms.vlan,
        namespaces=terms.access.namespaces,
    )
