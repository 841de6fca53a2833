"""RdmaVfs: a node must have exactly the VFs that a pod asks for; pods without VFs keep away from the others' room.

Two rules of one name tell what the columns can tell: whether the inventory may be used at all and lists PFs that may
give each interface, and whether there are enough free VFs and Mb/s in all. Whether the interfaces fit together is the
work of `scheduler.place`, asked for one node when that node is about to be chosen.
"""

import numpy as np

from mooring.inventory import Pf
from scheduler.assign import NOT_ENOUGH, wants_on
from scheduler.columns import Amounts, Nodes, Rows
from scheduler.plugins.rule import Filter, Preference, Refusals, Rule, Scorer, refuse_by, refuse_where
from scheduler.queue import Happening
from scheduler.task import Task

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


def prepare(task: Task, nodes: Nodes) -> Filter | None:
    request = task.request
    if request is None or not request.interfaces:
        return None
    rate = sum(interface.min_tx_rate for interface in request.interfaces)
    # Which of the two is lacking is `place`'s to say where each interface is to have a PF of its own.
    count = len(request.interfaces) if request.pfs != "distinct" else 0

    def refuse(rows: Rows) -> Refusals | None:
        few = nodes.free_vfs[rows] < count
        if np.count_nonzero(few):
            slow = nodes.free_mbps[rows] < rate
            return Refusals(np.where(few, 1, 2 * slow), ((NOT_ENOUGH["vfs"],), (NOT_ENOUGH["rate"],)))
        return refuse_where(nodes.free_mbps[rows] < rate, NOT_ENOUGH["rate"]) if rate else None

    return refuse


def least_left(task: Task, nodes: Nodes) -> Scorer:
    """Prefer nodes where the fewest VFs stay free; for a pod without VFs, those that have none at all."""
    wanted = len(task.interfaces)

    def score(rows: Rows) -> Amounts:
        offered = nodes.offered_vfs[rows]
        if not wanted:
            return np.where(offered == 0, 100, 0)
        used: Amounts = np.minimum(offered - nodes.free_vfs[rows] + wanted, offered)
        return used * 100 // np.maximum(offered, 1)

    return score


INVENTORY_RULE = Rule(_NAME, prepare_inventory, Happening.NODE_ADDED | Happening.NODE_INVENTORY)
RULE = Rule(_NAME, prepare, Happening.NODE_ADDED | Happening.NODE_INVENTORY | Happening.VFS_FREED)
PREFERENCE = Preference(_NAME, 2, least_left)
