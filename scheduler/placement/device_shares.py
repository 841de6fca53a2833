"""Divide a pod's VFs among its claimed devices: below the PCIe roots of each as many as of any other, or one more.

Which VF goes to which device is free, because the order of a claim's devices is not under its owner's control. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mooring.annotations.inventory import Pf
from mooring.nic.pci import pcie_root
from scheduler.placement.place import VfDemand
from scheduler.placement.steps import Steps

# Of each claimed device the PCIe roots below which it is.
DeviceRoots = tuple[frozenset[str], ...]


class _Share(NamedTuple):
    """The PFs near some devices, as bits: how many VFs they give in any case, and how many more they may give."""

    pfs: int
    vfs: int
    extra: int


def near(demands: Sequence[VfDemand], devices: DeviceRoots, pfs: Sequence[Pf]) -> tuple[VfDemand, ...]:
    """Return the demands restricted to PFs near any of the devices."""
    mask = _below(frozenset().union(*devices), pfs)
    return tuple([demand.within(mask) for demand in demands])


def divisions(
    demands: tuple[VfDemand, ...], devices: DeviceRoots, pfs: Sequence[Pf], steps: Steps
) -> Iterator[tuple[VfDemand, ...]]:
    """Yield each way to restrict every demand to the PFs near one device; raise OutOfSteps."""
    vfs, extra = divmod(len(demands), len(devices))
    shares = tuple([_Share(_below(roots, pfs), vfs * count, count) for roots, count in Counter(devices).items()])
    return _divide(demands, shares, extra, steps)


def _divide(
    demands: tuple[VfDemand, ...], shares: tuple[_Share, ...], extra: int, steps: Steps, first: int = 0
) -> Iterator[tuple[VfDemand, ...]]:
    """Yield the divisions among shares from the first on, of which ``extra`` give one VF more than in any case."""
    if not demands:
        yield ()
        return
    demand, other_demands = demands[0], demands[1:]
    for number in range(first, len(shares)):
        share = shares[number]
        steps.spend()
        if not demand.pfs & share.pfs or not (share.vfs or (extra and share.extra)):
            continue
        rest = share._replace(vfs=share.vfs - 1) if share.vfs else share._replace(extra=share.extra - 1)
        # A demand that equals the previous one goes to the same devices or later ones: no two divisions are alike.
        start = number if other_demands and other_demands[0] == demand else 0
        other_shares = (*shares[:number], rest, *shares[number + 1 :])
        for division in _divide(other_demands, other_shares, extra - (not share.vfs), steps, start):
            yield demand.within(share.pfs), *division


def _below(roots: frozenset[str], pfs: Sequence[Pf]) -> int:
    """Return the PFs below these roots, as bits."""
    return sum([1 << index for index, pf in enumerate(pfs) if pcie_root(pf.pci, pf.pcie) in roots])
