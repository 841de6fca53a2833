"""The messages of kube-scheduler's extender protocol: JSON in, JSON out. Pure.

Source: k8s.io/kube-scheduler/extender/v1, whose types have no JSON tags: keys are the names of the Go fields, and Go
reads them case-insensitively. Earlier names (``nodenames``, ``nodeToVictims``) are accepted too, so keys are compared
in lower case here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from mooring.kube.failures import UNREADABLE
from mooring.names import is_subdomain, is_uid
from mooring.parsing import shorten
from scheduler.kube.objects import Metadata, Pod, Struct

_encode = msgspec.json.Encoder().encode
_pod = msgspec.json.Decoder(Pod).decode
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NULL = b"null"
# The highest score of a node. Source: extender/v1 MaxExtenderPriority.
MAX_PRIORITY = 10


# The fields of ExtenderBindingArgs, each with its rule: they become parts of a path, where ".." is a step up.
_BINDING: Mapping[str, Callable[[str], bool]] = {
    "podnamespace": is_subdomain,
    "podname": is_subdomain,
    "poduid": is_uid,
    "node": is_subdomain,
}


class ProtocolError(ValueError):
    """A request does not follow the protocol."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """ExtenderArgs: a pod and the nodes to evaluate, by name; ``items`` are the nodes themselves if they were sent."""

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
    """ExtenderPreemptionArgs: a pod that fits nowhere, and by node the victims whose eviction would make it fit."""

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


@dataclass(frozen=True, slots=True)
class FailedNodes:
    """Why nodes do not fit the pod, by name; ``for_good`` are those where no eviction helps."""

    for_now: Mapping[str, str]
    for_good: Mapping[str, str]


class _Object(Struct):
    metadata: Metadata


class _Nodes(Struct):
    items: list[msgspec.Raw] | None = None


_node = msgspec.json.Decoder(_Object).decode


def read_extender_args(body: bytes | memoryview) -> ExtenderArgs:
    """Read the arguments of `filter` and `prioritize`; raise ProtocolError."""
    try:
        fields = _fields(body)
        pod = _read_pod(fields)
        if (names_sent := fields.get("nodenames")) is not None:
            return ExtenderArgs(pod, msgspec.json.decode(names_sent, type=list[str]))
        node_list = msgspec.json.decode(fields.get("nodes", b"{}"), type=_Nodes)
        items = {_node(item).metadata.name: item for item in node_list.items or ()}
    except UNREADABLE as wrong:
        raise ProtocolError(f"request is not an ExtenderArgs: {wrong}") from wrong
    return ExtenderArgs(pod, list(items), items)


def read_preemption(body: bytes | memoryview) -> ExtenderPreemptionArgs:
    """Read the arguments of `preempt`; raise ProtocolError."""
    try:
        fields = _fields(body)
        pod = _read_pod(fields)
        keys = ("nodenametometavictims", "nodenametovictims", "nodetovictims")
        sent = next((fields[key] for key in keys if key in fields), msgspec.Raw(b"{}"))
        return ExtenderPreemptionArgs(pod, {node: _victims(victims) for node, victims in _raw_fields(sent).items()})
    except UNREADABLE as wrong:
        raise ProtocolError(f"request is not an ExtenderPreemptionArgs: {wrong}") from wrong


def read_binding(body: bytes | memoryview) -> Binding:
    """Read the arguments of `bind`; raise ProtocolError."""
    try:
        fields = _fields(body)
        values = [msgspec.json.decode(fields.get(key, b'""'), type=str) for key in _BINDING]
    except UNREADABLE as wrong:
        raise ProtocolError(f"request is not an ExtenderBindingArgs: {wrong}") from wrong
    for (key, is_name), value in zip(_BINDING.items(), values, strict=True):
        if not is_name(value):
            raise ProtocolError(f"request is not an ExtenderBindingArgs: {key}: {shorten(value)} is not a name")
    return Binding(*values)


def filtered(args: ExtenderArgs, failures: FailedNodes) -> bytes:
    """Return an ExtenderFilterResult: the nodes that pass, in the form in which they were sent."""
    passing = [node for node in args.nodes if node not in failures.for_now and node not in failures.for_good]
    nodes = None if args.items is None else {"items": [args.items[node] for node in passing]}
    return _encode(
        {
            "Nodes": nodes,
            "NodeNames": passing if args.items is None else None,
            "FailedNodes": failures.for_now,
            "FailedAndUnresolvableNodes": failures.for_good,
            "Error": "",
        }
    )


def failed(error: str) -> bytes:
    """Return the ExtenderFilterResult or ExtenderBindingResult with this error; empty for success."""
    return _encode({"Error": error})


def prioritized(scores: Mapping[str, int]) -> bytes:
    """Return a HostPriorityList of scores from 0 to `MAX_PRIORITY`."""
    return _encode([{"Host": node, "Score": score} for node, score in scores.items()])


def preempted(victims: Mapping[str, Victims]) -> bytes:
    """Return an ExtenderPreemptionResult, which names pods by uid for either form of the request."""
    result = {
        node: {"Pods": [{"UID": uid} for uid in node_victims.uids], "NumPDBViolations": node_victims.broken_budgets}
        for node, node_victims in victims.items()
    }
    return _encode({"NodeNameToMetaVictims": result})


def _fields(body: bytes | memoryview | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return an object's fields by their names in lower case; null fields are left out."""
    return {key.lower(): value for key, value in _raw_fields(body).items() if bytes(value) != _NULL}


def _read_pod(fields: Mapping[str, msgspec.Raw]) -> Pod:
    if "pod" not in fields:
        raise ProtocolError("request has no pod")
    pod = _pod(fields["pod"])
    if not pod.metadata.uid:
        raise ProtocolError("pod.metadata.uid is missing")
    return pod


def _victims(raw: msgspec.Raw) -> Victims:
    """Read Victims, which contain whole pods, or MetaVictims, which contain uids."""
    fields = _fields(raw)
    pods = msgspec.json.decode(fields.get("pods", b"[]"), type=list[msgspec.Raw])
    violations = msgspec.json.decode(fields.get("numpdbviolations", b"0"), type=int)
    return Victims(tuple(_uid(_fields(pod)) for pod in pods), violations)


def _uid(pod: Mapping[str, msgspec.Raw]) -> str:
    if "uid" in pod:
        return msgspec.json.decode(pod["uid"], type=str)
    return msgspec.json.decode(pod.get("metadata", b"{}"), type=Metadata).uid
