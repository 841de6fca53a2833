"""The rest of a control plane: binding of pods, service accounts, garbage collection. Pure.

Binding stands in for kube-scheduler. Of the nodes that a pod may run on, it takes the one with the fewest pods of the
same kind, then the fewest of all. Each namespace gets the account `default`, and the CA of the API server's
certificate.
"""

from collections import Counter
from collections.abc import Iterator

from devcluster.apiserver.objects import ROOT_CA
from devcluster.controllers.predicates import fits
from devcluster.controllers.writes import (
    Change,
    Create,
    Object,
    Remove,
    View,
    Write,
    collection,
    controller_uid,
    is_active,
    is_deleted,
    path_of,
)

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_SCHEDULER = "default-scheduler"


def plan_bindings(view: View) -> Iterator[Write]:
    """Yield a Binding for each pod of the default scheduler that fits a node."""
    placed = [pod for pod in view.listed["pods"] if pod["spec"].get("nodeName") and is_active(pod)]
    all_pods = Counter(pod["spec"]["nodeName"] for pod in placed)
    alike = Counter((controller_uid(pod), pod["spec"]["nodeName"]) for pod in placed)
    for pod in filter(_waits, view.listed["pods"]):
        owner = controller_uid(pod)
        names = [node["metadata"]["name"] for node in view.listed["nodes"] if fits(pod["spec"], node)]
        if not names:
            continue
        chosen = min(names, key=lambda name: (alike[owner, name], all_pods[name], name))
        all_pods[chosen] += 1
        alike[owner, chosen] += 1
        yield _bound(pod, chosen)


def plan_accounts(view: View, root_ca: str) -> Iterator[Write]:
    """Yield the service account and the CA that a namespace lacks."""
    there = {
        (kind, one["metadata"]["namespace"], one["metadata"]["name"])
        for kind in ("serviceaccounts", "configmaps")
        for one in view.listed[kind]
    }
    for namespace in view.listed["namespaces"]:
        name = namespace["metadata"]["name"]
        if namespace.get("status", {}).get("phase") == "Terminating":
            continue
        if ("serviceaccounts", name, "default") not in there:
            yield Create(collection("serviceaccounts", name), {"metadata": {"name": "default"}})
        if ("configmaps", name, ROOT_CA) not in there:
            yield Create(collection("configmaps", name), {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": root_ca}})


def plan_taints(view: View) -> Iterator[Write]:
    """Yield the taint that keeps new pods from nodes that are not ready, and its removal."""
    for node in view.listed["nodes"]:
        conditions = node.get("status", {}).get("conditions") or ()
        taints = node["spec"].get("taints") or []
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        others = [taint for taint in taints if taint["key"] != _NOT_READY["key"]]
        wanted = others if ready else [*others, _NOT_READY]
        if wanted != taints:
            metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
            yield Change(path_of("nodes", node), {"metadata": metadata, "spec": {"taints": wanted}})


def plan_removals(view: View) -> Iterator[Write]:
    """Yield the removal of ReplicaSets and pods whose owner is gone, as the garbage collector does."""
    alive = {
        one["metadata"]["uid"] for kind in ("deployments", "replicasets", "daemonsets") for one in view.listed[kind]
    }
    for kind in ("replicasets", "pods"):
        for one in view.listed[kind]:
            owner = controller_uid(one)
            if owner and owner not in alive and not is_deleted(one) and _is_known(one):
                yield Remove(path_of(kind, one), one["metadata"]["uid"])


def _is_known(one: Object) -> bool:
    """Return whether the owner is of a kind that is listed here."""
    owners = one["metadata"]["ownerReferences"]
    return any(
        owner["kind"] in ("Deployment", "ReplicaSet", "DaemonSet") for owner in owners if owner.get("controller")
    )


def _waits(pod: Object) -> bool:
    spec = pod["spec"]
    return (
        spec.get("schedulerName") == _SCHEDULER
        and not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and is_active(pod)
    )


def _bound(pod: Object, node: str) -> Create:
    about = pod["metadata"]
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": about["name"], "namespace": about["namespace"], "uid": about["uid"]}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Create(f"{path_of('pods', pod)}/binding", body)
