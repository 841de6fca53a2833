"""Write a pod's status from the runtime's view of it and the last failures. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from devcluster.kubelet.plan import next_steps
from devcluster.kubelet.plan.pods import ContainerSpec, Pod
from devcluster.kubelet.plan.view import Container, State, View

Document = dict[str, object]
# Conditions as last written: status and since when, by type.
Conditions = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a container waits: the API's reason and the runtime's message."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class StatusContext:
    """What a status depends on beside the pod itself.

    These are the time and when the kubelet saw the pod first (both in seconds since the epoch), and the node's address.
    There are also the conditions written last, and the ids of running containers that by their probes have not started,
    or are not ready.
    """

    time_s: float
    start_s: float
    host_ip: str
    conditions: Conditions
    not_started: frozenset[str] = frozenset()
    not_ready: frozenset[str] = frozenset()


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as the API writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase(pod: Pod, view: View) -> str:
    """Return the pod's phase; a terminal one never changes again, and a pod taken down ends in one."""
    if pod.is_terminal:
        return pod.status.phase
    stopped = not any(container.state is State.RUNNING for container in view.containers) and not view.ready_sandbox()
    if next_steps.has_finished(pod, view) or (pod.is_deleted and stopped):
        return "Succeeded" if next_steps.succeeded(pod, view) else "Failed"
    latest = [view.latest(container.name) for container in pod.spec.containers]
    started = all(container is not None and container.started_s for container in latest)
    return "Running" if started else "Pending"


def status(pod: Pod, view: View, failures: Mapping[str, Failure], now: StatusContext) -> Document:
    """Return the status to write; ``failures`` are by container name."""
    sandbox = view.ready_sandbox()
    ips = (now.host_ip,) if pod.spec.host_network and sandbox else sandbox.ips if sandbox else ()
    document: Document = {
        "phase": phase(pod, view),
        "startTime": pod.status.start_time or timestamp(now.start_s),
        "conditions": conditions(pod, view, now),
        "containerStatuses": _containers(pod.spec.containers, view, failures, now),
    }
    if now.host_ip:
        document |= {"hostIP": now.host_ip, "hostIPs": [{"ip": now.host_ip}]}
    if ips:
        document |= {"podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips]}
    if pod.spec.init_containers:
        document["initContainerStatuses"] = _containers(pod.spec.init_containers, view, failures, now)
    return document


def since(document: Document) -> Conditions:
    """Return the conditions of a status that was written, for the next one."""
    written = cast("Sequence[Mapping[str, str]]", document["conditions"])
    return {one["type"]: (one["status"], one["lastTransitionTime"]) for one in written}


def conditions(pod: Pod, view: View, now: StatusContext) -> Sequence[Document]:
    """Return the kubelet's own conditions; each keeps its time while its status stays."""
    inits = [view.latest(init.name) for init in pod.spec.init_containers if not init.is_sidecar]
    latest = [view.latest(container.name) for container in pod.spec.containers]
    ready = all(container is not None and _is_ready(container, now) for container in latest)
    values = {
        "PodReadyToStartContainers": view.ready_sandbox() is not None,
        "Initialized": all(init is not None and init.state is State.EXITED and not init.exit_code for init in inits),
        "ContainersReady": ready,
        "Ready": ready,
    }
    return [_condition(kind, "True" if value else "False", now) for kind, value in values.items()]


def _condition(kind: str, value: str, now: StatusContext) -> Document:
    last, since = now.conditions.get(kind, ("", ""))
    reason = "ContainersNotReady" if value == "False" and kind in ("Ready", "ContainersReady") else None
    changed = since if last == value else timestamp(now.time_s)
    # In a patch null removes a field: an earlier reason would stay otherwise.
    return {"type": kind, "status": value, "reason": reason, "lastProbeTime": None, "lastTransitionTime": changed}


def _is_ready(container: Container, now: StatusContext) -> bool:
    return container.state is State.RUNNING and container.id not in now.not_ready


def _containers(
    specs: Sequence[ContainerSpec], view: View, failures: Mapping[str, Failure], now: StatusContext
) -> list[Document]:
    return [_container(spec, view, failures.get(spec.name), now) for spec in sorted(specs, key=lambda spec: spec.name)]


def _container(spec: ContainerSpec, view: View, failure: Failure | None, now: StatusContext) -> Document:
    latest = view.latest(spec.name)
    document: Document = {
        "name": spec.name,
        "image": spec.image,
        "imageID": "" if latest is None else latest.image,
        "restartCount": 0 if latest is None else latest.attempt,
        "ready": latest is not None and _is_ready(latest, now),
        "started": latest is not None and latest.state is State.RUNNING and latest.id not in now.not_started,
        "state": _state(latest, failure),
    }
    return document if latest is None else document | {"containerID": f"containerd://{latest.id}"}


def _state(container: Container | None, failure: Failure | None) -> Document:
    if failure is not None:
        return {"waiting": {"reason": failure.reason, "message": failure.message}}
    if container is None or container.state in (State.CREATED, State.UNKNOWN):
        return {"waiting": {"reason": "ContainerCreating"}}
    if container.state is State.RUNNING:
        return {"running": {"startedAt": timestamp(container.started_s)}}
    ended: Document = {
        "exitCode": container.exit_code,
        "reason": container.reason or ("Error" if container.exit_code else "Completed"),
        "startedAt": timestamp(container.started_s),
        "finishedAt": timestamp(container.finished_s),
        "containerID": f"containerd://{container.id}",
    }
    return {"terminated": ended}
