"""Node selector requirements: whether an expression holds for a label's value. Pure.

Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

import re
from collections.abc import Collection

from scheduler.kube.objects import Requirement

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def matches(requirement: Requirement, value: str | None) -> bool:
    """Return whether an expression holds for a label's value, None if absent; an unknown operator never holds."""
    values = requirement.values or ()
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


def _compares(operator: str, value: str | None, values: Collection[str]) -> bool:
    if value is None or len(values) != 1:
        return False
    (limit,) = values
    if not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(limit):
        return False
    return int(value) > int(limit) if operator == "Gt" else int(value) < int(limit)
