"""LeaderWorkerSet v0.9.0 (kubernetes-sigs/lws): its calls are played; StatefulSets and garbage collector are real.

Its webhook is an admission policy here.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest

from mooring.kube.failures import NotFound
from tests.scheduler.controllers.player import Stage, controller, template
from tests.support.polling import eventually

pytestmark = pytest.mark.apiserver
LWS = "leaderworkerset.sigs.k8s.io"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
SIZE = 2
PODS = ("serve-0", "serve-0-1", "serve-1", "serve-1-1")
GROUP = {"name_from": f"{LWS}/group-key", "min": SIZE}
# Default in pkg/webhooks/pod_webhook.go: a leader gets the labels of its replica, a worker its index.
ORDINAL = "object.metadata.name.substring(object.metadata.name.lastIndexOf('-') + 1)"
LABELS = (
    f"'{LWS}/worker-index' in object.metadata.labels"
    f" ? {{'{LWS}/group-index': {ORDINAL}, '{LWS}/group-key': 'hash-of-' + object.metadata.name}}"
    f" : {{'{LWS}/worker-index': {ORDINAL}}}"
)
PODS_CREATED = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
MUTATION = {"expression": f"Object{{metadata: Object.metadata{{labels: {LABELS}}}}}"}
POLICY = {
    "matchConstraints": {"resourceRules": [PODS_CREATED]},
    "matchConditions": [{"name": "lws", "expression": f"'{LWS}/name' in object.metadata.?labels.orValue({{}})"}],
    "failurePolicy": "Fail",
    "reinvocationPolicy": "Never",
    "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": MUTATION}],
}


@pytest.fixture
async def webhook(stage: Stage) -> AsyncIterator[None]:
    """Have what the webhook changes changed."""
    request = stage.cluster.client.request
    metadata = {"name": "lws"}
    try:
        await stage.cluster.call("POST", POLICIES, {"metadata": metadata, "spec": POLICY})
    except NotFound:
        pytest.skip("tier 'apiserver': kube-apiserver before 1.36 serves no MutatingAdmissionPolicy")
    binding = {"metadata": metadata, "spec": {"policyName": "lws"}}
    await stage.cluster.call("POST", BINDINGS, binding)
    pod = template(GROUP, {f"{LWS}/name": "serve"})
    pod["metadata"]["name"] = "probe-7"

    async def is_changed() -> bool:
        body = msgspec.json.encode(pod)
        answer = await request("POST", stage.path("Pod"), body, params={"dryRun": "All"})
        return f"{LWS}/worker-index" in msgspec.json.decode(answer)["metadata"]["labels"]

    await eventually(is_changed)
    yield
    await request("DELETE", f"{POLICIES}/lws")
    await request("DELETE", f"{BINDINGS}/lws")


def _group_key(pod: Any) -> str:
    return str(pod["metadata"]["labels"].get(f"{LWS}/group-key", ""))


def _stateful_set(name: str, owner: Any, replicas: int, labels: dict[str, str], start: int = 0) -> dict[str, Any]:
    pods = template(GROUP, labels)
    pods["metadata"]["annotations"][f"{LWS}/size"] = str(SIZE)
    spec = {
        "serviceName": "serve",
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": start},
        "selector": {"matchLabels": labels},
        "template": pods,
    }
    return {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": spec}


async def _create_leaders(stage: Stage, replicas: int) -> None:
    # constructLeaderStatefulSetApplyConfiguration in pkg/controllers/leaderworkerset_controller.go
    owner = controller("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve")
    labels = {f"{LWS}/name": "serve", f"{LWS}/worker-index": "0"}
    await stage.create("StatefulSet", _stateful_set("serve", owner, replicas, labels))


async def _create_workers(stage: Stage, *leaders: str) -> None:
    # Reconcile and constructWorkerStatefulSetApplyConfiguration in pkg/controllers/pod_controller.go
    for name in leaders:
        leader = stage.live(name)["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": leader["uid"]}
        owner |= {"controller": True, "blockOwnerDeletion": True}
        labels = {key: leader["labels"][key] for key in (f"{LWS}/name", f"{LWS}/group-index", f"{LWS}/group-key")}
        await stage.create("StatefulSet", _stateful_set(name, owner, SIZE - 1, labels, start=1))


@pytest.mark.usefixtures("webhook")
async def test_each_replica_starts_whole_and_again_when_a_container_has_restarted(stage: Stage) -> None:
    """A group for each replica by `name_from`; the end is a scale to zero."""
    groups = stage.watch_groups(_group_key, SIZE)
    async with stage.one_node_taken():
        await _create_leaders(stage, 2)
        await stage.lives("serve-0", "serve-1")
        await _create_workers(stage, "serve-0", "serve-1")
        await stage.until(lambda: groups.starts == 1, "one replica runs")
    await stage.runs(*PODS)

    # handleRestartPolicy in pkg/controllers/pod_controller.go: RecreateGroupOnPodRestart
    await stage.restart_container("serve-1-1")
    await stage.delete("Pod", "serve-1", propagation="Foreground")
    # The garbage collector deletes the workers, and the leader's StatefulSet makes the leader again.
    await stage.lives("serve-1")
    async with stage.start_whole("serve-1", "serve-1-1", fit="1 of 2", others=("serve-0", "serve-0-1")):
        await _create_workers(stage, "serve-1")
    assert groups.starts == 3

    # SSAWithStatefulset in leaderworkerset_controller.go, after a scale to zero
    await stage.patch("StatefulSet", "serve", spec={"replicas": 0})
    await stage.leaves_all_nodes_free()


@pytest.mark.usefixtures("webhook")
async def test_each_replica_runs_again_after_a_rolling_update(stage: Stage) -> None:
    """A new leader comes before the garbage collector has seen that the workers of the old one have no owner."""
    stage.watch_groups(_group_key, SIZE)
    await _create_leaders(stage, 2)
    await stage.lives("serve-0", "serve-1")
    await _create_workers(stage, "serve-0", "serve-1")
    await stage.runs(*PODS)

    # SSAWithStatefulset: the StatefulSet's controller replaces the leaders, the last one first.
    labels = {f"{LWS}/template-revision-hash": "2"}
    old = {name: pod["metadata"]["uid"] for name, pod in stage.pods.items()}

    def is_new(leader: str) -> bool:
        return leader in stage.pods and stage.pods[leader]["metadata"]["uid"] != old[leader]

    await stage.patch("StatefulSet", "serve", spec={"template": {"metadata": {"labels": labels}}})
    for leader in ("serve-1", "serve-0"):
        await stage.until(partial(is_new, leader), f"{leader} is new")
        # Reconcile in pod_controller.go makes no StatefulSet as long as one of that name is there.
        await stage.absent("StatefulSet", leader)
        await _create_workers(stage, leader)
    await stage.until(lambda: not stage.uids() & set(old.values()), "no old pod is left")
    await stage.runs(*PODS)
