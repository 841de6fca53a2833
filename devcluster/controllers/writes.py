"""The input and output of controllers: the cluster as listed, and writes as values. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
# The list path of each kind.
PATHS: Mapping[str, str] = {
    "namespaces": "/api/v1/namespaces",
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "serviceaccounts": "/api/v1/serviceaccounts",
    "configmaps": "/api/v1/configmaps",
    "deployments": "/apis/apps/v1/deployments",
    "replicasets": "/apis/apps/v1/replicasets",
    "daemonsets": "/apis/apps/v1/daemonsets",
}


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    body: Object


@dataclass(frozen=True, slots=True)
class Change:
    """A merge patch."""

    path: str
    body: Object


@dataclass(frozen=True, slots=True)
class Remove:
    """A deletion of exactly this object."""

    path: str
    uid: str


Write = Create | Change | Remove


@dataclass(frozen=True, slots=True)
class View:
    """Every object of the kinds above, by kind; ``now`` as the API writes times."""

    listed: Mapping[str, Sequence[Object]]
    now: str

    def owned(self, kind: str, owner: Object) -> list[Object]:
        """Return the objects that an object controls."""
        uid = owner["metadata"]["uid"]
        return [one for one in self.listed[kind] if controller_uid(one) == uid]


def controller_uid(obj: Object) -> str:
    owners: Sequence[Object] = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def path_of(kind: str, obj: Object) -> str:
    """Return an object's path."""
    about = obj["metadata"]
    return (
        f"{collection(kind, about['namespace'])}/{about['name']}"
        if "namespace" in about
        else f"{PATHS[kind]}/{about['name']}"
    )


def collection(kind: str, namespace: str) -> str:
    """Return the path of a namespace's objects."""
    head, _, plural = PATHS[kind].rpartition("/")
    return f"{head}/namespaces/{namespace}/{plural}"


def owner_reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_deleted(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_active(pod: Object) -> bool:
    """Return whether a pod still counts: neither ended nor being deleted."""
    return not is_deleted(pod) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def status_changed(kind: str, obj: Object, status: Object) -> Iterator[Write]:
    """Yield the write of a status that differs from the current one; None removes a field."""
    now = obj.get("status") or {}
    if any(now.get(name) != value for name, value in status.items()):
        yield Change(f"{path_of(kind, obj)}/status", {"status": status})


def share_of(value: object, total: int, *, up: bool) -> int:
    """Return an int-or-percent of a rollout as a number of pods."""
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * total
        return -(-part // 100) if up else part // 100
    return int(str(value))
