"""Deployments and ReplicaSets: updates within maxSurge and maxUnavailable, and enough status to wait for. Pure."""

from collections.abc import Iterator, Sequence

from devcluster.controllers.templates import TEMPLATE_HASH, pod_of, template_hash
from devcluster.controllers.writes import (
    Change,
    Create,
    Object,
    Remove,
    View,
    Write,
    collection,
    is_active,
    is_deleted,
    is_ready,
    owner_reference,
    path_of,
    share_of,
    status_changed,
)


def plan_deployments(view: View) -> Iterator[Write]:
    """Yield what every Deployment lacks."""
    for deployment in view.listed["deployments"]:
        if not is_deleted(deployment):
            yield from _deploy(deployment, view.owned("replicasets", deployment), view.now)


def plan_replicasets(view: View) -> Iterator[Write]:
    """Yield what every ReplicaSet lacks: pods too few or too many, its status."""
    for one in view.listed["replicasets"]:
        if is_deleted(one):
            continue
        pods = [pod for pod in view.owned("pods", one) if is_active(pod)]
        missing = _replicas(one) - len(pods)
        yield from (pod_of(one, {}) for _ in range(missing))
        # A pod that is not ready goes first, then the youngest.
        pods.sort(key=lambda pod: (not is_ready(pod), pod["metadata"]["creationTimestamp"]), reverse=True)
        yield from (Remove(path_of("pods", pod), pod["metadata"]["uid"]) for pod in pods[: max(-missing, 0)])
        yield from _told("replicasets", one, len(pods), sum(map(is_ready, pods)))


def _deploy(deployment: Object, sets: Sequence[Object], now: str) -> Iterator[Write]:
    wanted, name = _replicas(deployment), template_hash(deployment)
    new = next((one for one in sets if one["metadata"]["labels"].get(TEMPLATE_HASH) == name), None)
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = share_of(rolling.get("maxSurge", "25%"), wanted, up=True)
    lacking = share_of(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    room = wanted + surge - sum(map(_replicas, sets))
    if new is None:
        yield _replica_set(deployment, name, max(0, min(wanted, room)))
        return
    present = _replicas(new)
    if present != wanted and (target := min(wanted, present + max(room, 0))) != present:
        yield _scaled(new, target)
    spare = sum(map(_replicas, sets)) - (wanted - lacking) - (present - _counted(new, "availableReplicas"))
    for old in sets:
        gone = max(0, min(spare, _replicas(old))) if old is not new else 0
        spare -= gone
        if gone:
            yield _scaled(old, _replicas(old) - gone)
    yield from _progress(deployment, sets, new, now)


def _progress(deployment: Object, sets: Sequence[Object], new: Object, now: str) -> Iterator[Write]:
    wanted = _replicas(deployment)
    count = {
        name: sum(_counted(one, name) for one in sets) for name in ("replicas", "readyReplicas", "availableReplicas")
    }
    available = count["availableReplicas"] >= wanted
    complete = available and _counted(new, "availableReplicas") == wanted == count["replicas"]
    conditions = [
        _condition(deployment, "Available", available, "MinimumReplicasAvailable", now),
        _condition(deployment, "Progressing", True, "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated", now),
    ]
    status = {
        "observedGeneration": deployment["metadata"].get("generation"),
        **count,
        "updatedReplicas": _counted(new, "replicas"),
        "unavailableReplicas": max(0, wanted - count["availableReplicas"]),
        "conditions": conditions,
    }
    yield from status_changed("deployments", deployment, status)


def _condition(deployment: Object, kind: str, value: bool, reason: str, now: str) -> Object:
    old: Object = next(
        (one for one in (deployment.get("status") or {}).get("conditions") or () if one["type"] == kind), {}
    )
    status = "True" if value else "False"
    same = old.get("status") == status and old.get("reason") == reason
    return old if same else {"type": kind, "status": status, "reason": reason, "lastTransitionTime": now}


def _replica_set(deployment: Object, name: str, replicas: int) -> Create:
    about, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    labels = {**(template["metadata"].get("labels") or {}), TEMPLATE_HASH: name}
    selector = {**spec["selector"], "matchLabels": {**spec["selector"].get("matchLabels", {}), TEMPLATE_HASH: name}}
    labelled = {**template, "metadata": {**template["metadata"], "labels": labels}}
    metadata = {
        "name": f"{about['name']}-{name}",
        "namespace": about["namespace"],
        "labels": labels,
        "ownerReferences": [owner_reference(deployment)],
    }
    body = {"replicas": replicas, "selector": selector, "template": labelled}
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": body}
    return Create(collection("replicasets", about["namespace"]), made)


def _scaled(one: Object, replicas: int) -> Change:
    return Change(path_of("replicasets", one), {"spec": {"replicas": replicas}})


def _told(kind: str, one: Object, replicas: int, ready: int) -> Iterator[Write]:
    counts = {"replicas": replicas, "readyReplicas": ready, "availableReplicas": ready}
    yield from status_changed(kind, one, {"observedGeneration": one["metadata"].get("generation"), **counts})


def _replicas(one: Object) -> int:
    return int(one["spec"].get("replicas", 1))


def _counted(one: Object, name: str) -> int:
    return int((one.get("status") or {}).get(name) or 0)
