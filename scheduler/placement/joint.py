"""Place all kinds of a pod on one node together: a backtracking search over the constraints' proposals, VFs last.

Each constraint proposes units given the proposals of the constraints before it. If a later one finds nothing, the next
proposal of the previous one is tried. The search finds a placement if the proposals contain one, within a number of
proposals that does not depend on time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest
from scheduler.constraints.kinds import Fault, Wish, words
from scheduler.constraints.protocol import VFS, Beside, Proposal, Units, Unmet
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, Placement, demands_on, place_request
from scheduler.placement.place import VfDemand
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs

# A proposal and its check cost about ten microseconds, and a search for VFs within it up to 5 ms.
BUDGET = 256


class Part(Protocol):
    """One kind that is placed on one node."""

    @property
    def name(self) -> str: ...

    def proposals(self, beside: Beside, steps: Steps) -> Iterator[Proposal]:
        """Yield proposals for it, given those of the other kinds; raise `Unmet` or `Fault`."""


@dataclass(frozen=True, slots=True)
class KindPart:
    """A kind other than VFs: the units that the node has left, the VFs that the pod requests, and the node's PFs."""

    wish: Wish
    units: Units[Any]
    vfs: PodRequest | None
    pfs: tuple[Pf, ...]

    @property
    def name(self) -> str:
        return self.wish.kind.name

    def proposals(self, beside: Beside, steps: Steps) -> Iterator[Proposal]:
        kind, request = self.wish.kind, self.wish.request
        if kind.place_beside_vfs is not None:
            return kind.place_beside_vfs(request, self.units, self.vfs, self.pfs, steps)
        return kind.proposals(request, self.units, beside)


@dataclass(frozen=True, slots=True)
class VfPart:
    """The VFs, which are placed last. A unit is named by its PF here, and its VF is chosen afterwards."""

    request: PodRequest
    free_vfs: FreeVfs

    @property
    def name(self) -> str:
        return VFS

    def proposals(self, beside: Beside, steps: Steps) -> Iterator[Proposal]:
        """Yield the one placement that is found within the other kinds' proposals."""
        pfs, demands = self.free_vfs.pfs, demands_on(self.request, self.free_vfs.pfs)
        if isinstance(demands, Refused):
            raise Unmet(demands.reason)
        for proposal in beside.values():
            demands = _narrow(demands, proposal.narrows.get(VFS, {}), pfs)
        placement = place_request(self.request, demands, self.free_vfs, steps)
        if isinstance(placement, Refused):
            raise Unmet(placement.reason)
        yield Proposal(tuple(pfs[index].name for index in placement.pfs))


def _narrow(
    demands: tuple[VfDemand, ...], narrows: Mapping[int, frozenset[str]], pfs: tuple[Pf, ...]
) -> tuple[VfDemand, ...]:
    result = list(demands)
    for interface, pf_names in narrows.items():
        if 0 <= interface < len(demands):
            mask = sum([1 << index for index, pf in enumerate(pfs) if pf.name in pf_names])
            result[interface] = demands[interface].within(mask)
    return tuple(result)


class _Search:
    """One search; ``reasons`` has for each kind the first reason why it has no (further) proposal."""

    def __init__(self, parts: Sequence[Part], budget: int, steps: Steps) -> None:
        self.parts, self.budget, self.steps = parts, budget, steps
        self.reasons: dict[str, str] = {}
        self.names: set[str] = set()

    def descend(self, depth: int, beside: Mapping[str, Proposal]) -> Mapping[str, Proposal] | None:
        if depth == len(self.parts):
            return beside
        part = self.parts[depth]
        try:
            for proposal in part.proposals(beside, self.steps):
                self.names.add(part.name)
                if (proposals := self.descend(depth + 1, {**beside, part.name: proposal})) is not None:
                    return proposals
                self.budget -= 1
                if self.budget < 0:
                    self.reasons[part.name] = OUT_OF_BUDGET
                    return None
        except (Unmet, Fault) as refusal:
            reason = words(str(refusal))
            if reason == OUT_OF_BUDGET or part.name not in self.reasons:
                self.reasons[part.name] = reason
        return None

    def reason(self) -> str:
        """Return why nothing was found: the budget, the first kind without any proposal, or their combination."""
        if OUT_OF_BUDGET in self.reasons.values():
            return OUT_OF_BUDGET
        first = next(part.name for part in self.parts if part.name not in self.names)
        if first == self.parts[0].name:
            return self.reasons.get(first, f"not enough free {first}")
        return f"free {', '.join(part.name for part in self.parts)} do not fit together"


def place_kinds(parts: Sequence[Part], free_vfs: FreeVfs, budget: int = BUDGET, *, steps: Steps) -> Placement | Refused:
    """Return where a pod's VFs are placed and its units of each kind, or the reason why that is impossible."""
    search = _Search(parts, budget, steps)
    proposals = search.descend(0, {})
    if proposals is None:
        return Refused(search.reason())
    index_of = {pf.name: index for index, pf in enumerate(free_vfs.pfs)}
    pfs = tuple(index_of[name] for name in proposals[VFS].units) if VFS in proposals else ()
    return Placement(pfs, tuple((kind, proposal) for kind, proposal in proposals.items() if kind != VFS))


def section(proposal: Proposal) -> dict[str, object]:
    """Return the value of ``ext.<kind>`` in the assignment."""
    return {**proposal.details, "units": list(proposal.units)}
