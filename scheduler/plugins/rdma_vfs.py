"""RdmaVfs: a node must have exactly the VFs that a pod asks for; pods without VFs keep away from the others' room.

Two rules of one name tell what the columns can tell: whether the inventory may be used at all and lists PFs that may
give each interface, and whether there are enough free VFs and Mb/s in all. Whether the interfaces fit together is the
work of `scheduler.placement.place`, asked for one node when that node is about to be chosen.
"""

from mooring.inventory import Pf
from scheduler.cache.node_columns import MBPS, VFS, NodeColumns
from scheduler.cache.node_view import Measure, NodeView
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import NOT_ENOUGH, demands_on
from scheduler.plugins.interface import (
    Filter,
    FilterPlugin,
    Texts,
    UsageFilter,
    UsageFilterPlugin,
    UsageScorePlugin,
    UsageScorer,
    refuse_by,
)
from scheduler.queue import ClusterEvent

_NAME = "RdmaVfs"


def prepare_inventory(pod_info: PodInfo, nodes: NodeColumns) -> Filter | None:
    request = pod_info.request
    if request is None or not request.interfaces:
        return None

    def judge(offer: tuple[str, tuple[Pf, ...]]) -> str:
        fault, pfs = offer
        if fault:
            return fault
        demands = demands_on(request, pfs)
        return demands if isinstance(demands, str) else ""

    return lambda rows: refuse_by(nodes.offers, judge, rows)


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> UsageFilter | None:
    request = pod_info.request
    if request is None or not request.interfaces:
        return None
    rate = sum(interface.min_tx_rate for interface in request.interfaces)
    # Which of the two is lacking is `place`'s to say where each interface is to have a PF of its own.
    count = len(request.interfaces) if request.pfs != "distinct" else 0

    def lacks(view: NodeView) -> Measure:
        few, slow = view.left[VFS] < count, view.left[MBPS] < rate
        return few * 1 + (slow > few) * 2

    return UsageFilter(lacks, _tell)


def _tell(mark: int) -> Texts:
    return (NOT_ENOUGH["vfs" if mark == 1 else "rate"],)


def least_left(pod_info: PodInfo, nodes: NodeColumns) -> UsageScorer:
    """Prefer nodes where the fewest VFs stay free; for a pod without VFs, those that have none at all."""
    wanted = len(pod_info.interfaces)

    def score(view: NodeView) -> Measure:
        offered = view.allocatable[VFS]
        if not wanted:
            return (offered == 0) * 100
        used = view.least(offered - view.left[VFS] + wanted, offered)
        return used * 100 // view.most(offered, 1)

    return score


INVENTORY_FILTER = FilterPlugin(_NAME, prepare_inventory, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_INVENTORY)
FILTER = UsageFilterPlugin(
    _NAME, pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_INVENTORY | ClusterEvent.VFS_FREED
)
SCORE = UsageScorePlugin(_NAME, 2, least_left)
