"""GPUs as a constraint: Mooring's own kind ``gpu``; the id of a unit is a GPU's PCI address.

`scheduler.placement.joint` places it together with the pod's VFs. It can read more about these than a plug-in: which
PFs each interface selects, because they determine where the interface's GPU may be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest
from mooring.gpu.assignment import KIND, GpuAssignment, details_of
from mooring.gpu.inventory import Gpu, read_gpu_inventory
from mooring.gpu.request import RESOURCE, ContainerLimit, GpuRequest, containers_units, read_gpu_request
from mooring.nic.settings import VfSettings
from scheduler.constraints.kinds import Kind
from scheduler.constraints.protocol import VFS, Beside, NodeSide, PodSide, Proposal, Units, Unmet
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import demands_on
from scheduler.placement.bin_packing import bits
from scheduler.placement.gpus import GpuChoice, Nearest, choices, refusal
from scheduler.placement.memo import Memo, interner
from scheduler.placement.steps import Steps


class Gpus:
    """The constraint; `place` without the pod's VFs binds no interface to a GPU."""

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
        return place_beside(request, units, None, (), Steps())


def place_beside(
    request: GpuRequest, units: Units[Gpu], vfs: PodRequest | None, pfs: tuple[Pf, ...], steps: Steps
) -> Iterator[Proposal]:
    """Yield proposals for a pod that also requests these VFs, on a node with these PFs; raise `Unmet`.

    The first proposal is kept: nodes of one model often have the same GPUs left, so most pods of a job need no search.
    Requests for VFs and PFs are compared by identity, because equal ones are shared.
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
    # Units are sorted by id; ids are PCI addresses of one length.
    free = [gpu for _, gpu in units.free]
    nearest = _nearest(free, _selected_pfs(bare, pfs)[: request.count], pfs) if bare is not None else ()
    for choice in choices(request, free, nearest, steps=steps):
        yield _proposal(request, choice, pfs)


def gpu_kind() -> Kind:
    """Return the kind that every scheduler has."""
    return Kind(KIND, Gpus(), resource=RESOURCE, placing=_without_uuid, naming=_uuids, place_beside_vfs=place_beside)


def _without_uuid(gpu: Gpu) -> Gpu:
    """Return the parts of a GPU that a choice depends on: nodes of one model share the results."""
    return _intern_gpu(replace(gpu, uuid=""))


def _uuids(gpus: Sequence[Gpu]) -> dict[str, object]:
    return {"uuids": [gpu.uuid for gpu in gpus]}


def _proposal(request: GpuRequest, choice: GpuChoice, pfs: Sequence[Pf]) -> Proposal:
    units = tuple(gpu.pci for gpu in choice.gpus)
    assigned_pod = GpuAssignment(
        units=units,
        uuids=tuple(gpu.uuid for gpu in choice.gpus),
        containers=containers_units(request.limits, units),
        beside={units[interface]: interface for interface in range(len(choice.narrowing))},
    )
    narrows = {interface: _names(mask, pfs) for interface, mask in enumerate(choice.narrowing)}
    return Proposal(units, details_of(assigned_pod), {VFS: narrows} if narrows else {})


def _names(mask: int, pfs: Sequence[Pf]) -> frozenset[str]:
    return frozenset([pfs[index].name for index in bits(mask)])


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

    This is the longest common prefix of their paths, at any depth: switches are cascaded, with different depths on
    different hosts. No PF is near a GPU that shares a bridge with none.
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
