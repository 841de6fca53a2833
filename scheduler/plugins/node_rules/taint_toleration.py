"""TaintToleration: a node with a NoSchedule or NoExecute taint accepts only pods that tolerate it.

Nodes with fewer untolerated PreferNoSchedule taints are preferred.
"""

from collections.abc import Iterable

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Toleration
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, ScorePlugin, Scorer, refuse_by

# Key, value, effect.
Taint = tuple[str, str, str]
_KEEP_OUT = ("NoSchedule", "NoExecute")
_RATHER_NOT = "PreferNoSchedule"


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    tolerations = Tolerations(pod_info.pod.spec.tolerations or ())

    def judge(taints: tuple[Taint, ...]) -> str:
        # The message does not name the taints: since 1.34.2 kube-scheduler hides their contents from users who may only
        # read pods.
        return "" if _first_untolerated_taint(tolerations, taints) is None else "node(s) had untolerated taint(s)"

    return lambda rows, _: refuse_by(nodes.taints, judge, rows)


def tolerated(pod_info: PodInfo, nodes: NodeColumns, rows: Rows) -> Flags:
    """Return for each node whether the pod tolerates the taints that would exclude it."""
    tolerations = Tolerations(pod_info.pod.spec.tolerations or ())
    flags: Flags = nodes.taints.spread(lambda taints: _first_untolerated_taint(tolerations, taints) is None, rows) != 0
    return flags


def count_untolerated(pod_info: PodInfo, nodes: NodeColumns) -> Scorer:
    """Count the PreferNoSchedule taints that the pod does not tolerate."""
    tolerations = Tolerations(pod_info.pod.spec.tolerations or ())

    def count(taints: tuple[Taint, ...]) -> int:
        return sum(taint[2] == _RATHER_NOT and not tolerations.cover(taint) for taint in taints)

    return lambda rows: nodes.taints.spread(count, rows)


class Tolerations:
    """A pod's tolerations as hashed keys, for comparison with many taints.

    An empty key tolerates every key, an empty effect every effect. Source: k8s.io/api ToleratesTaint.
    """

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        # Key and effect of tolerations for any value; key, effect and value of the others.
        self._exist: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        for toleration in tolerations:
            key, effect = toleration.key or "", toleration.effect or ""
            if toleration.operator == "Exists":
                self._exist.add((key, effect))
            elif key and toleration.operator in (None, "", "Equal"):
                self._equal.add((key, effect, toleration.value or ""))

    def cover(self, taint: Taint) -> bool:
        key, value, effect = taint
        exist = (key, ""), (key, effect), ("", ""), ("", effect)
        equal = (key, "", value), (key, effect, value)
        return not (self._exist.isdisjoint(exist) and self._equal.isdisjoint(equal))


def _first_untolerated_taint(tolerations: Tolerations, taints: tuple[Taint, ...]) -> Taint | None:
    for taint in taints:
        if taint[2] in _KEEP_OUT and not tolerations.cover(taint):
            return taint
    return None


FILTER = FilterPlugin("TaintToleration", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_TAINTS)
SCORE = ScorePlugin("TaintToleration", count_untolerated, "reverse")
