"""TaintToleration: a node with a NoSchedule or NoExecute taint takes only pods that tolerate it."""

from collections.abc import Iterable

from scheduler.cluster import NodeView
from scheduler.objects import Taint, Toleration
from scheduler.plugins.rule import PASSES, Filter, Rule
from scheduler.queue import Happening
from scheduler.task import Task

_KEEP_OUT = ("NoSchedule", "NoExecute")


def prepare(task: Task, _now: float) -> Filter | None:
    tolerations = task.pod.spec.tolerations or ()

    def refuse(node: NodeView) -> tuple[str, ...]:
        for taint in node.facts.taints:
            if taint.effect in _KEEP_OUT and not tolerates(tolerations, taint):
                return (f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}",)
        return PASSES

    return refuse


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Say whether one of the tolerations covers the taint. Source: k8s.io/api ToleratesTaint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    equal = toleration.operator in (None, "", "Equal")
    return bool(toleration.key) and equal and (toleration.value or "") == (taint.value or "")


RULE = Rule("TaintToleration", prepare, Happening.NODE)
