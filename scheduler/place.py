"""Choose a PF of one node for each VF that a pod asks for: exactly, within a budget of steps.

Takes values, returns values: what is wanted (`Want`) and what is free (`Room`, one a PF) give `Placed`, `NoFit` with
the bound that was broken, or `OutOfBudget`. A placement is found whenever one exists: each PF holds as many VFs and as
much Σ min_tx_rate as it has free, and each VF lies on a PF that its selectors allow. That is bin packing, strongly
NP-hard, so running out of steps is an outcome of its own. Steps are counted, never timed: equal input, equal outcome.

How the VFs lie over the PFs: ``distinct`` is a rule (each on another PF); ``pack`` (fewest PFs) and ``spread`` (no PF
gets more of the pod's VFs than another must) are wishes: honoured as far as the steps reach, never a reason to refuse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from mooring.inventory import Pf
from mooring.request import Spreading, VfRequest
from scheduler.packing import Bin, BudgetSpent, Item, Steps, pack_items

# The hardest instances of bench/place.py then take under 5 ms; half as many more decide 3 % more of them.
BUDGET = 4_000
Why = Literal["selectors", "vfs", "rate", "distinct", "combination"]


@dataclass(frozen=True, slots=True)
class Want:
    """One VF: the Mb/s to reserve for it, and the PFs that may give it (bit ``i``: the PF with index ``i``)."""

    min_tx_rate: int
    pfs: int


@dataclass(frozen=True, slots=True)
class Room:
    """What a PF has free: VFs, and Mb/s that no VF reserves. Less than nothing (a link that degraded) counts as 0."""

    vfs: int
    mbps: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The index of the PF for each want, in the order of the wants."""

    pfs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoFit:
    """No placement exists: the first rule that none can meet, ``combination`` where only all of them together fail."""

    why: Why


@dataclass(frozen=True, slots=True)
class OutOfBudget:
    """Neither a placement nor a proof that there is none was found in so many steps."""

    steps: int


Outcome = Placed | NoFit | OutOfBudget


def eligible_pfs(request: VfRequest, pfs: Sequence[Pf]) -> int:
    """Return the PFs that a request's selectors allow, as bits.

    A PF that is down or of unknown rate gives VFs without a min rate only: there is nothing to reserve.
    """
    mask = 0
    for index, pf in enumerate(pfs):
        selected = (
            (request.network is None or request.network == pf.network)
            and (request.link is None or request.link == pf.link)
            and (request.pf is None or fnmatchcase(pf.name, request.pf))
        )
        if selected and (request.min_tx_rate == 0 or (pf.up and pf.offer_mbps > 0)):
            mask |= 1 << index
    return mask


def place(
    wants: Sequence[Want], free: Sequence[Room], spreading: Spreading | None = None, budget: int = BUDGET
) -> Outcome:
    """Choose a PF for each want; equal arguments give equal outcomes."""
    items = [Item(want.min_tx_rate, want.pfs & ((1 << len(free)) - 1)) for want in wants]
    most = 1 if spreading == "distinct" else len(wants)
    bins = [Bin(max(0, min(room.vfs, most)), max(0, room.mbps)) for room in free]
    why = _broken_bound(items, bins, spreading)
    if why is not None:
        return NoFit(why)
    try:
        found = pack_items(items, bins, Steps(budget))
    except BudgetSpent:
        return OutOfBudget(budget)
    return NoFit("combination") if found is None else Placed(found)


def _broken_bound(items: Sequence[Item], bins: Sequence[Bin], spreading: Spreading | None) -> Why | None:
    if any(item.bins == 0 for item in items):
        return "selectors"
    if sum(room.slots for room in bins) < len(items):
        return "distinct" if spreading == "distinct" else "vfs"
    if sum(room.size for room in bins) < sum(item.size for item in items):
        return "rate"
    return None
