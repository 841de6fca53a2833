"""NodeAffinity: nodeSelector, and node affinity, required and preferred.

A term's expressions must all hold, one term of several must; a term without expressions holds nowhere. Source:
k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import NodeSelector, NodeSelectorTerm, Requirement
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.node_selectors import matches
from scheduler.plugins.interface import FilterPlugin, NodeFilter, ScorePlugin, Scorer, refuse_where


def pre_filter(pod_info: PodInfo, nodes: NodeColumns) -> NodeFilter | None:
    affinity = pod_info.pod.spec.affinity.node_affinity if pod_info.pod.spec.affinity else None
    if not pod_info.pod.spec.node_selector and (affinity is None or affinity.required is None):
        return None
    return lambda rows, _: refuse_where(
        ~required(pod_info, nodes, rows), "node(s) didn't match Pod's node affinity/selector"
    )


def required(pod_info: PodInfo, nodes: NodeColumns, rows: Rows) -> Flags:
    """Return for each node whether the pod's nodeSelector and required node affinity hold there."""
    spec = pod_info.pod.spec
    matched: Flags = np.ones(len(rows), np.bool_)
    for key, value in (spec.node_selector or {}).items():
        matched &= _holds(Requirement(key, "In", frozenset((value,))), nodes, rows)
        if not matched.any():
            return matched
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is not None and affinity.required is not None:
        matched &= any_term_holds(affinity.required, nodes, rows)
    return matched


def any_term_holds(selector: NodeSelector, nodes: NodeColumns, rows: Rows) -> Flags:
    """Return for each node whether one of the terms holds there; without terms none does."""
    held: Flags = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms or ():
        held |= _term_holds(term, nodes, rows)
        if held.all():
            break
    return held


def weigh_preferred(pod_info: PodInfo, nodes: NodeColumns) -> Scorer | None:
    """Add up the weights of the preferred terms that hold."""
    affinity = pod_info.pod.spec.affinity.node_affinity if pod_info.pod.spec.affinity else None
    preferred = affinity.preferred if affinity else None
    if not preferred:
        return None

    def score(rows: Rows) -> Amounts:
        total: Amounts = np.zeros(len(rows), np.int64)
        for one in preferred:
            total += one.weight * _term_holds(one.preference, nodes, rows)
        return total

    return score


def _term_holds(term: NodeSelectorTerm, nodes: NodeColumns, rows: Rows) -> Flags:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return np.zeros(len(rows), np.bool_)
    held: Flags = np.ones(len(rows), np.bool_)
    for expression in expressions:
        held &= _holds(expression, nodes, rows)
        if not held.any():
            return held
    for field in fields:
        held &= _field_holds(field, nodes, rows)
    return held


def _holds(requirement: Requirement, nodes: NodeColumns, rows: Rows) -> Flags:
    """Judge the four operators that compare for equality by the numbers of the values: a call for each is too slow."""
    column, values = nodes.label(requirement.key), requirement.values or frozenset()
    match requirement.operator:
        case "In":
            held: Flags = column.among(values, rows)
        case "NotIn":
            held = ~column.among(values, rows)
        case "Exists":
            held = column.ids[rows] != 0
        case "DoesNotExist":
            held = column.ids[rows] == 0
        case _:
            held = column.spread(lambda value: matches(requirement, value), rows) != 0
    return held


def _field_holds(requirement: Requirement, nodes: NodeColumns, rows: Rows) -> Flags:
    """The API supports only the field metadata.name here, with the operators In and NotIn."""
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return np.zeros(len(rows), np.bool_)
    named = np.isin(rows, [nodes.row_of[name] for name in requirement.values or () if name in nodes.row_of])
    return named if requirement.operator == "In" else ~named


FILTER = FilterPlugin("NodeAffinity", pre_filter, ClusterEvent.NODE_ADDED | ClusterEvent.NODE_LABELS)
SCORE = ScorePlugin("NodeAffinity", weigh_preferred, "largest")
