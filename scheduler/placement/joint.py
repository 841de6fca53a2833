"""Place all kinds of a pod on one node together: a backtracking search over the constraints' proposals, VFs last.

Each constraint proposes given what the constraints before it propose in this attempt; if a later one finds no way, the
next proposal of the one before is tried. The search finds a placement if the proposals contain one, within a number of
proposals that does not depend on time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest
from mooring.gpu.request import GpuRequest
from scheduler.constraints.kinds import Fault, Wish, words
from scheduler.constraints.protocol import VFS, Beside, Proposal, Units, Unmet
from scheduler.placement.assign import OUT_OF_BUDGET, Placement
from scheduler.placement.gpus_constraint import GPUS
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.placement.vfs_constraint import Vfs

# A proposal and its check cost some ten microseconds, and a search for VFs under one up to 5 ms.
BUDGET = 256
_VFS = Vfs()


class Step(Protocol):
    """One kind that is placed on one node."""

    @property
    def name(self) -> str: ...

    def proposals(self, beside: Beside) -> Iterator[Proposal]:
        """Yield ways to place it beside the others; raise `Unmet` or `Fault`."""


@dataclass(frozen=True, slots=True)
class OfKind:
    """A kind that a plug-in adds, with the units that the node has left."""

    wish: Wish
    left: Any

    @property
    def name(self) -> str:
        return self.wish.kind.name

    def proposals(self, beside: Beside) -> Iterator[Proposal]:
        return self.wish.kind.proposals(self.wish.request, self.left, beside)


@dataclass(frozen=True, slots=True)
class OfGpus:
    """The GPUs: our own code too, which sees the VFs that the pod requests, and the node's PFs."""

    name: str
    request: GpuRequest
    left: Units[Any]
    vfs: PodRequest | None
    pfs: tuple[Pf, ...]

    def proposals(self, _beside: Beside) -> Iterator[Proposal]:
        return GPUS.place_beside(self.request, self.left, self.vfs, self.pfs)


@dataclass(frozen=True, slots=True)
class OfVfs:
    """The VFs: our own code, so it needs no isolation."""

    request: PodRequest
    left: FreeVfs

    @property
    def name(self) -> str:
        return VFS

    def proposals(self, beside: Beside) -> Iterator[Proposal]:
        return _VFS.place(self.request, self.left, beside)


def step_of(wish: Wish, left: Any, vfs: PodRequest | None, pfs: tuple[Pf, ...]) -> Step:
    """Return the step for one kind that a pod requests."""
    if isinstance(wish.request, GpuRequest):
        return OfGpus(wish.kind.name, wish.request, left, vfs, pfs)
    return OfKind(wish, left)


class _Search:
    """One search; ``reasons`` holds for each kind its first reason for having no (further) way."""

    def __init__(self, steps: Sequence[Step], budget: int) -> None:
        self.steps = steps
        self.budget = budget
        self.reasons: dict[str, str] = {}
        self.proposed: set[str] = set()

    def descend(self, depth: int, beside: Mapping[str, Proposal]) -> Mapping[str, Proposal] | None:
        if depth == len(self.steps):
            return beside
        step = self.steps[depth]
        try:
            for proposal in step.proposals(beside):
                self.proposed.add(step.name)
                if (found := self.descend(depth + 1, {**beside, step.name: proposal})) is not None:
                    return found
                self.budget -= 1
                if self.budget < 0:
                    self.reasons[step.name] = OUT_OF_BUDGET
                    return None
        except (Unmet, Fault) as ended:
            reason = words(str(ended))
            if reason == OUT_OF_BUDGET or step.name not in self.reasons:
                self.reasons[step.name] = reason
        return None

    def reason(self) -> str:
        """Return why nothing was found: what ran out, or the first kind without any way, or their combination."""
        if OUT_OF_BUDGET in self.reasons.values():
            return OUT_OF_BUDGET
        first = next(step.name for step in self.steps if step.name not in self.proposed)
        if first == self.steps[0].name:
            return self.reasons.get(first, f"not enough free {first}")
        return f"free {', '.join(step.name for step in self.steps)} do not fit together"


def place_together(steps: Sequence[Step], free_vfs: FreeVfs, budget: int = BUDGET) -> Placement | str:
    """Return where a pod's VFs are placed and its units of each kind, or the reason why there is no way."""
    search = _Search(steps, budget)
    found = search.descend(0, {})
    if found is None:
        return search.reason()
    index_of = {pf.name: index for index, pf in enumerate(free_vfs.pfs)}
    pfs = tuple(index_of[name] for name in found[VFS].units) if VFS in found else ()
    return Placement(pfs, tuple((kind, proposal) for kind, proposal in found.items() if kind != VFS))


def section(proposal: Proposal) -> dict[str, object]:
    """Return the value of ``ext.<kind>`` in the assignment."""
    return {**proposal.details, "units": list(proposal.units)}
