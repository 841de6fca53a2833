"""The messages of kube-scheduler's extender protocol: JSON in, JSON out. Pure.

Source: k8s.io/kube-scheduler/extender/v1, whose types have no JSON tags: keys are the names of the Go fields, and Go
reads them case-insensitively. Earlier names (``nodenames``, ``nodeToVictims``) are accepted too, so keys are compared
in lower case here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from mooring.kube.failures import UNREADABLE
from mooring.names import is_subdomain, is_uid
from mooring.parsing import shorten
from scheduler.kube.objects import Metadata, Object, Pod, Struct

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_pod = msgspec.json.Decoder(Pod).decode
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# The highest score of a node. Source: extender/v1 MaxExtenderPriority.
MAX_PRIORITY = 10
# The fields of ExtenderBindingArgs, each with its rule: they become parts of a path, where ".." is a step up.
_BINDING: Mapping[str, Callable[[str], bool]] = {
    "podnamespace": is_subdomain,
    "podname": is_subdomain,
    "poduid": is_uid,
    "node": is_subdomain,
}
_VICTIMS = ("nodenametometavictims", "nodenametovictims", "nodetovictims")


class ProtocolError(ValueError):
    """A request does not follow the protocol."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod and the nodes to evaluate, by name; ``items`` are the nodes themselves if they were sent."""

    pod: Pod
    nodes: Sequence[str]
    items: Mapping[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods by uid that would have to leave a node, and how many disruption budgets that violates."""

    uids: tuple[str, ...]
    broken_budgets: int = 0


@dataclass(frozen=True, slots=True)
class ExtenderPreemptionArgs:
    """A pod that fits nowhere, and by node the victims whose eviction would make it fit."""

    pod: Pod
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class Binding:
    """ExtenderBindingArgs: a pod and its chosen node."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Nodes(Struct):
    items: list[msgspec.Raw] | None = None


_object = msgspec.json.Decoder(Object).decode


def read_extender_args(body: bytes | memoryview) -> ExtenderArgs:
    """Read the arguments of `filter` and `prioritize`; raise ProtocolError."""
    with _reading("ExtenderArgs"):
        fields = _fields(body)
        pod = _read_pod(fields)
        if "nodenames" in fields:
            return ExtenderArgs(pod, _decode(fields["nodenames"], type=list[str]))
        node_list = _decode(fields.get("nodes", b"{}"), type=_Nodes)
        items = {_object(item).metadata.name: item for item in node_list.items or ()}
        return ExtenderArgs(pod, list(items), items)


def read_preemption(body: bytes | memoryview) -> ExtenderPreemptionArgs:
    """Read the arguments of `preempt`; raise ProtocolError."""
    with _reading("ExtenderPreemptionArgs"):
        fields = _fields(body)
        pod = _read_pod(fields)
        by_node = _raw_fields(next((fields[key] for key in _VICTIMS if key in fields), b"{}"))
        return ExtenderPreemptionArgs(pod, {node: _read_victims(victims) for node, victims in by_node.items()})


def read_binding(body: bytes | memoryview) -> Binding:
    """Read the arguments of `bind`; raise ProtocolError."""
    kind = "ExtenderBindingArgs"
    with _reading(kind):
        fields = _fields(body)
        values = [_decode(fields.get(key, b'""'), type=str) for key in _BINDING]
    for (key, is_name), value in zip(_BINDING.items(), values, strict=True):
        if not is_name(value):
            raise ProtocolError(f"request is not an {kind}: {key}: {shorten(value)} is not a name")
    return Binding(*values)


def filter_result(args: ExtenderArgs, failures: Mapping[str, str], unresolvable: Mapping[str, str]) -> bytes:
    """Return an ExtenderFilterResult: the nodes that fit, in the form in which they were sent.

    Given are the reasons against the others by name; no eviction helps on ``unresolvable`` ones.
    """
    names = [node for node in args.nodes if node not in failures and node not in unresolvable]
    return _encode(
        {
            "Nodes": None if args.items is None else {"items": [args.items[node] for node in names]},
            "NodeNames": names if args.items is None else None,
            "FailedNodes": failures,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


def error_result(error: str) -> bytes:
    """Return the ExtenderFilterResult or ExtenderBindingResult with this error; empty for success."""
    return _encode({"Error": error})


def host_priorities(scores: Mapping[str, int]) -> bytes:
    """Return a HostPriorityList of scores from 0 to `MAX_PRIORITY`."""
    return _encode([{"Host": node, "Score": score} for node, score in scores.items()])


def preemption_result(victims_by_node: Mapping[str, Victims]) -> bytes:
    """Return an ExtenderPreemptionResult, which names pods by uid for either form of the request."""
    result = {
        node: {"Pods": [{"UID": uid} for uid in victims.uids], "NumPDBViolations": victims.broken_budgets}
        for node, victims in victims_by_node.items()
    }
    return _encode({"NodeNameToMetaVictims": result})


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as unreadable:
        raise ProtocolError(f"request is not an {kind}: {unreadable}") from unreadable


def _fields(body: bytes | memoryview | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return an object's fields by their names in lower case; null fields are left out."""
    return {key.lower(): value for key, value in _raw_fields(body).items() if bytes(value) != b"null"}


def _read_pod(fields: Mapping[str, msgspec.Raw]) -> Pod:
    if "pod" not in fields:
        raise ProtocolError("request has no pod")
    pod = _pod(fields["pod"])
    if not pod.metadata.uid:
        raise ProtocolError("pod.metadata.uid is missing")
    return pod


def _read_victims(raw: msgspec.Raw) -> Victims:
    """Read Victims, which contain whole pods, or MetaVictims, which contain uids."""
    fields = _fields(raw)
    pods = _decode(fields.get("pods", b"[]"), type=list[msgspec.Raw])
    violations = _decode(fields.get("numpdbviolations", b"0"), type=int)
    return Victims(tuple(_uid(_fields(pod)) for pod in pods), violations)


def _uid(pod: Mapping[str, msgspec.Raw]) -> str:
    if "uid" in pod:
        return _decode(pod["uid"], type=str)
    return _decode(pod.get("metadata", b"{}"), type=Metadata).uid
