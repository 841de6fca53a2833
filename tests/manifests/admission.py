"""Admission policies, judged by a CEL library as a real API server judges them, and the least of an API before them."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

Object = dict[str, Any]
_NODE_NAME = "authentication.kubernetes.io/node-name"
_NAMES = ("object", "oldObject", "request", "params", "variables")
_ENVIRONMENT = cel.NewEnv(variables=dict.fromkeys(_NAMES, cel.Type.DYN), extensions=[ext_strings.ExtStrings()])


@dataclass(frozen=True, slots=True)
class User:
    """Who asks; ``node`` is the one that the token's pod is bound to."""

    name: str
    node: str = ""

    @property
    def info(self) -> Object:
        """Return it as admission sees it."""
        return {"username": self.name, **({"extra": {_NODE_NAME: [self.node]}} if self.node else {})}


@dataclass(frozen=True, slots=True)
class Write:
    """A write that admission is asked about: ``resource`` with its subresource, CREATE or UPDATE."""

    resource: str
    operation: str
    user: User
    object: Object
    old: Object | None = None


@dataclass(slots=True)
class Judge:
    """The policies; ``params`` is the object that their bindings name."""

    policies: Sequence[Object]
    params: Object

    def refusals(self, write: Write) -> Iterator[str]:
        """Yield what each rule that is broken says."""
        for policy in self.policies:
            if any(_matches(rule, write) for rule in policy["spec"]["matchConstraints"]["resourceRules"]):
                yield from self._judge(policy["spec"], write)

    def _judge(self, spec: Object, write: Write) -> Iterator[str]:
        known: Object = {"object": write.object, "oldObject": write.old, "params": self.params, "variables": {}}
        known["request"] = {"userInfo": write.user.info, "operation": write.operation}
        if not all(_value(one["expression"], known) for one in spec.get("matchConditions", ())):
            return
        for variable in spec.get("variables", ()):
            known["variables"][variable["name"]] = _value(variable["expression"], known)
        for rule in spec["validations"]:
            if not _value(rule["expression"], known):
                yield _value(rule["messageExpression"], known) if "messageExpression" in rule else rule["message"]


def _matches(rule: Object, write: Write) -> bool:
    _, _, subresource = write.resource.partition("/")
    resources = {write.resource, f"{write.resource.partition('/')[0]}/*"} if subresource else {write.resource}
    return write.operation in rule["operations"] and not resources.isdisjoint(rule["resources"])


def _value(expression: str, known: Mapping[str, Any]) -> Any:
    value = _ENVIRONMENT.compile(expression).eval(data=known)
    # The library returns what went wrong as a value; a real server refuses the write (`failurePolicy: Fail`).
    assert value.type() != cel.Type.ERROR, f"{value.value()}: {expression}"
    return value.plain_value()


@dataclass(slots=True)
class Rehearsal:
    """An API of pods, nodes and Bindings whose writes the judge sees first; each write says why it was refused."""

    judge: Judge
    _objects: dict[str, Object] = field(default_factory=dict)

    async def create(self, user: User, plural: str, obj: Object) -> str:
        new = copy.deepcopy(obj)
        assert new["metadata"].get("annotations") != {}, "a real server leaves empty ones out"
        if plural == "pods":
            new["spec"].setdefault("schedulerName", "default-scheduler")
        why = self._why(Write(plural, "CREATE", user, new))
        if not why:
            self._objects[f"{plural}/{new['metadata']['name']}"] = new
        return why

    async def patch(self, user: User, plural: str, name: str, change: Object, subresource: str = "") -> str:
        old = self._objects[f"{plural}/{name}"]
        new = _changed(old, change)
        why = self._why(Write("/".join(filter(None, (plural, subresource))), "UPDATE", user, new, old))
        if not why:
            self._objects[f"{plural}/{name}"] = new
        return why

    async def bind(self, user: User, pod: str, annotations: Mapping[str, str], resource: str = "pods/binding") -> str:
        binding = {"metadata": {"name": pod, "annotations": dict(annotations)}, "target": {"kind": "Node", "name": "n"}}
        why = self._why(Write(resource, "CREATE", user, binding))
        if not why:
            change = {"spec": {"nodeName": "n"}, "metadata": {"annotations": dict(annotations)}}
            self._objects[f"pods/{pod}"] = _changed(self._objects[f"pods/{pod}"], change)
        return why

    async def take_pods_of(self, schedulers: str) -> None:
        """Let pods with interfaces name these schedulers."""
        self.judge.params = {"data": {"schedulerNames": schedulers}}

    def _why(self, write: Write) -> str:
        return "\n".join(self.judge.refusals(write))


def _changed(old: Object, change: Object) -> Object:
    """Apply a patch; empty annotations are left out, as a real server does."""
    new: Object = _merged(old, change)
    metadata = {key: value for key, value in new["metadata"].items() if key != "annotations" or value}
    return new | {"metadata": metadata}


def _merged(old: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new
