"""NodeName: a pod that names its node goes nowhere else."""

from scheduler.cluster import NodeView
from scheduler.plugins.rule import PASSES, Filter, Rule
from scheduler.queue import Happening
from scheduler.task import Task


def prepare(task: Task, _now: float) -> Filter | None:
    wanted = task.pod.spec.node_name
    if not wanted:
        return None

    def refuse(node: NodeView) -> tuple[str, ...]:
        return PASSES if node.name == wanted else ("node(s) didn't match the requested node name",)

    return refuse


RULE = Rule("NodeName", prepare, Happening.NODE)
