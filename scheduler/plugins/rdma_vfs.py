"""RdmaVfs: a node must have exactly the VFs that a pod asks for; pods without VFs keep away from the others' room.

Two rules of one name tell what the columns can tell: whether the inventory may be used at all and lists PFs that may
give each interface, and whether there are enough free VFs and Mb/s in all. Whether the interfaces fit together is the
work of `scheduler.placement.place`, asked for one node when that node is about to be chosen.
"""

from mooring.inventory import Pf
from scheduler.cache.node_columns import MBPS, VFS, Nodes
from scheduler.cache.node_view import Look, Measure
from scheduler.kube.pod_info import Task
from scheduler.placement.assign import NOT_ENOUGH, wants_on
from scheduler.plugins.interface import Filter, Rule, Texts, UseFilter, UsePreference, UseRule, UseScorer, refuse_by
from scheduler.queue import Happening

_NAME = "RdmaVfs"


def prepare_inventory(task: Task, nodes: Nodes) -> Filter | None:
    request = task.request
    if request is None or not request.interfaces:
        return None

    def judge(offer: tuple[str, tuple[Pf, ...]]) -> str:
        fault, pfs = offer
        if fault:
            return fault
        wants = wants_on(request, pfs)
        return wants if isinstance(wants, str) else ""

    return lambda rows: refuse_by(nodes.offers, judge, rows)


def prepare(task: Task, nodes: Nodes) -> UseFilter | None:
    request = task.request
    if request is None or not request.interfaces:
        return None
    rate = sum(interface.min_tx_rate for interface in request.interfaces)
    # Which of the two is lacking is `place`'s to say where each interface is to have a PF of its own.
    count = len(request.interfaces) if request.pfs != "distinct" else 0

    def lacks(look: Look) -> Measure:
        few, slow = look.left[VFS] < count, look.left[MBPS] < rate
        return few * 1 + (slow > few) * 2

    return UseFilter(lacks, _tell)


def _tell(mark: int) -> Texts:
    return (NOT_ENOUGH["vfs" if mark == 1 else "rate"],)


def least_left(task: Task, nodes: Nodes) -> UseScorer:
    """Prefer nodes where the fewest VFs stay free; for a pod without VFs, those that have none at all."""
    wanted = len(task.interfaces)

    def score(look: Look) -> Measure:
        offered = look.allocatable[VFS]
        if not wanted:
            return (offered == 0) * 100
        used = look.least(offered - look.left[VFS] + wanted, offered)
        return used * 100 // look.most(offered, 1)

    return score


INVENTORY_RULE = Rule(_NAME, prepare_inventory, Happening.NODE_ADDED | Happening.NODE_INVENTORY)
RULE = UseRule(_NAME, prepare, Happening.NODE_ADDED | Happening.NODE_INVENTORY | Happening.VFS_FREED)
PREFERENCE = UsePreference(_NAME, 2, least_left)
