"""NodeUnschedulable: a cordoned node takes only pods that tolerate that."""

from scheduler.cluster import NodeView
from scheduler.objects import Taint
from scheduler.plugins.rule import PASSES, Filter, Rule
from scheduler.plugins.taint_toleration import tolerates
from scheduler.queue import Happening
from scheduler.task import Task

_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def prepare(task: Task, _now: float) -> Filter | None:
    if tolerates(task.pod.spec.tolerations or (), _CORDONED):
        return None
    return _filter


def _filter(node: NodeView) -> tuple[str, ...]:
    return ("node(s) were unschedulable",) if node.facts.unschedulable else PASSES


RULE = Rule("NodeUnschedulable", prepare, Happening.NODE)
