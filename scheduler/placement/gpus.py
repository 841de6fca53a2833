"""GPUs as a constraint, Mooring's own kind ``gpu``: choose a pod's GPUs on one node, and what that leaves for its VFs.

The id of a unit is a GPU's PCI address. `scheduler.placement.joint` places it together with the pod's VFs. It can read
more about these than a plug-in: which PFs each interface selects, because they determine where its GPU may be. Pure.

A group of GPUs is the GPUs below one bridge, on one NUMA node, in one group of links, a single GPU, or the whole node.
Groups are tried from the smallest on, because a choice within a small group is tight. Of equally tight choices, the one
that breaks fewer groups comes first: some of its GPUs would be taken, and larger groups stay whole for pods that need
them. Every choice is tried unless the number of looks is exhausted, which is an outcome of its own; of choices that
leave the same for the VFs, and of adjacent GPUs in the same groups, only the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby

from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest
from mooring.gpu.assignment import KIND, GpuAssignment, details_of
from mooring.gpu.inventory import Gpu, read_gpu_inventory
from mooring.gpu.request import RESOURCE, ContainerLimit, GpuRequest, containers_units, read_gpu_request
from mooring.nic.settings import VfSettings
from scheduler.constraints.kinds import Kind
from scheduler.constraints.protocol import VFS, Beside, NodeSide, PodSide, Proposal, Units, Unmet
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, demands_on
from scheduler.placement.bin_packing import bits, splits
from scheduler.placement.eligibility import glob
from scheduler.placement.memo import Memo, interner
from scheduler.placement.steps import Steps

# For each interface that is bound to a GPU the PFs that may provide it, as a bit mask.
NearPfs = tuple[int, ...]
# For each GPU, and each interface that may be bound to one, the nearest PFs.
Nearest = Sequence[Sequence[int]]
# A look compares a choice with a group, or a group with the GPUs that are together as requested: about 0.1 µs. There
# are 1,107 choices of 8 of 16 GPUs in pairs, with about 20 groups each, and 12,870 if all GPUs differ.
LOOKS = 1 << 18
# Cost of a choice in addition to its groups, and of each GPU in it; cost of comparing it with the PFs, and each GPU.
_A_CHOICE, _A_GPU = 12, 1
_A_PF_CHECK, _A_NEAR_GPU = 15, 4
_LOOKS_A_STEP = 16
_TOO_FEW = "not enough free GPUs"
_UNFIT = "not enough free GPUs of the requested model or memory"
_UNFIT_BY_TOPOLOGY: Mapping[str, str] = {
    "link": "not enough free GPUs that are linked with each other",
    "switch": "not enough free GPUs under one PCIe switch",
    "numa": "not enough free GPUs on one NUMA node",
}
_NO_PF = "no free GPUs that share a bridge with the PFs of the pod's interfaces"


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """GPUs in the order of their PCI addresses, and what they leave for the pod's interfaces."""

    gpus: tuple[Gpu, ...]
    near_pfs: NearPfs = ()


def refusal(request: GpuRequest, free: Sequence[Gpu]) -> str:
    """Return why no choice of these GPUs serves a request, with any VFs; empty if one may."""
    suitable = _suitable(request, free)
    if suitable.bit_count() < request.count:
        return _TOO_FEW if len(free) < request.count else _UNFIT
    return "" if _pools(request, free, suitable) or request.together is None else _UNFIT_BY_TOPOLOGY[request.together]


def choices(
    request: GpuRequest, free: Sequence[Gpu], nearest: Nearest = (), max_looks: int = LOOKS, *, steps: Steps
) -> Iterator[GpuChoice]:
    """Yield choices, the tightest first; raise `Unmet` with the reason if none is left, or after ``max_looks``.

    ``free`` is in the order of PCI addresses, and ``nearest`` has the same order. GPU k of a choice is bound to
    interface k, while there are both.
    """
    if reason := refusal(request, free):
        raise Unmet(reason)
    search, choices_by_pfs = _Search(request, free, nearest, max_looks), dict[NearPfs, int]()
    try:
        for gpus in search.tightest_first():
            pfs = search.near_pfs(gpus)
            if pfs is not None and choices_by_pfs.setdefault(pfs, gpus) == gpus:
                yield GpuChoice(tuple(free[index] for index in bits(gpus)), pfs)
                if not nearest:
                    return
    finally:
        steps.spend((max_looks - search.looks) // _LOOKS_A_STEP)
    if search.looks < 0:
        raise Unmet(OUT_OF_BUDGET)
    if not choices_by_pfs:
        raise Unmet(_NO_PF)


class _Search:
    """One search; GPUs are bits, in the order of their addresses. ``looks`` are below 0 if they are exhausted."""

    def __init__(self, request: GpuRequest, free: Sequence[Gpu], nearest: Nearest, looks: int) -> None:
        self.looks, self._count, self._nearest = looks, request.count, nearest
        suitable = _suitable(request, free)
        self._pools, self._groups = _pools(request, free, suitable), _groups(free)
        self._splittable = [(group, group.bit_count()) for group in self._groups if group.bit_count() > 1]
        self._runs = self._alike(suitable)
        self._cost = len(self._splittable) + _A_CHOICE + _A_GPU * request.count
        self._gpu_count = len(free)

    def tightest_first(self) -> Iterator[int]:
        """Yield each choice once: within the smallest groups first, of these the ones that break the fewest groups."""
        previous: set[int] = set()
        groups = [group for group in self._groups if group.bit_count() >= self._count]
        for _, equal_groups in groupby(groups, int.bit_count):
            choices = {gpus for group in equal_groups for gpus in self._within(group)} - previous
            previous |= choices
            for gpus in sorted(choices, key=lambda gpus: (self._loss(gpus), self._place(gpus))):
                yield gpus
                if self.looks < 0:
                    return
            if self.looks < 0:
                return

    def near_pfs(self, gpus: int) -> NearPfs | None:
        """Return which PFs may provide interface k near GPU k; None if one of the GPUs shares a bridge with no PF."""
        if not self._nearest:
            return ()
        self.looks -= _A_PF_CHECK + _A_NEAR_GPU * self._count
        pf_masks = []
        for interface, gpu in enumerate(bits(gpus)):
            if interface == len(self._nearest[gpu]):
                break
            if not self._nearest[gpu][interface]:
                return None
            pf_masks.append(self._nearest[gpu][interface])
        return tuple(pf_masks)

    def _within(self, group: int) -> Iterator[int]:
        """Yield the choices within a group that are together as requested, until the looks are exhausted."""
        for pool in self._pools:
            self.looks -= 1
            members = group & pool
            if members.bit_count() >= self._count:
                runs = [gpus for run in self._runs if (gpus := [gpu for gpu in run if members >> gpu & 1])]
                for choice in _combinations(runs, self._count):
                    self.looks -= self._cost
                    if self.looks < 0:
                        return
                    yield choice
            if self.looks < 0:
                return

    def _place(self, gpus: int) -> str:
        """Return the sort key of choices with equally many GPUs: the addresses of the GPUs."""
        return f"{(1 << self._gpu_count) - 1 ^ gpus:0{self._gpu_count}b}"[::-1]

    def _loss(self, gpus: int) -> int:
        return sum([size for group, size in self._splittable if group & gpus and group & ~gpus])

    def _alike(self, suitable: int) -> list[list[int]]:
        """Return the GPUs in runs with the same groups and the same nearest PFs."""
        runs: list[list[int]] = []
        last: object = None
        for gpu in bits(suitable):
            place = (
                [number for number, (group, _) in enumerate(self._splittable) if group >> gpu & 1],
                self._nearest[gpu] if self._nearest else (),
            )
            if place != last:
                runs.append([])
            runs[-1].append(gpu)
            last = place
        return runs


def _combinations(runs: Sequence[Sequence[int]], count: int) -> Iterator[int]:
    """Yield the ways to take ``count`` GPUs from the runs, the lowest of each run."""
    if all(len(run) == 1 for run in runs):
        yield from map(sum, combinations([1 << run[0] for run in runs], count))
        return
    for sizes in splits([len(run) for run in runs], count):
        yield sum([1 << gpu for run, size in zip(runs, sizes, strict=True) for gpu in run[:size]])


def _suitable(request: GpuRequest, free: Sequence[Gpu]) -> int:
    model = None if request.model is None else glob(request.model)
    return sum(
        [
            1 << index
            for index, gpu in enumerate(free)
            if (model is None or model.match(gpu.model or "")) and (gpu.memory_mb or 0) >= request.memory_mb
        ]
    )


def _pools(request: GpuRequest, free: Sequence[Gpu], suitable: int) -> list[int]:
    """Return the largest disjoint sets of GPUs that are together as requested and large enough."""
    if request.together is None:
        return [suitable]
    pools: dict[object, int] = {}
    for index in bits(suitable):
        gpu = free[index]
        # The first bridge of a path is the root port: a switch below it is shared at most by GPUs below that port.
        key = {"link": gpu.link, "numa": gpu.numa, "switch": gpu.pcie[0] if gpu.pcie else None}[request.together]
        if key is not None:
            pools[key] = pools.get(key, 0) | 1 << index
    return [pool for pool in pools.values() if pool.bit_count() >= request.count]


def _groups(free: Sequence[Gpu]) -> list[int]:
    """Return the groups of free GPUs, the smallest first."""
    members: dict[object, int] = {}
    for index, gpu in enumerate(free):
        keys: list[object] = [("node",), ("gpu", index), *(("bridge", bridge) for bridge in gpu.pcie)]
        keys += [("numa", gpu.numa)] if gpu.numa is not None else []
        keys += [("link", gpu.link)] if gpu.link is not None else []
        for key in keys:
            members[key] = members.get(key, 0) | 1 << index
    return sorted(set(members.values()), key=lambda group: (group.bit_count(), group))


class Gpus:
    """The constraint; `place` binds no interface to a GPU."""

    def read_request(self, pod: PodSide) -> GpuRequest | None:
        limits = [
            ContainerLimit(container.name, container.limits.get(RESOURCE, 0), container.role)
            for container in pod.containers
        ]
        request = read_gpu_request(pod.text, limits, pod.interfaces)
        return None if request is None else _intern_request(request)

    def read_inventory(self, node: NodeSide) -> Mapping[str, Gpu]:
        return {gpu.pci: gpu for gpu in read_gpu_inventory(node.text).gpus}

    def judge(self, request: GpuRequest, units: Units[Gpu]) -> int | str:
        """Prefer nodes where the fewest GPUs stay free."""
        if reason := refusal(request, [gpu for _, gpu in units.free]):
            return reason
        return 100 * (units.total - len(units.free) + request.count) // units.total

    def place(self, request: GpuRequest, units: Units[Gpu], beside: Beside) -> Iterator[Proposal]:
        return gpu_proposals(request, units, None, (), Steps())


def gpu_proposals(
    request: GpuRequest, units: Units[Gpu], vfs: PodRequest | None, pfs: tuple[Pf, ...], steps: Steps
) -> Iterator[Proposal]:
    """Yield proposals for a pod that also requests these VFs, on a node with these PFs; raise `Unmet`.

    The first proposal is kept: nodes of one model often have the same GPUs left, so most pods of a job need no search.
    Requests and PFs are compared by identity, because equal ones are shared.
    """
    bare = _selectors_of(vfs) if request.vfs and vfs else None
    key = request, units, id(bare), id(pfs)
    entry = _first_proposals.get(key)
    if entry is not None:
        yield entry[0]
    for number, proposal in enumerate(_proposals(request, units, bare, pfs, steps)):
        if not number:
            if entry is not None:
                continue
            _first_proposals.keep(key, (proposal, bare, pfs))
        yield proposal


_first_proposals = Memo[tuple[GpuRequest, Units[Gpu], int, int], tuple[Proposal, PodRequest | None, tuple[Pf, ...]]](
    512
)
_intern_gpu, _intern_request, _intern_selectors = interner(1 << 12), interner(64), interner(256)
# By the identity of a request for VFs: the request and its selectors. Hashing it would cost more than the rest of this
# function.
_selectors_by_id = Memo[int, tuple[PodRequest, PodRequest]](512)


def _selectors_of(vfs: PodRequest) -> PodRequest:
    entry = _selectors_by_id.get(id(vfs)) or _selectors_by_id.keep(id(vfs), (vfs, _selectors(vfs)))
    return entry[1]


def _proposals(
    request: GpuRequest, units: Units[Gpu], bare: PodRequest | None, pfs: tuple[Pf, ...], steps: Steps
) -> Iterator[Proposal]:
    # Sorted by id: ids are PCI addresses of one length.
    free = [gpu for _, gpu in units.free]
    nearest = _nearest(free, _selected_pfs(bare, pfs)[: request.count], pfs) if bare is not None else ()
    for choice in choices(request, free, nearest, steps=steps):
        yield _proposal(request, choice, pfs)


def gpu_kind() -> Kind:
    """Return the kind that every scheduler has."""
    return Kind(KIND, Gpus(), resource=RESOURCE, placing=_without_uuid, naming=_uuids, place_beside_vfs=gpu_proposals)


def _without_uuid(gpu: Gpu) -> Gpu:
    """Return the parts of a GPU that a choice depends on: nodes of one model share the results."""
    return _intern_gpu(replace(gpu, uuid=""))


def _uuids(gpus: Sequence[Gpu]) -> dict[str, object]:
    return {"uuids": [gpu.uuid for gpu in gpus]}


def _proposal(request: GpuRequest, choice: GpuChoice, pfs: Sequence[Pf]) -> Proposal:
    units = tuple(gpu.pci for gpu in choice.gpus)
    assignment = GpuAssignment(
        units=units,
        uuids=tuple(gpu.uuid for gpu in choice.gpus),
        containers=containers_units(request.limits, units),
        beside={units[interface]: interface for interface in range(len(choice.near_pfs))},
    )
    narrows = {
        interface: frozenset([pfs[index].name for index in bits(mask)])
        for interface, mask in enumerate(choice.near_pfs)
    }
    return Proposal(units, details_of(assignment), {VFS: narrows} if narrows else {})


def _selected_pfs(bare: PodRequest, pfs: tuple[Pf, ...]) -> list[int]:
    """Return for each interface the PFs that its selectors admit, down or full ones included, as bit masks."""
    demands = demands_on(bare, pfs)
    if isinstance(demands, Refused):
        raise Unmet(demands.reason)
    return [demand.pfs for demand in demands]


def _selectors(request: PodRequest) -> PodRequest:
    """Return a request without rates and other settings: only where each interface may be, for its namespace."""
    bare = [replace(interface, settings=VfSettings(), name=None, containers=None) for interface in request.interfaces]
    return _intern_selectors(PodRequest(tuple(bare), namespace=request.namespace))


def _nearest(free: Sequence[Gpu], selections: Sequence[int], pfs: Sequence[Pf]) -> Nearest:
    """Return for each GPU and interface the PFs below the lowest bridge that the GPU shares with any selected one.

    This is the longest common prefix of their paths: switches are cascaded, with different depths on different hosts.
    """
    below: dict[tuple[int, str], int] = {}
    masks = [0]
    for number, pf in enumerate(pfs):
        node = 0
        for bridge in pf.pcie:
            node = below.setdefault((node, bridge), len(masks))
            if node == len(masks):
                masks.append(0)
            masks[node] |= 1 << number
    return [tuple(_lowest(path, selections)) for path in (_shared_path(gpu, below, masks) for gpu in free)]


def _shared_path(gpu: Gpu, below: Mapping[tuple[int, str], int], masks: Sequence[int]) -> list[int]:
    """Return the PFs below each bridge of a GPU's path that has any, the lowest bridge first."""
    node, path = 0, list[int]()
    for bridge in gpu.pcie:
        child = below.get((node, bridge))
        if child is None:
            break
        node = child
        path.append(masks[node])
    return path[::-1]


def _lowest(path: Sequence[int], masks: Sequence[int]) -> Iterator[int]:
    for mask in masks:
        yield next((mask & near for near in path if mask & near), 0)
