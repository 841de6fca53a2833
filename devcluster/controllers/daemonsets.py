"""DaemonSets: one pod on every node that admits it, replaced gradually when the template changes. Pure."""

from collections.abc import Iterator, Sequence

from devcluster.controllers.predicates import fits
from devcluster.controllers.templates import REVISION_HASH, pod_of, template_hash
from devcluster.controllers.writes import (
    Object,
    Remove,
    View,
    Write,
    is_active,
    is_deleted,
    is_ready,
    path_of,
    share_of,
    status_changed,
)

_CONDITIONS = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
_TOLERATED: Sequence[Object] = (
    *(
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute"}
        for name in ("not-ready", "unreachable")
    ),
    *({"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoSchedule"} for name in _CONDITIONS),
)


def plan_daemonsets(view: View) -> Iterator[Write]:
    """Yield what every DaemonSet lacks."""
    for one in view.listed["daemonsets"]:
        if not is_deleted(one):
            yield from _spread(one, view.owned("pods", one), view.listed["nodes"])


def _spread(daemonset: Object, owned: Sequence[Object], nodes: Sequence[Object]) -> Iterator[Write]:
    spec = daemonset["spec"]["template"]["spec"]
    spec = {**spec, "tolerations": [*(spec.get("tolerations") or ()), *_TOLERATED]}
    wanted = [node["metadata"]["name"] for node in nodes if fits(spec, node)]
    pods = {_node_of(pod): pod for pod in owned if is_active(pod)}
    # A node's next pod waits for the end of the previous one.
    occupied = {_node_of(pod) for pod in owned if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")}
    name = template_hash(daemonset)
    for node in wanted:
        if node not in occupied:
            yield pod_of(daemonset, {REVISION_HASH: name}, _on(spec, node))
    yield from (_removed(pod) for node, pod in pods.items() if node not in wanted)
    ready = [node for node, pod in pods.items() if node in wanted and is_ready(pod)]
    old = [pod for pod in pods.values() if pod["metadata"]["labels"].get(REVISION_HASH) != name]
    yield from map(_removed, _replaceable(daemonset, old, len(wanted) - len(ready), len(wanted)))
    status = {
        "observedGeneration": daemonset["metadata"].get("generation"),
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": len(pods.keys() & set(wanted)),
        "updatedNumberScheduled": len(pods) - len(old),
        "numberReady": len(ready),
        "numberAvailable": len(ready),
        "numberUnavailable": len(wanted) - len(ready),
        "numberMisscheduled": len(pods.keys() - set(wanted)),
    }
    yield from status_changed("daemonsets", daemonset, status)


def _replaceable(daemonset: Object, old: Sequence[Object], missing: int, total: int) -> list[Object]:
    """Return the pods of an older template that may end now: those not ready, and as many more as allowed."""
    rolling = (daemonset["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    most = max(1, share_of(rolling.get("maxUnavailable", 1), total, up=True))
    broken = [pod for pod in old if not is_ready(pod)]
    return broken + [pod for pod in old if is_ready(pod)][: max(0, most - missing)]


def _removed(pod: Object) -> Remove:
    return Remove(path_of("pods", pod), pod["metadata"]["uid"])


def _on(spec: Object, node: str) -> Object:
    """Return the spec with an affinity to this node only."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {**spec, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _node_of(pod: Object) -> str:
    """Return where a pod runs, or is to run."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
