"""Prepare a PF for the rates that are about to be set on its VFs; the caller holds the PF's lock."""

from collections.abc import Collection, Iterable, Mapping

from cni.plan import attachment
from cni.spec.skel import NIC_REFUSED, CniError
from cni.vf.node import Node
from mooring.pf_drivers import MIN_RATE_IS_A_WEIGHT, without_rates
from mooring.settings import VfSettings


def check(
    node: Node,
    pf_pci: str,
    pf: str,
    found: Mapping[int, VfSettings],
    wanted: Mapping[int, VfSettings],
    shares: Collection[int],
) -> None:
    """Raise CniError 101 if the min rates of a PF would exceed its line rate; ``shares`` are the call's own.

    The shares of other pods are read from the ledger, and only if the sum is too large with them.
    """
    line_mbps = node.sysfs.line_rate_mbps(pf_pci, pf)
    try:
        attachment.check_rates(pf, line_mbps, found, wanted, shares)
    except CniError:
        others = {entry.vf for entry in node.ledger.entries() if entry.pf == pf and entry.share}
        attachment.check_rates(pf, line_mbps, found, wanted, {*shares, *(others - wanted.keys())})


def enrol(node: Node, pf_pci: str, pf: str, found: Mapping[int, VfSettings], wanted: Iterable[VfSettings]) -> None:
    """Give all VFs of a PF rates, 0/0, before the first of them gets a min; raise CniError 101.

    `init` does so too. But VFs may have been made without it, and a reload of the PF's driver forgets every VF's rates:
    then no VF has a min either, so that whoever sets the first one comes through here.
    """
    if node.sysfs.driver(pf_pci) not in MIN_RATE_IS_A_WEIGHT:
        return
    has_min = any(settings.min_tx_rate for settings in found.values())
    if has_min or not any(settings.min_tx_rate for settings in wanted):
        return
    try:
        node.vf_settings.clear_rates(pf, without_rates(found))
    except OSError as refused:
        what = f"pf {pf!r} refuses rates 0/0 for its vfs: {attachment.symbol(refused)}"
        raise CniError(NIC_REFUSED, what, "without them no min_tx_rate holds there") from refused
