"""NodeName: a pod that names its node goes nowhere else."""

from scheduler.columns import Nodes
from scheduler.plugins.rule import Filter, Rule, refuse_where
from scheduler.queue import Happening
from scheduler.task import Task


def prepare(task: Task, nodes: Nodes) -> Filter | None:
    wanted = task.pod.spec.node_name
    if not wanted:
        return None
    reason = "node(s) didn't match the requested node name"
    return lambda rows: refuse_where(rows != nodes.row_of.get(wanted, -1), reason)


RULE = Rule("NodeName", prepare, Happening.NODE_ADDED)
