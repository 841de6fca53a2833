"""NodeName: a pod that names its node goes nowhere else."""

from scheduler.cache.node_columns import Nodes
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import Filter, Rule, refuse_where
from scheduler.queue import Happening


def prepare(task: Task, nodes: Nodes) -> Filter | None:
    wanted = task.pod.spec.node_name
    if not wanted:
        return None
    reason = "node(s) didn't match the requested node name"
    return lambda rows: refuse_where(rows != nodes.row_of.get(wanted, -1), reason)


RULE = Rule("NodeName", prepare, Happening.NODE_ADDED)
