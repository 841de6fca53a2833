"""NodeUnschedulable: a cordoned node takes only pods that tolerate that."""

from scheduler.cache.node_columns import Nodes
from scheduler.kube.pod_info import Task
from scheduler.plugins.interface import Filter, Rule, refuse_where
from scheduler.plugins.taint_toleration import tolerates
from scheduler.queue import Happening

_CORDONED = ("node.kubernetes.io/unschedulable", "", "NoSchedule")


def prepare(task: Task, nodes: Nodes) -> Filter | None:
    if tolerates(task.pod.spec.tolerations or (), _CORDONED):
        return None
    return lambda rows: refuse_where(nodes.cordoned[rows], "node(s) were unschedulable")


RULE = Rule("NodeUnschedulable", prepare, Happening.NODE_ADDED | Happening.NODE_TAINTS)
