"""Assign exact VFs of one node to a pod: choose a PF for each interface, and then the VFs.

Claimed devices divide the VFs: below the PCIe roots of each are as many as of any other, or one more. Which VF goes to
which device is free, because the order of a claim's devices is not under its owner's control.

Reasons are texts that are counted over nodes, so they name no node. A rate of 0 requests nothing: no reservation, no
limit.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from mooring.annotations.assignment import AssignedVf, pod_interface
from mooring.annotations.inventory import Pf
from mooring.annotations.request import PfSpread, PodRequest, VfRequest
from mooring.nic.pci import pcie_root
from scheduler.constraints.protocol import Proposal
from scheduler.kube.outcomes import Refused
from scheduler.placement.bin_packing import SharedPorts, bits
from scheduler.placement.eligibility import eligibility
from scheduler.placement.memo import Memo
from scheduler.placement.place import (
    BUDGET,
    MAX_OUTCOMES,
    SEARCH_TURN,
    Fit,
    FitResult,
    OutOfBudget,
    PfCapacity,
    VfDemand,
    place,
    weight_of,
)
from scheduler.placement.shares import Cap, caps_for, share_excess, unavoidable, within
from scheduler.placement.steps import OutOfSteps, Steps
from scheduler.placement.vf_accounting import MAX_SIMILAR_PFS, NEVER_USED, FreeSince, FreeVfs, are_like_others

NOT_ENOUGH: Mapping[str, str] = {
    # Each interface has possible PFs (`demands_on`) until the proposals of other kinds narrow them.
    "selectors": "no PF can provide an interface near the pod's other resources",
    "vfs": "not enough free RDMA VFs",
    "rate": "not enough free RDMA bandwidth",
    "distinct": "not enough PFs with free VFs for distinct placement",
    "combination": "free RDMA VFs and bandwidth do not fit the interfaces together",
}
NO_DIVISION = "the PFs there cannot give each device its share of the interfaces"
OUT_OF_BUDGET = "search for a placement ran out of steps"
# Of each claimed device the PCIe roots below which it is.
DeviceRoots = tuple[frozenset[str], ...]
SEARCH_CONTINUES = "node(s) not searched yet for a VF placement; the search continues"


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement on one node: for each interface the index of its PF, and the units of other kinds."""

    pfs: tuple[int, ...]
    others: tuple[tuple[str, Proposal], ...] = ()


class _Share(NamedTuple):
    """The PFs near some devices, as bits: how many VFs they give in any case, and how many more they may give."""

    pfs: int
    vfs: int
    extra: int


# Keyed by the identity of a request and of PFs: nodes of one model share their PFs, and pods of one shape their
# request. Hashing both would cost more than the rest of this function.
_demands = Memo[tuple[int, int], tuple[PodRequest, tuple[Pf, ...], tuple[VfDemand, ...] | Refused]](256)

# Keyed by the arguments of `place`: its own cache costs 20 µs more, because it is keyed by the problem.
_placements = Memo[
    tuple[tuple[VfDemand, ...], tuple[PfCapacity, ...], PfSpread | None, SharedPorts], Placement | Refused
](16 * MAX_OUTCOMES)


def demands_on(request: PodRequest, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...] | Refused:
    """Return which PFs may provide each interface, free or not; return the reason if an interface has none."""
    key = id(request), id(pfs)
    if (entry := _demands.get(key)) is not None:
        return entry[2]
    demands = eligibility(request).demands(pfs)
    if are_like_others(pfs):
        _demands.keep(key, (request, pfs, demands), weight_of(request.interfaces))
    return demands


def place_on(
    demands: tuple[VfDemand, ...],
    capacities: tuple[PfCapacity, ...],
    preference: PfSpread | None,
    ports: SharedPorts = (),
    *,
    steps: Steps,
) -> Placement | Refused:
    """Return the PFs for the interfaces, or the reason why they do not fit."""
    key = demands, capacities, preference, ports
    is_kept = len(capacities) <= MAX_SIMILAR_PFS
    placement = _placements.get(key) if is_kept else None
    if placement is None:
        placement = _placement(place(demands, capacities, preference, ports=ports, steps=steps))
        if is_kept:
            _placements.keep(key, placement, weight_of(demands))
    return placement


def _placement(outcome: FitResult) -> Placement | Refused:
    if isinstance(outcome, Fit):
        return Placement(outcome.pfs)
    return Refused(OUT_OF_BUDGET if isinstance(outcome, OutOfBudget) else NOT_ENOUGH[outcome.reason])


def place_within(
    demands: tuple[VfDemand, ...],
    capacities: tuple[PfCapacity, ...],
    preference: PfSpread | None,
    ports: SharedPorts,
    caps: tuple[Cap, ...],
    *,
    steps: Steps,
) -> Placement | Refused:
    """Return a placement within the caps of the pod's namespace, or the reason why there is none."""
    if refusal := unavoidable(demands, caps):
        return refusal
    placement = place_on(demands, capacities, preference, ports, steps=steps)
    if isinstance(placement, Refused) or (refusal := share_excess(placement.pfs, caps)) is None:
        return placement
    choices, searches = Steps(BUDGET), Steps()
    try:
        for restricted in within(demands, caps, choices):
            outcome = place(restricted, capacities, preference, ports=ports, steps=searches)
            if isinstance(outcome, Fit):
                return Placement(outcome.pfs)
            if searches.spent > BUDGET:
                return Refused(OUT_OF_BUDGET)
    except OutOfSteps:
        return Refused(OUT_OF_BUDGET)
    finally:
        steps.spend(choices.spent + searches.spent)
    return refusal


def place_request(
    request: PodRequest, demands: tuple[VfDemand, ...], free_vfs: FreeVfs, steps: Steps
) -> Placement | Refused:
    """Return a placement of a pod's interfaces with these demands, near the devices that it has claimed."""
    if not request.devices:
        return _place_within(request, demands, free_vfs, steps)
    search = Steps(SEARCH_TURN)
    try:
        return _place_near(request, demands, free_vfs, search)
    except OutOfSteps:
        return Refused(OUT_OF_BUDGET)
    finally:
        steps.spend(search.spent)


def _place_near(
    request: PodRequest, demands: tuple[VfDemand, ...], free_vfs: FreeVfs, steps: Steps
) -> Placement | Refused:
    # If the VFs do not fit near all the devices together, no division fits.
    mask = _below(frozenset().union(*request.devices), free_vfs.pfs)
    near_devices = tuple([demand.within(mask) for demand in demands])
    placement = _place_within(request, near_devices, free_vfs, steps)
    if isinstance(placement, Refused):
        return placement
    refusal = Refused(NO_DIVISION)
    for division in divisions(demands, request.devices, free_vfs.pfs, steps):
        placement = _place_within(request, division, free_vfs, steps)
        if not isinstance(placement, Refused):
            return placement
        if refusal.reason != OUT_OF_BUDGET:
            refusal = placement
    return refusal


def _place_within(
    request: PodRequest, demands: tuple[VfDemand, ...], free_vfs: FreeVfs, steps: Steps
) -> Placement | Refused:
    caps = caps_for(free_vfs.shares, request.namespace)
    return place_within(demands, free_vfs.capacities, request.pfs, free_vfs.shared_ports, caps, steps=steps)


def share_refusal(request: PodRequest, free_vfs: FreeVfs) -> Refused | None:
    """Return the refusal by a share that every placement of a request's interfaces exceeds; None if there is none."""
    caps = caps_for(free_vfs.shares, request.namespace)
    demands = demands_on(request, free_vfs.pfs) if caps else ()
    return None if isinstance(demands, Refused) else unavoidable(demands, caps)


def pick_vfs(
    interfaces: Sequence[VfRequest], free_vfs: FreeVfs, placement: Placement, free_since: FreeSince
) -> tuple[AssignedVf, ...]:
    """Return the exact VFs: on each PF the ones that have been free longest, then the lowest."""
    queues = {index: _oldest(free_vfs, index, free_since, placement.pfs.count(index)) for index in set(placement.pfs)}
    vfs = []
    for interface, index in zip(interfaces, placement.pfs, strict=True):
        pf, vf = free_vfs.pfs[index], queues[index].pop()
        vfs.append(
            AssignedVf(
                pf=pf.name,
                vf=vf,
                pci=pf.vf_pci(vf),
                link=pf.link,
                network=pf.network,
                settings=interface.settings,
                interface=pod_interface(interface.name, interface.containers, interface.netdev),
            )
        )
    return tuple(vfs)


def _oldest(free_vfs: FreeVfs, index: int, free_since: FreeSince, count: int) -> list[int]:
    """Return a PF's free VFs in the order to take them from the end: those free longest, then the lowest."""
    times, vfs = free_since.get(free_vfs.pfs[index].name, ()), bits(free_vfs.free[index])
    if not times:
        return list(islice(vfs, count))[::-1]
    return heapq.nsmallest(count, vfs, key=lambda vf: times[vf] if vf < len(times) else NEVER_USED)[::-1]


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
