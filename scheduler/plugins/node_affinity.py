"""NodeName, and NodeAffinity: nodeSelector, and required and preferred node affinity.

All expressions of a term must match, and one term of several must; a term without expressions matches no node. Source:
k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.objects import NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.selectors import matches
from scheduler.plugins.interface import FilterPlugin, NodeFilter, ScorePlugin, Scorer, refuse_where

_NO_AFFINITY = NodeAffinity()
_OTHER_NAME = "node(s) didn't match the requested node name"
_NO_MATCH = "node(s) didn't match Pod's node affinity/selector"


def pre_filter_name(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    name = pod_info.pod.spec.node_name
    return (lambda rows, _: refuse_where(rows != nodes.row_of.get(name, -1), _OTHER_NAME)) if name else None


def _affinity(pod_info: PodInfo) -> NodeAffinity:
    affinity = pod_info.pod.spec.affinity
    return (affinity.node_affinity if affinity is not None else None) or _NO_AFFINITY


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    if not pod_info.pod.spec.node_selector and _affinity(pod_info).required is None:
        return None
    return lambda rows, _: refuse_where(~required_match(pod_info, nodes, rows), _NO_MATCH)


def required_match(pod_info: PodInfo, nodes: NodeColumns, rows: Rows) -> Flags:
    """Return for each node whether the pod's nodeSelector and required node affinity match."""
    flags: Flags = np.ones(len(rows), np.bool_)
    for key, value in (pod_info.pod.spec.node_selector or {}).items():
        flags &= _holds(Requirement(key, "In", frozenset((value,))), nodes, rows)
        if not flags.any():
            return flags
    selector = _affinity(pod_info).required
    return flags if selector is None else flags & _any_term_holds(selector, nodes, rows)


def _any_term_holds(selector: NodeSelector, nodes: NodeColumns, rows: Rows) -> Flags:
    flags: Flags = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms or ():
        flags |= _term_holds(term, nodes, rows)
        if flags.all():
            break
    return flags


def pre_score(pod_info: PodInfo, nodes: NodeColumns) -> Scorer | None:
    preferences = _affinity(pod_info).preferred
    if not preferences:
        return None

    def score(rows: Rows) -> Amounts:
        total: Amounts = np.zeros(len(rows), np.int64)
        for preference in preferences:
            total += preference.weight * _term_holds(preference.preference, nodes, rows)
        return total

    return score


def _term_holds(term: NodeSelectorTerm, nodes: NodeColumns, rows: Rows) -> Flags:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return np.zeros(len(rows), np.bool_)
    flags: Flags = np.ones(len(rows), np.bool_)
    for expression in expressions:
        flags &= _holds(expression, nodes, rows)
        if not flags.any():
            return flags
    for field in fields:
        flags &= _field_holds(field, nodes, rows)
    return flags


def _holds(requirement: Requirement, nodes: NodeColumns, rows: Rows) -> Flags:
    """Evaluate operators that compare for equality by the numbers of the values: a call for each value is too slow."""
    column, values = nodes.label(requirement.key), requirement.values or frozenset()
    match requirement.operator:
        case "In":
            flags: Flags = column.among(values, rows)
        case "NotIn":
            flags = ~column.among(values, rows)
        case "Exists":
            flags = column.ids[rows] != 0
        case "DoesNotExist":
            flags = column.ids[rows] == 0
        case _:
            flags = column.spread(lambda value: matches(requirement, value), rows) != 0
    return flags


def _field_holds(requirement: Requirement, nodes: NodeColumns, rows: Rows) -> Flags:
    """Evaluate metadata.name, the only field that the API supports here, with the operators In and NotIn."""
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return np.zeros(len(rows), np.bool_)
    flags = np.isin(rows, [nodes.row_of[name] for name in requirement.values or () if name in nodes.row_of])
    return flags if requirement.operator == "In" else ~flags


NODE_NAME = FilterPlugin("NodeName", pre_filter_name, NO_EVENT)
FILTER = FilterPlugin("NodeAffinity", pre_filter, ClusterEvent.NODE_LABELS)
SCORE = ScorePlugin("NodeAffinity", pre_score, "largest")
