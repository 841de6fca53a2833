"""Choose PFs of one node for the VFs of several pods, of which some want distinct PFs each. Pure.

Takes each pod's demands, and what the PFs have free; gives each pod's PFs, in order, or None. Pods that want nothing of
how their VFs lie are one instance of `scheduler.placement.place`; this is for the others. No two VFs of a distinct pod
lie on one PF, no PF gives more VFs or Mb/s than it has, and each VF lies on a PF that its demand allows.

What it is: depth first, the pods that reserve the most first, each VF on the fullest PF that takes it. PFs that have as
much left and that all demands see alike are one choice. What is left after a pod, if the others did not fit into it, is
remembered. So a placement is found whenever one exists, if the steps last.

It must never tell a placement that breaks one of these rules; None may also mean that the steps have run out, or that
there are too many VFs for a search.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.placement.place import PfCapacity, VfDemand, add_steps

# A step takes as long as some of those of `place`: so many are some 20 ms at the most.
_STEPS = 1_500
_AS_LONG_AS = 6
# VFs in all: the search is as deep as there are VFs and pods.
MOST_VFS = 200

Left = tuple[tuple[int, int], ...]
Chosen = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PodDemands:
    """A pod's VFs, each on another PF if it ``is_distinct``."""

    vfs: tuple[VfDemand, ...]
    is_distinct: bool

    @property
    def rate(self) -> int:
        """The Mb/s of all its VFs."""
        return sum(one.min_tx_rate for one in self.vfs)


def place_together(pods: Sequence[PodDemands], free: Sequence[PfCapacity]) -> list[Chosen] | None:
    """Return the index of the PF for each demand of each pod; None if none was found."""
    if sum(len(one.vfs) for one in pods) > MOST_VFS:
        return None
    order = sorted(range(len(pods)), key=lambda number: (-pods[number].rate, -len(pods[number].vfs)))
    search = _Search([_largest_first(pods[number]) for number in order], len(free), _STEPS)
    found = search.place(0, tuple((max(vfs, 0), max(mbps, 0)) for vfs, mbps in free))
    add_steps(_AS_LONG_AS * (_STEPS - max(search.steps, 0)))
    if found is None:
        return None
    placed: list[Chosen] = [()] * len(pods)
    for number, chosen in zip(order, found, strict=True):
        # Back into the order of the pod's demands.
        by_demand = dict(zip(_numbers(pods[number]), chosen, strict=True))
        placed[number] = tuple(by_demand[index] for index in range(len(chosen)))
    return placed


def _numbers(pod: PodDemands) -> list[int]:
    return sorted(range(len(pod.vfs)), key=lambda index: (-pod.vfs[index].min_tx_rate, pod.vfs[index].pfs))


def _largest_first(pod: PodDemands) -> PodDemands:
    return PodDemands(tuple(pod.vfs[index] for index in _numbers(pod)), pod.is_distinct)


@dataclass(slots=True)
class _Search:
    pods: Sequence[PodDemands]
    count: int
    steps: int
    # What was left of each PF before a pod that did not fit into it with those after it.
    failed: set[tuple[int, tuple[tuple[int, int, int], ...]]] = field(default_factory=set)
    # PFs that all demands see alike have one number.
    kinds: list[int] = field(init=False)
    needs: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        seen = [tuple(vf.pfs >> index & 1 for pod in self.pods for vf in pod.vfs) for index in range(self.count)]
        numbers = {one: number for number, one in enumerate(dict.fromkeys(seen))}
        self.kinds = [numbers[one] for one in seen]
        self.needs = [
            (sum(len(pod.vfs) for pod in self.pods[number:]), sum(pod.rate for pod in self.pods[number:]))
            for number in range(len(self.pods) + 1)
        ]

    def place(self, number: int, left: Left) -> list[Chosen] | None:
        """Place the pods from a number on into what is left."""
        if number == len(self.pods):
            return []
        vfs, mbps = self.needs[number]
        if sum(one for one, _ in left) < vfs or sum(one for _, one in left) < mbps:
            return None
        key = number, tuple(sorted((kind, *one) for kind, one in zip(self.kinds, left, strict=True)))
        if key in self.failed:
            return None
        for chosen, after in self._ways(self.pods[number], (), left):
            if (rest := self.place(number + 1, after)) is not None:
                return [chosen, *rest]
            if self.steps <= 0:
                return None
        self.failed.add(key)
        return None

    def _ways(self, pod: PodDemands, chosen: Chosen, left: Left) -> Iterator[tuple[Chosen, Left]]:
        """Yield the PFs for a pod's demands, and what they leave."""
        if len(chosen) == len(pod.vfs):
            yield chosen, left
            return
        rate, allowed = pod.vfs[len(chosen)]
        tried = set[tuple[int, int, int, bool]]()
        for index in sorted(range(self.count), key=lambda one: (left[one][1], -left[one][0])):
            vfs, mbps = left[index]
            is_used = index in chosen
            if vfs < 1 or mbps < rate or not allowed >> index & 1 or (is_used and pod.is_distinct):
                continue
            if (what := (self.kinds[index], vfs, mbps, is_used)) in tried:
                continue
            tried.add(what)
            self.steps -= 1
            if self.steps <= 0:
                return
            yield from self._ways(pod, (*chosen, index), (*left[:index], (vfs - 1, mbps - rate), *left[index + 1 :]))
