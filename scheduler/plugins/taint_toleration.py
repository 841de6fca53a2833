"""TaintToleration: a node with a NoSchedule or NoExecute taint takes only pods that tolerate it; the fewer
PreferNoSchedule taints a pod does not tolerate, the better.
"""

from collections.abc import Iterable

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.kube.objects import Toleration
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import Filter, FilterPlugin, ScorePlugin, Scorer, refuse_by
from scheduler.queue import ClusterEvent

# Key, value, effect.
Taint = tuple[str, str, str]
_KEEP_OUT = ("NoSchedule", "NoExecute")
_RATHER_NOT = "PreferNoSchedule"


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> Filter | None:
    tolerations = pod_info.pod.spec.tolerations or ()

    def judge(taints: tuple[Taint, ...]) -> str:
        # Without the taints' names: since 1.34.2 kube-scheduler hides the taints' contents from users who may only read
        # pods.
        return "" if _untolerated(tolerations, taints) is None else "node(s) had untolerated taint(s)"

    return lambda rows: refuse_by(nodes.taints, judge, rows)


def tolerated(pod_info: PodInfo, nodes: NodeColumns, rows: Rows) -> Flags:
    """Return for each node whether the pod tolerates the taints that would exclude it."""
    tolerations = pod_info.pod.spec.tolerations or ()
    found: Flags = nodes.taints.spread(lambda taints: _untolerated(tolerations, taints) is None, rows) != 0
    return found


def count_untolerated(pod_info: PodInfo, nodes: NodeColumns) -> Scorer:
    """Count the PreferNoSchedule taints that the pod does not tolerate."""
    tolerations = [one for one in pod_info.pod.spec.tolerations or () if one.effect in (None, "", _RATHER_NOT)]

    def count(taints: tuple[Taint, ...]) -> int:
        return sum(taint[2] == _RATHER_NOT and not tolerates(tolerations, taint) for taint in taints)

    return lambda rows: nodes.taints.spread(count, rows)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether one of the tolerations covers the taint. Source: k8s.io/api ToleratesTaint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _untolerated(tolerations: Iterable[Toleration], taints: tuple[Taint, ...]) -> Taint | None:
    keep_out = (taint for taint in taints if taint[2] in _KEEP_OUT)
    return next((taint for taint in keep_out if not tolerates(tolerations, taint)), None)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    key, value, effect = taint
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.key and toleration.key != key:
        return False
    if toleration.operator == "Exists":
        return True
    equal = toleration.operator in (None, "", "Equal")
    return bool(toleration.key) and equal and (toleration.value or "") == value


FILTER = FilterPlugin("TaintToleration", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_TAINTS)
SCORE = ScorePlugin("TaintToleration", count_untolerated, "reverse")
