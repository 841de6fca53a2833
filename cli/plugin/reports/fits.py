"""Decide about the pods of manifests that are not created, with the scheduler's own machine beside all objects. Pure.

Each template becomes the pods that its controller makes at one time. Pods that wait in the cluster have their turn as
in the scheduler: by priority and age.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from cli.plugin.reports.lint.made_pods import MadePods, made_pods
from cli.plugin.reports.lint.manifests import ManifestError, PodPlace, pods
from cli.plugin.reports.lint.set_labels import set_labels
from cli.plugin.reports.lint.template_pods import group_request
from cli.plugin.reports.recompute import PATHS, identity_of
from mooring import names
from mooring.kube.events import Changed
from mooring.natural_order import natural
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import PreBind, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND
from scheduler.placement.gpus import gpu_kind
from scheduler.state.machine import Machine

__all__ = ["PATHS", "Fit", "decide"]

# More pods than one job has ranks; of one file.
_MOST_PODS = 10_000
_TICK_S, _STEPS_A_POD, _LEAST_STEPS = 0.001, 50, 10_000


@dataclass(frozen=True, slots=True)
class Fit:
    """The new pods of one template: how many would be bound now, on which nodes, and why others wait.

    A Pod that exists already has no new ones.
    """

    owner: str
    pods: int
    bound: int
    nodes: tuple[str, ...]
    why: str


def decide(
    files: Sequence[tuple[str, str]], objects: Mapping[type[Any], Sequence[Any]], namespace: str, now: float
) -> list[Fit]:
    """Return what would become of the pods of these files; raise ValueError."""
    machine = Machine(names.SCHEDULER_NAME, kinds=Kinds([gpu_kind()]))
    machine.reservations.now = now
    for kind, items in objects.items():
        for item in items:
            machine.handle(kind, Changed(identity_of(item), item), now)
    pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in objects[Pod]}
    uids_by_owner, fits_of_pods = dict[str, list[str]](), list[Fit]()
    for number, (owner, pod) in enumerate(_pods(files, namespace, now)):
        if number >= _MOST_PODS:
            raise ValueError(f"more than {_MOST_PODS} pods in the files")
        if (old := pods.get((pod.metadata.namespace, pod.metadata.name))) is not None:
            fits_of_pods.append(Fit(owner, 0, 0, (), _existence(old)))
            continue
        uids_by_owner.setdefault(owner, []).append(pod.metadata.uid)
        machine.pods(Changed(identity_of(pod), pod), now)
    nodes, reasons = _run(machine, sum(map(len, uids_by_owner.values())), now)
    fits = list[Fit]()
    for owner, uids in uids_by_owner.items():
        bound_nodes = [nodes[uid] for uid in uids if uid in nodes]
        waiting_uid = next((uid for uid in uids if uid not in nodes), "")
        why = (reasons.get(waiting_uid) or _why_not_queued(machine, waiting_uid)) if waiting_uid else ""
        fits.append(Fit(owner, len(uids), len(bound_nodes), tuple(sorted(set(bound_nodes), key=natural)), why))
    return [*fits, *fits_of_pods]


def _existence(pod: Pod) -> str:
    """Return where a pod is that exists already."""
    if pod.is_over:
        return "exists already, has ended"
    return f"exists already: on node {pod.spec.node_name}" if pod.spec.node_name else "exists already, waits"


def _why_not_queued(machine: Machine, uid: str) -> str:
    """Return why a pod's group is not in the queue, before the scheduler would report it."""
    membership, groups = machine.group_cache.of(uid), machine.pending_groups
    group = groups.get(membership.key) if membership is not None else None
    if membership is not None and group is not None and group.message:
        return f"group {membership.title}: {group.message}"
    return "no decision was reached"


def _run(machine: Machine, pod_count: int, now: float) -> tuple[dict[str, str], dict[str, str]]:
    """Let the machine decide until nothing is ready; return nodes and reasons by uid."""
    nodes, reasons = dict[str, str](), dict[str, str]()
    for _ in range(_LEAST_STEPS + _STEPS_A_POD * pod_count):
        now += _TICK_S
        instructions = machine.step(now)
        if instructions is None:
            instructions = machine.tick(now)
            if not instructions:
                break
        for instruction in instructions:
            decision = instruction.decision if isinstance(instruction, PreBind) else instruction
            if isinstance(decision, Bind):
                nodes[decision.pod_info.uid] = decision.assigned.node
            elif isinstance(instruction, Report):
                reasons[instruction.pod.metadata.uid] = instruction.message
            if isinstance(instruction, Bind):
                machine.finished(instruction, BOUND, now)
    return nodes, reasons


def _pods(files: Sequence[tuple[str, str]], namespace: str, now: float) -> Iterator[tuple[str, Pod]]:
    """Yield the pods that controllers make at one time of the templates in files, with their owners."""
    for order, (file, text) in enumerate(files):
        try:
            places = [place for place in pods(text) if isinstance(place, PodPlace)]
        except ManifestError as error:
            raise ValueError(f"file {file!r}: {error}") from error
        for template, place in enumerate(places):
            for part, made in enumerate(made_pods(place)):
                if made.total is None:
                    raise ValueError(f"{place.owner}: how many pods its controller makes is not known")
                for number in range(made.total):
                    name = f"{place.owner}-{order}-{template}-{part}-{number}"
                    labels = _labels(place, made, number, order)
                    pod = _pod(place, namespace, name, f"{order} {_controller(place, made, number)}", labels, now)
                    if pod.spec.scheduler_name == names.SCHEDULER_NAME:
                        yield place.owner, pod


def _controller(place: PodPlace, made: MadePods, number: int) -> str:
    """Return a name for the controller of one pod of a template."""
    part = "" if made.owns_pods or not made.pods else f"{made.controller} {number // made.pods}"
    return f"{place.whole.line} {'.'.join(place.whole.path)} {part}"


def _labels(place: PodPlace, made: MadePods, number: int, order: int) -> Mapping[str, str]:
    """Return the labels that the controller sets; raise ValueError if the pod's group needs another one."""
    labels, request = set_labels(place, made, number), group_request(place.pod)
    own_labels = place.pod.at("metadata", "labels").value
    for key in (request.name_from, request.role_from) if request is not None else ():
        if key is not None and key not in labels and not (isinstance(own_labels, dict) and own_labels.get(key)):
            raise ValueError(f"{place.owner}: the value of its pods' label {key!r} is not known")
    return {key: f"{order}-{value}" if key in made.labels else value for key, value in labels.items()}


def _pod(place: PodPlace, namespace: str, name: str, controller: str, labels: Mapping[str, str], now: float) -> Pod:
    """Return one pod of a template."""
    value: dict[str, Any] = dict(place.pod.value) if isinstance(place.pod.value, dict) else {}
    for part in place.pod.renamed:
        value[part] = place.pod.at(part).value or {}
    metadata: dict[str, Any] = value["metadata"] if isinstance(value.get("metadata"), dict) else {}
    kind, _, owner_name = place.owner.partition("/")
    creation_time = datetime.fromtimestamp(now, UTC).isoformat()
    own_metadata = {
        "creationTimestamp": creation_time,
        "name": (metadata.get("name") or name) if kind == "Pod" else name,
        "uid": f"fits {name}",
        "namespace": _namespace(place, metadata, namespace),
        "labels": {**labels, **(metadata.get("labels") or {})},
    }
    owners = [] if kind == "Pod" else [{"kind": kind, "name": owner_name, "uid": controller, "controller": True}]
    try:
        return msgspec.convert(
            {
                **value,
                "metadata": {**metadata, **own_metadata, "ownerReferences": owners},
                "status": {"phase": "Pending"},
            },
            Pod,
        )
    except msgspec.ValidationError as wrong:
        raise ValueError(f"{place.owner}: {wrong}") from wrong


def _namespace(place: PodPlace, metadata: Mapping[str, Any], namespace: str) -> str:
    return str(metadata.get("namespace") or place.whole.at("metadata", "namespace").value or namespace)
