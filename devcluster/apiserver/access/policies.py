"""Evaluate ValidatingAdmissionPolicies, with a CEL library of PyPI, as a real server applies them.

Left out: audit actions, match policies and selectors of namespaces and objects, authorizer and CEL's cost limits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from devcluster.apiserver.objects import Object, items, section

_NAMES = ("object", "oldObject", "request", "params", "variables")


class CelError(ValueError):
    """An expression that could not be evaluated, with the library's message."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that admission checks.

    ``resource`` has its subresource (`pods/binding`), ``operation`` is CREATE or UPDATE, ``user`` is userInfo.
    """

    group: str
    resource: str
    operation: str
    user: Object
    object: Object
    old: Object | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The message of a broken rule, and its reason (Invalid if it names none)."""

    message: str
    reason: str = "Invalid"


def concerns(policy: Object, write: Write) -> bool:
    """Return whether a policy's matchConstraints match a write."""
    rules = items(section(section(policy, "spec"), "matchConstraints"), "resourceRules")
    return any(_matches(rule, write) for rule in rules)


def refusals(policy: Object, params: Object | None, write: Write) -> Iterator[Refusal]:
    """Yield the refusal of each rule that the write breaks; raise CelError."""
    spec = section(policy, "spec")
    known: Object = {"object": write.object, "oldObject": write.old, "params": params, "variables": {}}
    known["request"] = {"userInfo": write.user, "operation": write.operation}
    if not all(evaluate(one["expression"], known) for one in items(spec, "matchConditions")):
        return
    for variable in items(spec, "variables"):
        known["variables"][variable["name"]] = evaluate(variable["expression"], known)
    for rule in items(spec, "validations"):
        if not evaluate(rule["expression"], known):
            said = evaluate(rule["messageExpression"], known) if "messageExpression" in rule else rule["message"]
            yield Refusal(said, rule.get("reason", "Invalid"))


def _matches(rule: Object, write: Write) -> bool:
    plural, _, subresource = write.resource.partition("/")
    resources = {write.resource, f"{plural}/*", f"*/{subresource}", "*/*"} if subresource else {write.resource, "*"}
    return (
        not {"*", write.operation}.isdisjoint(rule["operations"])
        and not {"*", write.group}.isdisjoint(rule["apiGroups"])
        and not resources.isdisjoint(rule["resources"])
    )


@cache
def _environment() -> Any:
    # Imported where a policy is evaluated: a cluster without policies does not pay for it.
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings

    return cel.NewEnv(variables=dict.fromkeys(_NAMES, cel.Type.DYN), extensions=[ext_strings.ExtStrings()])


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:
    return _environment().compile(expression)


def evaluate(expression: str, known: Mapping[str, Any]) -> Any:
    """Return an expression's value, with these names known to it; raise CelError."""
    from cel_expr_python import cel

    value = _compiled(expression).eval(data=known)
    # The library returns an error as a value.
    if value.type() == cel.Type.ERROR:
        raise CelError(f"{value.value()}: {expression}")
    return value.plain_value()
