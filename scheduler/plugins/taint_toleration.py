"""TaintToleration: a node with a NoSchedule or NoExecute taint accepts only pods that tolerate it.

Nodes with fewer untolerated PreferNoSchedule taints are preferred. NodeUnschedulable: a cordoned node accepts only pods
that tolerate the taint of cordoned nodes.
"""

from collections.abc import Iterable

from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Toleration
from scheduler.kube.pod_info import PodInfo
from scheduler.plugins.interface import FilterPlugin, NodeFilter, ScorePlugin, Scorer, refuse_by, refuse_where

# Key, value, effect.
Taint = tuple[str, str, str]
_CORDON: Taint = ("node.kubernetes.io/unschedulable", "", "NoSchedule")
# The message does not name the taints: since 1.34.2 kube-scheduler hides their contents from users who may only read
# pods.
_REASON = "node(s) had untolerated taint(s)"


class Tolerations:
    """A pod's tolerations as hashed keys, for comparison with many taints.

    An empty key tolerates every key, an empty effect every effect. Source: k8s.io/api ToleratesTaint.
    """

    def __init__(self, tolerations: Iterable[Toleration] | None) -> None:
        # Key and effect of tolerations for any value; key, effect and value of the others.
        self._exist: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        for toleration in tolerations or ():
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

    def admit(self, taints: Iterable[Taint]) -> bool:
        """Return whether no taint keeps the pod off a node."""
        return all(taint[2] not in ("NoSchedule", "NoExecute") or self.cover(taint) for taint in taints)


def _tolerations(pod_info: PodInfo) -> Tolerations:
    return Tolerations(pod_info.pod.spec.tolerations)


def pre_filter_cordon(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    if _tolerations(pod_info).cover(_CORDON):
        return None
    return lambda rows, _: refuse_where(nodes.cordoned[rows], "node(s) were unschedulable")


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    tolerations = _tolerations(pod_info)
    return lambda rows, _: refuse_by(nodes.taints, lambda taints: "" if tolerations.admit(taints) else _REASON, rows)


def admission(pod_info: PodInfo, nodes: NodeColumns, rows: Rows) -> Flags:
    """Return for each node whether its taints admit the pod."""
    flags: Flags = nodes.taints.spread(_tolerations(pod_info).admit, rows) != 0
    return flags


def pre_score(pod_info: PodInfo, nodes: NodeColumns) -> Scorer | None:
    tolerations = _tolerations(pod_info)

    def count(taints: Iterable[Taint]) -> int:
        return sum(taint[2] == "PreferNoSchedule" and not tolerations.cover(taint) for taint in taints)

    return lambda rows: nodes.taints.spread(count, rows)


_REQUEUE_ON = ClusterEvent.NODE_TAINTS
NODE_UNSCHEDULABLE = FilterPlugin("NodeUnschedulable", pre_filter_cordon, _REQUEUE_ON)
FILTER = FilterPlugin("TaintToleration", pre_filter, _REQUEUE_ON)
SCORE = ScorePlugin("TaintToleration", pre_score, "reverse")
