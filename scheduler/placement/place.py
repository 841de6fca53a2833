"""Choose a PF of one node for each VF that a pod requests: exactly, within a budget of steps.

This is a pure function from the request (`VfDemand`) and the free capacity (`PfCapacity`, one per PF) to `Fit`, `NoFit`
with the violated bound, or `OutOfBudget`. No PF provides more VFs or a larger Σ min_tx_rate than it has free, and each
VF is on a PF that its selectors allow. `scheduler.placement.bin_packing` is the search, and explains why it is exact.

``distinct`` is required (each VF on another PF, preferably PFs with the most free VFs). ``pack`` (fewest PFs) and
``spread`` (no PF provides more of the pod's VFs than necessary) are preferred: the search for a better placement than
the first one, with fewer slots or PFs, goes as far as the steps suffice.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from mooring.annotations.request import PfSpread
from scheduler.placement.bin_packing import Bin, Item, Packing, SharedPorts, pack, size_by_port
from scheduler.placement.memo import Memo
from scheduler.placement.steps import OutOfSteps, Steps

# About 5 ms, of which up to 8 VFs rarely need a third; and 25 ms, after which others have their turn.
BUDGET, SEARCH_TURN = 3_000, 15_000
# Number of cached outcomes, of up to 10 KiB each for a node with 16 PFs, and of up to 40 KiB with 256.
MAX_OUTCOMES = 1024
# VFs of an ordinary request.
_FEW_VFS = 8
NoFitReason = Literal["selectors", "vfs", "rate", "distinct", "combination"]


class VfDemand(NamedTuple):
    """One VF: the Mb/s to reserve for it, and the PFs that may provide it (bit ``i``: the PF with index ``i``)."""

    min_tx_rate: int
    pfs: int

    def within(self, pfs: int) -> "VfDemand":
        return VfDemand(self.min_tx_rate, self.pfs & pfs)


class PfCapacity(NamedTuple):
    """The free VFs of a PF, and the Mb/s that no VF of its port reserves; negative (of a degraded link) counts as 0."""

    vfs: int
    mbps: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The index of the PF for each demand, in order."""

    pfs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoFit:
    """No placement exists: the first bound that cannot be met, ``combination`` if each can, but not all together."""

    reason: NoFitReason


@dataclass(frozen=True, slots=True)
class OutOfBudget:
    """The steps were spent without finding a placement or a proof that none exists."""

    steps: int


FitResult = Fit | NoFit | OutOfBudget
Items = tuple[Item, ...]
Bins = tuple[Bin, ...]
# Keyed by the problem, so that nodes with equal free capacities share the outcome.
outcomes = Memo[tuple[Items, Bins, PfSpread | None, int, SharedPorts], FitResult](MAX_OUTCOMES)


def weight_of(vfs: Sequence[object]) -> int:
    """Return how many ordinary results one for so many VFs counts as."""
    return 1 + max(len(vfs) - 1, 0) // _FEW_VFS


def place(
    demands: Sequence[VfDemand],
    free: Sequence[PfCapacity],
    preference: PfSpread | None = None,
    budget: int = BUDGET,
    ports: SharedPorts = (),
    *,
    steps: Steps,
) -> FitResult:
    """Choose a PF for each demand, for at most ``budget`` steps; ``ports`` are those that the PFs share."""
    all_pfs = (1 << len(free)) - 1
    items = tuple([Item(rate, pfs & all_pfs) for rate, pfs in demands])
    if preference == "distinct":
        return _on_fullest(items, free, budget, ports, steps)
    bins = tuple([Bin(max(0, min(vfs, len(demands))), max(0, mbps)) for vfs, mbps in free])
    return _decide(items, bins, preference, budget, ports, steps)


def _on_fullest(items: Items, free: Sequence[PfCapacity], budget: int, ports: SharedPorts, steps: Steps) -> FitResult:
    """Give each item its own bin, using bins with the most free VFs, so that later pods find most distinct PFs."""
    fullest = sorted((index for index, (vfs, _) in enumerate(free) if vfs > 0), key=lambda index: -free[index].vfs)
    for count in range(len(items), len(fullest)):
        outcome = _decide(items, _single_bins(fullest[:count], free), "distinct", budget, ports, steps)
        if isinstance(outcome, Fit):
            return outcome
        if isinstance(outcome, OutOfBudget):
            break
    return _decide(items, _single_bins(fullest, free), "distinct", budget, ports, steps)


def _single_bins(indexes: Collection[int], free: Sequence[PfCapacity]) -> Bins:
    """Return bins for one item each for the chosen PFs, and for none for the others."""
    return tuple([Bin(int(index in indexes), max(0, mbps)) for index, (_, mbps) in enumerate(free)])


def _decide(
    items: Items, bins: Bins, preference: PfSpread | None, budget: int, ports: SharedPorts, steps: Steps
) -> FitResult:
    key = items, bins, preference, budget, ports
    outcome = outcomes.get(key)
    if outcome is None:
        search_steps = Steps(budget)
        outcome = outcomes.keep(key, _outcome(items, bins, preference, ports, search_steps), weight_of(items))
        steps.spend(min(search_steps.spent, budget))
    return outcome


def _outcome(items: Items, bins: Bins, preference: PfSpread | None, ports: SharedPorts, steps: Steps) -> FitResult:
    if (reason := _first_conflict(items, bins, preference, ports)) is not None:
        return NoFit(reason)
    try:
        packing = pack(items, bins, ports, steps)
        if packing is None:
            return NoFit("combination")
        return Fit(_apply_preference(packing, items, bins, preference, steps, ports))
    except OutOfSteps:
        return OutOfBudget(steps.limit)


def _apply_preference(
    packing: Packing, items: Items, bins: Bins, preference: PfSpread | None, steps: Steps, ports: SharedPorts
) -> Packing:
    """Return the placement that honors the preference most, or the given one if the steps run out."""
    with suppress(OutOfSteps):
        for narrow_bins in _narrow(packing, bins, preference):
            steps.spend(len(bins))
            conflict = _first_conflict(items, narrow_bins, preference, ports)
            better = None if conflict else pack(items, narrow_bins, ports, steps)
            if better is not None:
                return better
    return packing


def _narrow(packing: Packing, bins: Bins, preference: PfSpread | None) -> Iterator[Bins]:
    """Yield narrowed bins, the best first: any placement within them is better than the given one."""
    if preference == "spread":
        for level in range(1, max(map(packing.count, packing), default=0)):
            yield tuple(Bin(min(capacity.slots, level), capacity.size) for capacity in bins)
    elif preference == "pack":
        for count in range(1, len(set(packing))):
            for indexes in combinations(range(len(bins)), count):
                yield tuple(capacity if index in indexes else Bin(0, 0) for index, capacity in enumerate(bins))


def _first_conflict(items: Items, bins: Bins, preference: PfSpread | None, ports: SharedPorts) -> NoFitReason | None:
    if 0 in [item.bins for item in items]:
        return "selectors"
    if sum([capacity.slots for capacity in bins]) < len(items):
        return "distinct" if preference == "distinct" else "vfs"
    sizes = size_by_port(bins, ports).values() if ports else [capacity.size for capacity in bins]
    if sum(sizes) < sum([item.size for item in items]):
        return "rate"
    return None
