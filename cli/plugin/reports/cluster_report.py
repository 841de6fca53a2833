"""`kubectl mooring report`: nodes, pods, groups, GPUs and findings as one document, which the page draws. Pure.

Each part has the items of the command of that name, so that the page shows what the tables show.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from cli.plugin.reports import doctor, explain, found_groups, gpus, groups, nodes, pods, status
from cli.plugin.reports.checks import Patient
from cli.plugin.reports.objects import Event, Node, Pod
from cli.plugin.reports.tables import Answer
from cli.plugin.reports.use import NodeUse
from scheduler.kube.group import Group

# Labels that say where a node is, whether or not a group names them. Sources: kubernetes.io/docs/reference/
# labels-annotations-taints, and the README of github.com/NVIDIA/topograph.
_LOCATIONS = ("topology.kubernetes.io/", "network.topology.nvidia.com/")
_Item = dict[str, object]
_AT_ONCE = 500


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
    results = status.examine(patient)
    findings = doctor.findings_of(results)
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
        "gpus": gpus.items(state.nodes, patient.pods),
        "checks": status.items(results),
        "findings": [asdict(finding) for finding in findings],
    }
    return Answer(document, (), status=1 if any(finding.level == "error" for finding in findings) else 0)


def prepare(state: ClusterState) -> Iterator[None]:
    """Derive what a report needs of each new pod, some at a time; it is kept until the report is made."""
    new = [pod for pod in state.patient.pods or () if not pod.has(_pod)]
    for number, _ in enumerate(_pods(replace(state, patient=replace(state.patient, pods=new)))):
        if number % _AT_ONCE == 0:
            yield


def _levels(found: Iterable[found_groups.FoundGroup], nodes: Sequence[Node]) -> list[str]:
    """Return the labels that divide the nodes into domains, those that most groups name first."""
    label_counts = Counter(
        label
        for found_group in found
        if isinstance(found_group.group, Group)
        for label in dict.fromkeys((*found_group.group.prefer, found_group.group.within))
        if label
    )
    labels = {label for node in nodes for label in node.metadata.labels or ()}
    other_labels = sorted(label for label in labels if label.startswith(_LOCATIONS) and label not in label_counts)
    return [label for label in (*(label for label, _ in label_counts.most_common()), *other_labels) if label in labels]


def _nodes(state: ClusterState, levels: Sequence[str]) -> Iterator[_Item]:
    nodes = {node.metadata.name: node for node in state.nodes}
    for use in state.patient.nodes:
        node = nodes[use.name]
        own = node.metadata.labels or {}
        labels = {level: own[level] for level in levels if level in own}
        yield node.derive(_node, use, labels)


def _node(_: Node, use: NodeUse, labels: Mapping[str, str]) -> _Item:
    return nodes.as_item(use) | {"labels": labels}


def _pods(state: ClusterState) -> Iterator[_Item]:
    """Yield the pods that request VFs or belong to a group, with the last decision about each."""
    members = {uid for group in state.patient.groups for uid in group.pods}
    by_name = {node.metadata.name: node for node in state.nodes}
    events = found_groups.events_by_pod(state.events or ())
    for pod in sorted(state.patient.pods or (), key=lambda pod: pod.key):
        uid = pod.metadata.uid
        if pods.concerns(pod) or uid in members:
            # Only rates whose change is open depend on the node.
            node = by_name.get(pod.spec.node_name or "") if pods.is_open(pod) else None
            pod_events = events.get((pod.metadata.namespace, uid), [])
            yield pod.derive(_pod, node, pod_events)


def _pod(pod: Pod, node: Node | None, events: Iterable[Event]) -> _Item:
    decision = explain.latest(events, pod.metadata.uid)
    return pods.as_item(pods.summarize(pod, node)) | {
        "created": pod.metadata.creation_timestamp,
        "decision": decision and {"message": decision.message, "when": decision.when, "why": decision.why},
    }
