"""Choose a pod's GPUs on one node together with where its VFs may lie. Pure.

Every choice of as many GPUs is a candidate; the tightest comes first, and the first one beside which the VFs fit is
taken. So a placement is found whenever there is one, unless the steps run out, which is an outcome of its own.

Tight is a choice from a small group: a group is what lies below one bridge, on one NUMA node, or in one group of links,
or the whole node. Of equally tight choices the one that breaks fewer groups counts, a broken group being one of which
some GPUs are taken and some stay: larger groups stay whole for pods that need them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations

from mooring.gpu.inventory import Gpu, common_bridges
from mooring.gpu.request import GpuRequest
from mooring.inventory import Pf

# For each interface that is bound to a GPU the names of the PFs that may give it.
Narrowing = Mapping[int, frozenset[str]]
# All choices of 8 among 16 GPUs.
MOST_CHOICES = 12_870
OUT_OF_BUDGET = "the search for GPUs ran out of steps"
_FEW = "not enough free GPUs"
_UNFIT = "not enough free GPUs of the requested model or memory"
_APART = {
    "link": "not enough free GPUs that are linked with each other",
    "switch": "not enough free GPUs under one PCIe switch",
    "numa": "not enough free GPUs on one NUMA node",
}
_NO_PF = "no free GPUs that share a bridge with the PFs of the pod's interfaces"
_TOGETHER = "free GPUs and VFs do not fit together"


@dataclass(frozen=True, slots=True)
class GpuPlacement:
    """The GPUs in the order of their PCI addresses, and what that leaves to the pod's interfaces."""

    gpus: tuple[Gpu, ...]
    narrowing: Narrowing


def place_gpus(
    request: GpuRequest,
    free: Sequence[Gpu],
    admitted: Sequence[Sequence[Pf]],
    fits: Callable[[Narrowing], bool],
    budget: int = MOST_CHOICES,
) -> GpuPlacement | str:
    """Return the placement, or why there is none; the words name no node.

    ``admitted`` has for each interface the PFs that its selectors admit, ``fits`` says whether the VFs can be placed
    within a narrowing.
    """
    suitable = [gpu for gpu in sorted(free, key=lambda gpu: gpu.pci) if _suits(request, gpu)]
    if len(suitable) < request.count:
        return _FEW if len(free) < request.count else _UNFIT
    choices = list(_choices(request, suitable, budget))
    if not choices and request.together is not None:
        return _APART[request.together]
    exhausted = len(choices) > budget
    groups = _groups(free)
    paired = ((choice, _narrowing(request, choice, admitted)) for choice in choices[:budget])
    possible = [(choice, narrowing) for choice, narrowing in paired if narrowing is not None]
    possible.sort(key=lambda pair: (_cost(pair[0], groups), [gpu.pci for gpu in pair[0]]))
    tried: dict[tuple[tuple[int, frozenset[str]], ...], bool] = {}
    for choice, narrowing in possible:
        key = tuple(sorted(narrowing.items()))
        if key not in tried:
            tried[key] = fits(narrowing)
        if tried[key]:
            return GpuPlacement(choice, narrowing)
    if exhausted:
        return OUT_OF_BUDGET
    return _TOGETHER if possible else _NO_PF


def beside(gpu: Gpu, admitted: Sequence[Pf]) -> frozenset[str]:
    """Return the PFs that the GPU is nearest to: below the lowest bridge that it shares with any of those admitted."""
    shared = {pf.name: common_bridges(gpu.pcie, pf.pcie) for pf in admitted}
    lowest = max(shared.values(), default=0)
    return frozenset(name for name, depth in shared.items() if depth == lowest) if lowest else frozenset()


def _suits(request: GpuRequest, gpu: Gpu) -> bool:
    if request.model is not None and not fnmatchcase(gpu.model or "", request.model):
        return False
    return (gpu.memory_mb or 0) >= request.memory_mb


def _choices(request: GpuRequest, suitable: Sequence[Gpu], budget: int) -> Iterator[tuple[Gpu, ...]]:
    """Yield the choices that are together as requested, one more than the budget at most."""
    left = budget + 1
    for pool in _pools(request, suitable):
        for choice in combinations(pool, request.count):
            yield choice
            left -= 1
            if not left:
                return


def _pools(request: GpuRequest, suitable: Sequence[Gpu]) -> Iterator[tuple[Gpu, ...]]:
    """Yield the largest sets of GPUs that are together as requested; they are disjoint."""
    if request.together is None:
        yield tuple(suitable)
        return
    pools: dict[object, list[Gpu]] = {}
    for gpu in suitable:
        # The first bridge of a path is the root port: nothing but a switch can be shared below one.
        where = {"link": gpu.link, "numa": gpu.numa, "switch": gpu.pcie[0] if gpu.pcie else None}[request.together]
        if where is not None:
            pools.setdefault(where, []).append(gpu)
    yield from (tuple(pool) for pool in pools.values() if len(pool) >= request.count)


def _narrowing(request: GpuRequest, choice: Sequence[Gpu], admitted: Sequence[Sequence[Pf]]) -> Narrowing | None:
    """Return which PFs may give interface k beside GPU k, None if one of the GPUs shares a bridge with none of them."""
    if request.vfs is None:
        return {}
    found = {index: beside(gpu, pfs) for index, (gpu, pfs) in enumerate(zip(choice, admitted, strict=False))}
    return found if all(found.values()) else None


def _groups(free: Sequence[Gpu]) -> list[frozenset[str]]:
    """Return the groups of free GPUs, the whole node among them."""
    members: dict[object, set[str]] = {}
    for gpu in free:
        keys: list[object] = [("node",), *(("bridge", bridge) for bridge in gpu.pcie)]
        keys += [("numa", gpu.numa)] if gpu.numa is not None else []
        keys += [("link", gpu.link)] if gpu.link is not None else []
        for key in keys:
            members.setdefault(key, set()).add(gpu.pci)
    return sorted(set(map(frozenset, members.values())), key=lambda group: (len(group), sorted(group)))


def _cost(choice: Sequence[Gpu], groups: Sequence[frozenset[str]]) -> tuple[int, int]:
    """Return the size of the smallest group that holds the choice, and how many GPUs broken groups lose."""
    taken = frozenset(gpu.pci for gpu in choice)
    tightest = next(len(group) for group in groups if taken <= group)
    return tightest, sum(len(group) for group in groups if group & taken and not group <= taken)
