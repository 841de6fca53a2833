"""`kubectl mooring report`: nodes, pods, groups, GPUs and findings as one document, which the page draws. Pure.

Each part has the items of the command of that name, so that the page shows what the tables show.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cli.plugin.reports import doctor, explain, gpus, groups, nodes, pods
from cli.plugin.reports.checks import Patient
from cli.plugin.reports.objects import Event, Node
from cli.plugin.reports.tables import Answer
from scheduler.cache.groups.sources import Group

# Labels that say where a node is, whether or not a group names them. Sources: kubernetes.io/docs/reference/
# labels-annotations-taints, and the README of github.com/NVIDIA/topograph.
_LOCATIONS = ("topology.kubernetes.io/", "network.topology.nvidia.com/")
_Item = dict[str, object]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What was read: ``events`` is None without the right to list them; ``taken_at`` is the UNIX time."""

    patient: Patient
    nodes: Sequence[Node]
    events: Sequence[Event] | None
    taken_at: float


def report(state: ClusterState) -> Answer:
    """Return the whole cluster as one document; status 1 if a finding is an error."""
    patient = state.patient
    examined = doctor.report(patient)
    levels = _levels(patient.groups, state.nodes)
    document = {
        "kind": "MooringReport",
        "v": 1,
        "server": patient.server,
        "version": patient.version,
        "taken_at": datetime.fromtimestamp(state.taken_at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "levels": levels,
        "nodes": list(_nodes(state, levels)),
        "pods": None if patient.pods is None else list(_pods(state)),
        "groups": [groups.as_item(group) for group in patient.groups],
        "gpus": gpus.report(state.nodes, patient.pods, wide=True).document["items"],
        "checks": examined.document["checks"],
        "findings": examined.document["findings"],
    }
    return Answer(document, examined.tables, status=examined.status)


def _levels(found: Iterable[groups.FoundGroup], listed: Sequence[Node]) -> list[str]:
    """Return the labels that divide the nodes into domains, those that most groups name first."""
    named = Counter(
        label
        for one in found
        if isinstance(one.group, Group)
        for label in dict.fromkeys((*one.group.prefer, one.group.within))
        if label
    )
    carried = {label for node in listed for label in node.metadata.labels or ()}
    others = sorted(label for label in carried if label.startswith(_LOCATIONS) and label not in named)
    return [label for label in (*(label for label, _ in named.most_common()), *others) if label in carried]


def _nodes(state: ClusterState, levels: Sequence[str]) -> Iterator[_Item]:
    labels = {node.metadata.name: node.metadata.labels or {} for node in state.nodes}
    for node in state.patient.nodes:
        own = labels.get(node.name, {})
        yield nodes.as_item(node) | {"labels": {level: own[level] for level in levels if level in own}}


def _pods(state: ClusterState) -> Iterator[_Item]:
    """Yield the pods that request VFs or belong to a group, with the last decision about each."""
    members = {uid for group in state.patient.groups for uid in group.pods}
    by_name = {node.metadata.name: node for node in state.nodes}
    events = groups.events_by_pod(state.events or ())
    for pod in sorted(state.patient.pods or (), key=lambda pod: pod.key):
        uid = pod.metadata.uid
        if pods.concerns(pod) or uid in members:
            item = pods.as_item(pods.summarize(pod, by_name.get(pod.spec.node_name or "")))
            own = events.get((pod.metadata.namespace, uid), ())
            yield item | {"created": pod.metadata.creation_timestamp, "decision": _decision(own, uid)}


def _decision(events: Iterable[Event], uid: str) -> _Item | None:
    if (decision := explain.latest(events, uid)) is None:
        return None
    return {"message": decision.message, "when": decision.when, "why": decision.why}
