"""RdmaVfs: a node must have the exact VFs that a pod requests; pods without VFs avoid nodes with VFs.

Two filters evaluate the columns. One checks whether the inventory is valid and lists PFs that may serve each interface,
the other whether there are enough free VFs and Mb/s in total. `scheduler.placement.place` checks whether the interfaces
fit together, for one node that is about to be chosen and in a dry run.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from mooring.annotations.assignment import Assignment
from mooring.annotations.request import PodRequest
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.column import NOT_KEPT, Measure, NodeView
from scheduler.cache.node_columns import MBPS, VFS, NodeColumns
from scheduler.cache.node_facts import Offer
from scheduler.cache.node_info import NOT_READY_S, InventoryFault
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import (
    NOT_ENOUGH,
    OUT_OF_BUDGET,
    Placement,
    demands_on,
    pick_vfs,
    place_request,
    place_within,
)
from scheduler.placement.eligibility import eligibility
from scheduler.placement.place import SEARCH_TURN, PfCapacity, VfDemand
from scheduler.placement.shares import caps_for
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs, VfAccounting, full_capacity
from scheduler.plugins.interface import (
    DryRun,
    DryRunPlugin,
    FilterPlugin,
    NodeFilter,
    PreFilterExtensions,
    Reserve,
    ReservePlugin,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
    UsageScorePlugin,
    UsageScorer,
    refuse_by,
)

_NAME = "RdmaVfs"
FAULTS: Mapping[InventoryFault, str] = {
    InventoryFault.MISSING: "node(s) had no RDMA inventory",
    InventoryFault.UNREADABLE: "node(s) had an unreadable RDMA inventory",
    InventoryFault.OTHER_BOOT: "node(s) had an RDMA inventory of another boot",
    InventoryFault.NO_SHIM: "node(s) had not started mooring-cri-shim in this boot",
    InventoryFault.NOT_READY: f"node(s) were not Ready for over {NOT_READY_S:.0f} s",
}


def vf_request(pod_info: PodInfo) -> PodRequest | None:
    return pod_info.request if pod_info.interfaces else None


def pre_filter_inventory(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    request = vf_request(pod_info)
    if request is None:
        return None
    verdicts = eligibility(request)

    def judge(offer: Offer) -> str:
        fault, pfs = offer
        return FAULTS[fault] if fault is not None else verdicts.refusal(pfs)

    return lambda rows, steps: refuse_by(nodes.models, judge, rows, ("refusal", verdicts), steps)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    request = vf_request(pod_info)
    if request is None:
        return None
    rate = sum([interface.settings.min_tx_rate or 0 for interface in request.interfaces])
    # `place` reports which of the two is lacking if each interface must have a PF of its own.
    count = len(request.interfaces) if request.pfs != "distinct" else 0

    def lacks(view: NodeView) -> Measure:
        lacks_vfs, lacks_rate = view.free[VFS] < count, view.free[MBPS] < rate
        return lacks_vfs * 1 + (lacks_rate > lacks_vfs) * 2

    return UsageFilter(lacks, lambda mark: (NOT_ENOUGH["vfs" if mark == 1 else "rate"],))


def fullest_first(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer:
    """Prefer nodes where the fewest VFs stay free; for a pod without VFs, nodes without VFs."""
    vf_count = len(pod_info.interfaces)

    def score(view: NodeView) -> Measure:
        offer_count = view.allocatable[VFS]
        if not vf_count:
            return (offer_count == 0) * 100
        use_count = view.minimum(offer_count - view.free[VFS] + vf_count, offer_count)
        return use_count * 100 // view.maximum(offer_count, 1)

    return score


def _place(request: PodRequest, free_vfs: FreeVfs, steps: Steps) -> Placement | Refused:
    demands = demands_on(request, free_vfs.pfs)
    return demands if isinstance(demands, Refused) else place_request(request, demands, free_vfs, steps)


def reserve(pod_info: PodInfo, nodes: NodeColumns) -> Reserve | None:
    """Return a function that finds the PF of each interface; None if `constraints` does it, with other kinds."""
    request = None if pod_info.wishes else vf_request(pod_info)
    if request is None:
        return None
    return lambda row, steps: _place(request, nodes.free_vfs_of_row[row], steps)


def assign(pod_info: PodInfo, cache: Cache, node: str, free_vfs: FreeVfs, placement: Placement) -> Assignment:
    vfs = pick_vfs(pod_info.interfaces, free_vfs, placement, cache.free_since(node))
    ext = {kind: cache.unit_pools.section_of(node, kind, proposal) for kind, proposal in placement.others}
    return Assignment(uid=pod_info.uid, node=node, vfs=vfs, ext=ext)


class ExactDevices(PreFilterExtensions):
    """A part that places exactly: VFs of moved pods are added to and removed from the cache's accounting."""

    moves_cache = True

    def __init__(self, pod_info: PodInfo, cache: Cache, row: int, steps: Steps) -> None:
        self._pod_info, self._cache, self._steps = pod_info, cache, steps
        self._node = cache.nodes.names[row]
        self._vf_accounting = cache.vf_accounting(self._node)

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        count = self._vf_accounting.add if sign > 0 else self._vf_accounting.remove
        for assigned_pod in assigned_pods:
            if (claim := assigned_pod.claim) is not None:
                count(claim)

    def filter(self) -> Texts:
        placement = self._place()
        return (placement.reason,) if isinstance(placement, Refused) else ()

    def assignment(self) -> Assignment | None:
        placement = self._place()
        if isinstance(placement, Refused):
            return None
        return assign(self._pod_info, self._cache, self._node, self._vf_accounting.free_vfs, placement)

    @abstractmethod
    def _place(self) -> Placement | Refused:
        """Return the devices for the whole request if they fit together, or the reason why they do not."""


class _Vfs(ExactDevices):
    def _place(self) -> Placement | Refused:
        request = self._pod_info.request
        assert request is not None, "only a pod with interfaces has this part"
        return _place(request, self._vf_accounting.free_vfs, self._steps)


class _VfSums(PreFilterExtensions):
    """The same if each VF has one claim: add the VFs of removed pods to the free ones, subtract those of added pods."""

    def __init__(
        self, vf_accounting: VfAccounting, demands: tuple[VfDemand, ...], request: PodRequest, steps: Steps
    ) -> None:
        self._vf_accounting, self._demands, self._request, self._steps = vf_accounting, demands, request, steps
        self._caps = caps_for(vf_accounting.free_vfs.shares, request.namespace)
        self._vfs = [capacity.vfs for capacity in vf_accounting.free_vfs.capacities]
        self._mbps = [capacity.mbps for capacity in vf_accounting.free_vfs.capacities]
        self._shared_ports = vf_accounting.free_vfs.shared_ports
        # The VFs of each moved pod: a pair of PF index and rate for each VF.
        self._vfs_of_pod: dict[str, list[tuple[int, int]]] = {}

    def filter(self) -> Texts:
        capacities = tuple(map(PfCapacity, self._vfs, self._mbps))
        placement = place_within(
            self._demands, capacities, self._request.pfs, self._shared_ports, self._caps, steps=self._steps
        )
        return (placement.reason,) if isinstance(placement, Refused) else ()

    def move_pods(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned_pod in assigned_pods:
            if assigned_pod.assignment is None:
                continue
            vfs = self._vfs_of_pod.get(assigned_pod.uid)
            if vfs is None:
                vfs = self._vf_accounting.held(assigned_pod.uid, assigned_pod.assignment)
                self._vfs_of_pod[assigned_pod.uid] = vfs
            if self._caps and assigned_pod.pod.partition("/")[0] == self._request.namespace:
                self._caps = tuple(
                    [cap.without(sign * sum([cap.pfs >> index & 1 for index, _ in vfs])) for cap in self._caps]
                )
            for index, rate in vfs:
                self._vfs[index] -= sign
                if self._shared_ports and rate:
                    self._move_on_port(self._shared_ports[index], sign * rate)
                else:
                    self._mbps[index] -= sign * rate

    def _move_on_port(self, port: int, rate: int) -> None:
        for index, other_port in enumerate(self._shared_ports):
            if other_port == port:
                self._mbps[index] -= rate


def dry_run(pod_info: PodInfo, cache: Cache, steps: Steps) -> DryRun | None:
    request = None if pod_info.wishes else vf_request(pod_info)
    if request is None:
        return None

    def on(row: int, by_sums: bool) -> PreFilterExtensions:
        vf_accounting = cache.vf_accounting(cache.nodes.names[row])
        # If claims overlap, sums are not sufficient.
        if by_sums and vf_accounting.is_plain:
            demands = demands_on(request, vf_accounting.pfs)
            if not isinstance(demands, Refused):
                return _VfSums(vf_accounting, demands, request, steps)
        return _Vfs(pod_info, cache, row, steps)

    return DryRun(on, fits_empty(pod_info, cache.nodes))


def fits_empty(pod_info: PodInfo, nodes: NodeColumns) -> Callable[[NodeView], Measure] | None:
    """Return where a pod's interfaces would fit if all VFs were free; None for a pod that requests none."""
    request = vf_request(pod_info)
    if request is None:
        return None
    verdicts = eligibility(request)
    rate, count = sum(verdicts.rates), len(request.interfaces)

    def fits(view: NodeView) -> Measure:
        steps = Steps()

        def could_give(offer: Offer) -> int:
            if steps.spent > SEARCH_TURN:
                # The search budget was exhausted before, as if a single search ran out of steps. This is not kept.
                return NOT_KEPT
            free_vfs = full_capacity(offer[1])
            if sum([pf.mbps for pf in free_vfs.capacities]) < rate or free_vfs.vf_count < count:
                # Most nodes, if a request is too large for any: even a search that takes no step costs something.
                return False
            placement = _place(request, free_vfs, steps)
            return not isinstance(placement, Refused) or placement.reason == OUT_OF_BUDGET

        return view.judge(nodes.models, could_give, ("alone", verdicts))

    return fits


_REQUEUE_ON = ClusterEvent.NODE_INVENTORY | ClusterEvent.VFS_FREED
INVENTORY_FILTER = FilterPlugin(_NAME, pre_filter_inventory, ClusterEvent.NODE_INVENTORY)
FILTER = UsageFilterPlugin(_NAME, pre_filter, _REQUEUE_ON)
SCORE = UsageScorePlugin(_NAME, fullest_first)
RESERVE = ReservePlugin(_NAME, reserve, _REQUEUE_ON)
DRY_RUN = DryRunPlugin(_NAME, dry_run, reserves=True)
