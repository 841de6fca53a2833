"""RdmaVfs: a node must have exactly the VFs that a pod asks for; pods without VFs keep away from the others' room."""

from scheduler.assign import Chosen, choose_pfs
from scheduler.cluster import NodeView
from scheduler.plugins.rule import PASSES, Filter, Preference, Rule
from scheduler.queue import Happening
from scheduler.task import Task


def prepare(task: Task, now: float) -> Filter | None:
    request = task.request
    if request is None or not request.interfaces:
        return None

    def refuse(node: NodeView) -> tuple[str, ...]:
        fault = node.facts.inventory_fault(now)
        if fault:
            return (fault,)
        found = choose_pfs(request, node.supply)
        return PASSES if isinstance(found, Chosen) else (found,)

    return refuse


def least_left(task: Task, node: NodeView) -> float:
    """Prefer nodes where the fewest VFs stay free; for a pod without VFs, those that have none at all."""
    offered = sum(len(pf.vfs) for pf in node.supply.pfs)
    if offered == 0:
        return 100.0
    free = node.supply.free_vfs - len(task.interfaces)
    return 100.0 * (1 - free / offered) if task.interfaces else 0.0


RULE = Rule("RdmaVfs", prepare, Happening.NODE | Happening.POD_GONE)
PREFERENCE = Preference("RdmaVfs", 2, least_left)
