"""NodeAffinity: nodeSelector, and the required half of node affinity.

A term's expressions must all hold, one term of several must; a term without expressions holds nowhere. Source:
k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

import re
from collections.abc import Mapping, Sequence

from scheduler.cluster import NodeView
from scheduler.objects import NodeSelectorTerm, PodSpec, Requirement
from scheduler.plugins.rule import PASSES, Filter, Rule
from scheduler.queue import Happening
from scheduler.task import Task

_REASON = ("node(s) didn't match Pod's node affinity/selector",)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def prepare(task: Task, _now: float) -> Filter | None:
    selector, terms = task.pod.spec.node_selector or {}, _terms(task.pod.spec)
    if not selector and terms is None:
        return None

    def refuse(node: NodeView) -> tuple[str, ...]:
        labels = node.facts.labels
        if any(labels.get(key) != value for key, value in selector.items()):
            return _REASON
        return PASSES if terms is None or any(_holds(term, node) for term in terms) else _REASON

    return refuse


def _terms(spec: PodSpec) -> Sequence[NodeSelectorTerm] | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return None
    return affinity.required.node_selector_terms or ()


def _holds(term: NodeSelectorTerm, node: NodeView) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    # metadata.name is the only field that the API knows here.
    return all(matches(one, node.facts.labels) for one in expressions) and all(
        matches(one, {"metadata.name": node.name}) for one in fields
    )


def matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Say whether one expression of a node selector holds for these labels; an unknown operator never does."""
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, values)
        case _:
            return False


def _compares(operator: str, value: str | None, values: Sequence[str]) -> bool:
    if value is None or len(values) != 1 or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(values[0]):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


RULE = Rule("NodeAffinity", prepare, Happening.NODE)
