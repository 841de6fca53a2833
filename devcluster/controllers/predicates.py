"""Decide whether a pod may run on a node: selector, required affinity, taints, cordons. Pure.

Free resources are not checked: the stand-in for kube-scheduler places the pods of an installation, not a load.
"""

from collections.abc import Callable, Mapping, Sequence

from devcluster.controllers.writes import Object

_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and int(value) < int(values[0]),
}


def fits(spec: Object, node: Object) -> bool:
    """Return whether a pod of this spec may run on a node."""
    labels = node["metadata"].get("labels") or {}
    selected = all(labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
    return selected and _has_affinity(spec, node) and all(_tolerated(spec, taint) for taint in _taints(node))


def _has_affinity(spec: Object, node: Object) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_matches(term, node) for term in required["nodeSelectorTerms"])


def _matches(term: Object, node: Object) -> bool:
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    asked = [(one, labels) for one in term.get("matchExpressions") or ()]
    asked += [(one, fields) for one in term.get("matchFields") or ()]
    return bool(asked) and all(
        _OPERATORS[one["operator"]](known.get(one["key"]), one.get("values") or ()) for one, known in asked
    )


def _taints(node: Object) -> Sequence[Object]:
    spec = node.get("spec") or {}
    cordon = [_UNSCHEDULABLE] if spec.get("unschedulable") else []
    return [taint for taint in (*(spec.get("taints") or ()), *cordon) if taint["effect"] != "PreferNoSchedule"]


def _tolerated(spec: Object, taint: Object) -> bool:
    return any(_tolerates(one, taint) for one in spec.get("tolerations") or ())


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
