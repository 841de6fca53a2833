"""Admission policies, judged as devcluster's API server judges them, and the least of an API before them."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from devcluster.apiserver.access.policies import Write, concerns, refusals

Object = dict[str, Any]
_NODE_NAME = "authentication.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True)
class User:
    """The caller; ``node`` is the one that the token's pod is bound to."""

    name: str
    node: str = ""

    @property
    def info(self) -> Object:
        """Return it as admission sees it."""
        return {"username": self.name, **({"extra": {_NODE_NAME: [self.node]}} if self.node else {})}


@dataclass(slots=True)
class Judge:
    """The policies; ``params`` is the object that their bindings name."""

    policies: Sequence[Object]
    params: Object

    def refusals(self, write: Write) -> Iterator[str]:
        """Yield the message of each rule that is broken."""
        for policy in self.policies:
            if concerns(policy, write):
                yield from (refusal.message for refusal in refusals(policy, self.params, write))


@dataclass(slots=True)
class Rehearsal:
    """An API of pods, nodes and Bindings whose writes the judge sees first; each write returns why it was refused."""

    judge: Judge
    _objects: dict[str, Object] = field(default_factory=dict)

    async def create(self, user: User, plural: str, obj: Object) -> str:
        new = copy.deepcopy(obj)
        assert new["metadata"].get("annotations") != {}, "a real server leaves empty ones out"
        if plural == "pods":
            new["spec"].setdefault("schedulerName", "default-scheduler")
        why = self._why(Write("", plural, "CREATE", user.info, new))
        if not why:
            self._objects[f"{plural}/{new['metadata']['name']}"] = new
        return why

    async def patch(self, user: User, plural: str, name: str, change: Object, subresource: str = "") -> str:
        old = self._objects[f"{plural}/{name}"]
        new = _changed(old, change)
        why = self._why(Write("", "/".join(filter(None, (plural, subresource))), "UPDATE", user.info, new, old))
        if not why:
            self._objects[f"{plural}/{name}"] = new
        return why

    async def bind(self, user: User, pod: str, annotations: Mapping[str, str], resource: str = "pods/binding") -> str:
        binding = {"metadata": {"name": pod, "annotations": dict(annotations)}, "target": {"kind": "Node", "name": "n"}}
        why = self._why(Write("", resource, "CREATE", user.info, binding))
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
