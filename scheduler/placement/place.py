"""Choose a PF of one node for each VF that a pod requests: exactly, within a budget of steps.

A pure function: what is requested (`VfDemand`) and what is free (`PfCapacity`, one a PF) give `Fit`, `NoFit` with
the bound that was broken, or `OutOfBudget`. A placement is found whenever one exists: no PF gives more VFs or a larger
Σ min_tx_rate than it has free, and each VF lies on a PF that its selectors allow. That is bin packing, strongly
NP-hard, so running out of steps is an outcome of its own. Steps are counted, never timed: equal input has an equal
outcome. `scheduler.placement.packing` explains the search, and why its answers are exact.

How the VFs lie over the PFs: ``distinct`` is required (each on another PF; those that have the most VFs left are
preferred). ``pack`` (fewest PFs) and ``spread`` (no PF gives more of the pod's VFs than another must) are preferred:
honoured as far as the steps reach, never a reason to refuse. Both start from the first placement found and search for a
better one among fewer slots or fewer PFs.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal, NamedTuple

from mooring.annotations.request import Spreading
from scheduler.placement.packing import Bin, BudgetSpent, Item, Steps, pack_items
from scheduler.placement.shared_ports import SharedPorts, pack_on_ports, sizes_by_port

# What fills PFs exactly with rates that are nearly equal takes the most: with 3,000 steps 1 to 5 of 100 such pods of 12
# to 16 VFs were not placed, with 6,000 about 1 of 300.
BUDGET = 12_000
# Steps beyond these, for two PFs only: their search has a bound (`subset_sum`). 64 VFs on PFs with 1,600,000 Mb/s free
# take some 23,000 where no VF is left over and no set is found near a draw, of ten sizes as of all different ones.
TWO_PFS = 40_000
# Some 25 ms: what is searched before others have their turn.
SEARCHED_AT_ONCE = 15_000
# Outcomes kept, of up to 10 KiB each for a node of 16 PFs, and of up to 40 KiB for one of 256.
REMEMBERED = 1024
Why = Literal["selectors", "vfs", "rate", "distinct", "combination"]


class VfDemand(NamedTuple):
    """One VF: the Mb/s to reserve for it, and the PFs that may give it (bit ``i``: the PF with index ``i``)."""

    min_tx_rate: int
    pfs: int


class PfCapacity(NamedTuple):
    """What a PF has free: VFs, and Mb/s that no VF reserves. A negative number (of a degraded link) counts as 0.

    PFs that share a port each show the Mb/s that the port has left.
    """

    vfs: int
    mbps: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The index of the PF for each demand, in order."""

    pfs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoFit:
    """No placement exists: the first bound that cannot be met, ``combination`` if only all of them together cannot."""

    why: Why


@dataclass(frozen=True, slots=True)
class OutOfBudget:
    """Neither a placement nor a proof that none exists was found in so many steps."""

    steps: int


FitResult = Fit | NoFit | OutOfBudget
Items = tuple[Item, ...]
Bins = tuple[Bin, ...]


class _StepCount:
    """How many steps all searches of this process have taken."""

    steps = 0


_step_count = _StepCount()


def steps_taken() -> int:
    """Return how many steps all searches have taken so far: what a decision costs, however many nodes it searches."""
    return _step_count.steps


def add_steps(steps: int) -> None:
    """Count steps that a search of another kind has taken: what takes as long as `steps_taken` steps do."""
    _step_count.steps += steps


def place(
    demands: Sequence[VfDemand],
    free: Sequence[PfCapacity],
    spreading: Spreading | None = None,
    budget: int = BUDGET,
    ports: SharedPorts = (),
) -> FitResult:
    """Choose a PF for each demand; equal arguments give equal outcomes. ``ports`` are those that the PFs share."""
    known = (1 << len(free)) - 1
    items = tuple([Item(rate, pfs & known) for rate, pfs in demands])
    if spreading == "distinct":
        return _on_fullest(items, free, budget, ports)
    bins = tuple([Bin(max(0, min(vfs, len(demands))), max(0, mbps)) for vfs, mbps in free])
    return decide(items, bins, spreading, budget, ports)


def _on_fullest(items: Items, free: Sequence[PfCapacity], budget: int, ports: SharedPorts) -> FitResult:
    """Give each item another bin, of as few as have the most VFs left: so the most pods have distinct PFs after it."""
    fullest = sorted((index for index, (vfs, _) in enumerate(free) if vfs > 0), key=lambda index: -free[index].vfs)
    for count in range(len(items), len(fullest)):
        found = decide(items, _one_on_each(fullest[:count], free), "distinct", budget, ports)
        if isinstance(found, Fit):
            return found
        if isinstance(found, OutOfBudget):
            break
    return decide(items, _one_on_each(fullest, free), "distinct", budget, ports)


def _one_on_each(chosen: Collection[int], free: Sequence[PfCapacity]) -> Bins:
    """Return bins for one item each of the chosen PFs, and none for the others."""
    return tuple([Bin(int(index in chosen), max(0, mbps)) for index, (_, mbps) in enumerate(free)])


@lru_cache(maxsize=REMEMBERED)
def decide(items: Items, bins: Bins, spreading: Spreading | None, budget: int, ports: SharedPorts = ()) -> FitResult:
    """Decide one instance of the problem: nodes with as much free on their PFs share the outcome."""
    why = _broken_bound(items, bins, spreading, ports)
    if why is not None:
        return NoFit(why)
    steps = Steps(budget, TWO_PFS)
    try:
        found = _pack(items, bins, ports, steps)
        if found is None:
            return NoFit("combination")
        return Fit(_as_wished(found, items, bins, spreading, steps, ports))
    except BudgetSpent:
        return OutOfBudget(budget)
    finally:
        _step_count.steps += budget - max(steps.left, 0) + TWO_PFS - steps.bounded


def _pack(items: Items, bins: Bins, ports: SharedPorts, steps: Steps) -> tuple[int, ...] | None:
    return pack_on_ports(items, bins, ports, steps) if ports else pack_items(items, bins, steps)


def _as_wished(
    found: tuple[int, ...], items: Items, bins: Bins, spreading: Spreading | None, steps: Steps, ports: SharedPorts
) -> tuple[int, ...]:
    """Return the placement that honours the preference most, or the one found if the steps run out."""
    with suppress(BudgetSpent):
        for narrowed in _narrowed(found, bins, spreading):
            steps.spend(len(bins))
            broken = _broken_bound(items, narrowed, spreading, ports)
            better = None if broken else _pack(items, narrowed, ports, steps)
            if better is not None:
                return better
    return found


def _narrowed(found: tuple[int, ...], bins: Bins, spreading: Spreading | None) -> Iterator[Bins]:
    """Yield narrowed bins, the best first: any placement within them is better than the one found."""
    if spreading == "spread":
        for level in range(1, max(map(found.count, found), default=0)):
            yield tuple(Bin(min(capacity.slots, level), capacity.size) for capacity in bins)
    elif spreading == "pack":
        for count in range(1, len(set(found))):
            for chosen in combinations(range(len(bins)), count):
                yield tuple(capacity if index in chosen else Bin(0, 0) for index, capacity in enumerate(bins))


def _broken_bound(items: Items, bins: Bins, spreading: Spreading | None, ports: SharedPorts) -> Why | None:
    if 0 in [item.bins for item in items]:
        return "selectors"
    if sum([capacity.slots for capacity in bins]) < len(items):
        return "distinct" if spreading == "distinct" else "vfs"
    sizes = sizes_by_port(bins, ports).values() if ports else [capacity.size for capacity in bins]
    if sum(sizes) < sum([item.size for item in items]):
        return "rate"
    return None
