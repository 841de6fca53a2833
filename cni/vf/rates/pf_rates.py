"""Check rates before they are set on VFs, and prepare the PF for them; the caller holds the PF's lock."""

from collections.abc import Collection, Iterable, Mapping

from cni.plan import attachment
from cni.spec.skel import NIC_REFUSAL, CniError
from cni.vf import offer
from cni.vf.node import Node
from mooring.nic.pf_drivers import MIN_RATE_IS_A_WEIGHT, without_rates
from mooring.nic.refusals import symbol
from mooring.nic.settings import VfSettings

# A VF by its PF's name and its own index there.
PfVf = tuple[str, int]


def check(
    node: Node,
    pf_pci: str,
    pf: str,
    current: Mapping[str, Mapping[int, VfSettings]],
    target: Mapping[str, Mapping[int, VfSettings]],
    shares: Collection[PfVf],
) -> None:
    """Raise CniError 101 if the min rates of the PFs on a cable would exceed the line rate of ``pf``.

    ``current`` has the settings of the PF and of the other PFs on its cable, by PF and VF. ``target`` has the new
    ones. ``shares`` are the VFs of the call with a default share. The shares of other pods are read from the ledger
    only if the sum is too large with them.
    """
    line_mbps = node.sysfs.line_rate_mbps(pf_pci, pf)
    try:
        _check(pf, line_mbps, current, target, shares)
    except CniError:
        recorded_shares = {(entry.pf, entry.vf) for entry in node.ledger.entries() if entry.share}
        other_shares = {(name, vf) for name, vf in recorded_shares if vf not in target.get(name, {})}
        _check(pf, line_mbps, current, target, {*shares, *other_shares})


def _check(
    pf: str,
    line_mbps: int,
    current: Mapping[str, Mapping[int, VfSettings]],
    target: Mapping[str, Mapping[int, VfSettings]],
    shares: Collection[PfVf],
) -> None:
    of_pf = {name: {vf for owner, vf in shares if owner == name} for name in current}
    other_mbps = sum(
        attachment.reserved_mbps(settings, target.get(name, {}), of_pf[name])
        for name, settings in current.items()
        if name != pf
    )
    attachment.check_rates(pf, line_mbps, current[pf], target.get(pf, {}), other_mbps, of_pf[pf])


def other_pfs(node: Node, pf_pci: str, port: Iterable[str]) -> list[str]:
    """Return the netdevs of the other PFs of a port, which are the only PFs whose VFs can have rates."""
    netdevs = (node.sysfs.netdev_name(pci) for pci in port if pci != pf_pci)
    return [netdev for netdev in netdevs if netdev is not None]


def check_offer(
    node: Node,
    uid: str,
    port: Collection[str],
    current: Mapping[str, Mapping[int, VfSettings]],
    target: Mapping[str, Mapping[int, VfSettings]],
    shares: Collection[PfVf],
) -> None:
    """Raise CniError 11 or 100 if the min rates of pods on a cable would exceed the rate that the operator offers.

    ``port`` has the PCI addresses of the cable's PFs; each PF of ``current`` is one of them. Rates of VFs without a pod
    do not count: they are part of the rate that the operator keeps for the host.
    """
    new_mins = _mins({pf: vfs for pf, vfs in target.items() if pf in current})
    requested_mbps = sum(low for vf, low in new_mins.items() if vf not in shares)
    if not requested_mbps:
        return
    offered_mbps = _offered_mbps(node, port)
    other_mins = {vf: low for vf, low in _mins(current).items() if vf not in new_mins}
    total = requested_mbps + sum(other_mins.values())
    if total > offered_mbps:
        of_pods = {(entry.pf, entry.vf) for entry in node.ledger.entries() if not entry.share}
        total = requested_mbps + sum(low for vf, low in other_mins.items() if vf in of_pods)
    if total > offered_mbps:
        pfs = " and ".join(repr(pf) for pf in sorted(current))
        raise offer.refusal(node, uid, f"min rates of {total} Mb/s on pf {pfs} would exceed {offered_mbps} Mb/s")


def _mins(settings: Mapping[str, Mapping[int, VfSettings]]) -> dict[PfVf, int]:
    return {(pf, vf): vf_settings.min_tx_rate or 0 for pf, vfs in settings.items() for vf, vf_settings in vfs.items()}


def _offered_mbps(node: Node, port: Collection[str]) -> int:
    """Return the smallest rate that a PF of the cable offers, in Mb/s; PFs with an unknown line rate do not count."""
    lines = ((pci, node.sysfs.line_rate_mbps(pci, node.sysfs.netdev_name(pci) or "")) for pci in port)
    return min((offer.of_pf(node, pci).offered_mbps(line) for pci, line in lines if line), default=0)


def enrol(node: Node, pf_pci: str, pf: str, current: Mapping[int, VfSettings], target: Iterable[VfSettings]) -> None:
    """Set rates 0/0 on all VFs of a PF before the first of them gets a min rate; raise CniError 101.

    `init` also does this, but VFs may have been created without it, and a reload of the PF's driver loses all rates. In
    both cases no VF has a min rate of Mooring's, so the first call that sets one runs this. A min rate from another
    program does not prove that all VFs take part in the scheduling.
    """
    if node.sysfs.driver(pf_pci) not in MIN_RATE_IS_A_WEIGHT or not any(settings.min_tx_rate for settings in target):
        return
    with_min = {vf for vf, settings in current.items() if settings.min_tx_rate}
    if with_min and any(
        entry.pf == pf and entry.vf in with_min and entry.set.min_tx_rate for entry in node.ledger.entries()
    ):
        return
    try:
        node.vf_settings.clear_rates(pf, without_rates(current))
    except OSError as error:
        text = f"pf {pf!r} refuses rates 0/0 for its vfs: {symbol(error)}"
        raise CniError(NIC_REFUSAL, text, "without them min_tx_rate has no effect on that pf") from error
