"""The controllers decide from what is listed: a small world in which their writes are carried out at once."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from devcluster.controllers.cluster_upkeep import plan_accounts, plan_bindings, plan_removals, plan_taints
from devcluster.controllers.daemonsets import plan_daemonsets
from devcluster.controllers.deployments import plan_deployments, plan_replicasets
from devcluster.controllers.predicates import fits
from devcluster.controllers.writes import PATHS, Change, Create, Remove, View, Write, path_of

_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
}


def node(name: str, *, ready: bool = True, **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    metadata = {"name": name, "labels": {"kubernetes.io/os": "linux"}, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [condition]}}


@dataclass
class World:
    """Objects by kind; `settle` lets the controllers write until they have nothing more to do."""

    listed: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in PATHS})
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
        number = next(self.numbers)
        about = {"uid": f"u{number}", "creationTimestamp": f"{number:04}", "generation": 1, **obj["metadata"]}
        about.setdefault("name", f"{about.get('generateName', '')}{number}")
        made = {"apiVersion": "apps/v1", "kind": kind, **obj, "metadata": about}
        self.listed[kind].append(made)
        return made

    def workload(self, kind: str, name: str, **spec: Any) -> dict[str, Any]:
        spec = {"selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATE, **spec}
        kinds = {"deployments": "Deployment", "daemonsets": "DaemonSet"}
        return self.add(kind, {"kind": kinds[kind], "metadata": {"name": name, "namespace": "d"}, "spec": spec})

    @property
    def pods(self) -> list[dict[str, Any]]:
        return self.listed["pods"]

    def settle(self, *, ready: bool = True) -> None:
        """Let everything happen; new pods run and are ``ready``."""
        for _ in range(50):
            writes = list(self.plan())
            if not writes:
                return
            for write in writes:
                self.carry_out(write)
            for pod in self.pods:
                if pod["spec"].get("nodeName") and "status" not in pod:
                    condition = {"type": "Ready", "status": "True" if ready else "False"}
                    pod["status"] = {"phase": "Running", "conditions": [condition]}
        pytest.fail("the controllers never come to rest")

    def plan(self) -> Iterator[Write]:
        view = View(self.listed, "now")
        for plan in (plan_removals, plan_deployments, plan_replicasets, plan_daemonsets, plan_bindings):
            yield from plan(view)

    def carry_out(self, write: Write) -> None:
        if isinstance(write, Create) and write.path.endswith("/binding"):
            self._find(write.path.removesuffix("/binding"))["spec"]["nodeName"] = write.body["target"]["name"]
        elif isinstance(write, Create):
            made = dict(write.body)
            made["spec"] = dict(made["spec"])
            self.add(write.path.rpartition("/")[2], made)
        elif isinstance(write, Change):
            found = self._find(write.path.removesuffix("/status"))
            for part, values in write.body.items():
                found[part] = {**found.get(part, {}), **values}
        elif isinstance(write, Remove):
            found = self._find(write.path)
            assert found["metadata"]["uid"] == write.uid
            self.listed[write.path.split("/")[-2]].remove(found)

    def _find(self, path: str) -> dict[str, Any]:
        kind = path.split("/")[-2]
        return next(one for one in self.listed[kind] if path_of(kind, one) == path)


def where(pods: list[dict[str, Any]]) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in pods)


@pytest.fixture
def world() -> World:
    """Two nodes and one for the control plane alone."""
    found = World()
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    found.listed["nodes"] = [node("c", taints=[taint]), node("n1"), node("n2")]
    return found


def test_a_deployment_gets_its_pods_apart_from_each_other(world: World) -> None:
    """Through a ReplicaSet, each pod owned and labelled, on nodes that take them; its status shows the end."""
    deployment = world.workload("deployments", "s", replicas=2)
    world.settle()
    assert where(world.pods) == ["n1", "n2"]
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in world.pods} == {"ReplicaSet"}
    assert all("pod-template-hash" in pod["metadata"]["labels"] for pod in world.pods)
    status = world.listed["deployments"][0]["status"]
    assert (status["updatedReplicas"], status["availableReplicas"], status["observedGeneration"]) == (2, 2, 1)
    assert deployment is world.listed["deployments"][0]


def test_a_new_template_replaces_pods_within_the_surge(world: World) -> None:
    """At most one pod more than wanted exists while the new ones are not ready; in the end all pods are new."""
    rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    world.workload("deployments", "s", replicas=2, strategy=rolling)
    world.settle()
    before = {pod["metadata"]["name"] for pod in world.pods}
    world.listed["deployments"][0]["spec"]["template"] = {**_TEMPLATE, "metadata": {"labels": {"app": "a", "new": "y"}}}
    world.settle(ready=False)
    assert len(world.pods) == 3
    assert before <= {pod["metadata"]["name"] for pod in world.pods}
    for pod in world.pods:
        pod["status"]["conditions"][0]["status"] = "True"
    world.settle()
    assert len(world.pods) == 2
    assert all(pod["metadata"]["labels"].get("new") == "y" for pod in world.pods)


def test_a_daemonset_runs_on_every_node_that_takes_it(world: World) -> None:
    """Tainted nodes count if it tolerates all; a node that comes later gets its pod, one that goes loses it."""
    template = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "tolerations": [{"operator": "Exists"}]}}
    world.workload("daemonsets", "a", template=template)
    world.settle()
    assert where(world.pods) == ["c", "n1", "n2"]
    world.listed["nodes"].append(node("n3", unschedulable=True))
    world.settle()
    assert where(world.pods) == ["c", "n1", "n2", "n3"]
    assert world.listed["daemonsets"][0]["status"]["numberAvailable"] == 4


def test_a_new_template_replaces_a_daemonsets_pods_one_by_one(world: World) -> None:
    """At most one of the pods is not ready at any time."""
    world.workload("daemonsets", "a")
    world.settle()
    world.listed["daemonsets"][0]["spec"]["template"] = {**_TEMPLATE, "metadata": {"labels": {"app": "a", "new": "y"}}}
    removed = [write for write in world.plan() if isinstance(write, Remove)]
    assert len(removed) == 1
    world.settle()
    assert [pod["metadata"]["labels"].get("new") for pod in world.pods] == ["y", "y"]


def test_what_has_no_owner_any_more_goes(world: World) -> None:
    """ReplicaSet and pods after their Deployment; pods without an owner stay."""
    world.workload("deployments", "s", replicas=2)
    world.add("pods", {"metadata": {"name": "own", "namespace": "d"}, "spec": {"nodeName": "n1"}})
    world.settle()
    world.listed["deployments"].clear()
    world.settle()
    assert world.listed["replicasets"] == []
    assert [pod["metadata"]["name"] for pod in world.pods] == ["own"]


def test_a_node_that_is_not_ready_is_tainted_until_it_is() -> None:
    """Each change is one write; a node that is as it should be gets none."""
    view = View({"nodes": [node("n1", ready=False), node("n2")]}, "now")
    (write,) = plan_taints(view)
    assert isinstance(write, Change)
    assert write.body["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    (back,) = plan_taints(View({"nodes": [node("n1", taints=write.body["spec"]["taints"])]}, "now"))
    assert isinstance(back, Change)
    assert back.body["spec"]["taints"] == []


def test_a_namespace_gets_account_and_authority_unless_it_ends() -> None:
    """A live namespace gets both, once."""
    listed: dict[str, list[dict[str, Any]]] = {kind: [] for kind in PATHS}
    listed["namespaces"] = [
        {"metadata": {"name": "a"}, "status": {"phase": "Active"}},
        {"metadata": {"name": "b"}, "status": {"phase": "Terminating"}},
    ]
    listed["serviceaccounts"] = [{"metadata": {"name": "default", "namespace": "a"}}]
    (write,) = plan_accounts(View(listed, "now"), "CA")
    assert write == Create(
        "/api/v1/namespaces/a/configmaps", {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "CA"}}
    )


def _affinity(operator: str, *values: str, key: str = "kubernetes.io/os") -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, True),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, False),
        (_affinity("In", "linux", "windows"), True),
        (_affinity("NotIn", "linux"), False),
        (_affinity("Exists"), True),
        (_affinity("DoesNotExist", key="gpu"), True),
        (_affinity("Gt", "3", key="cores"), False),
    ],
)
def test_selectors_and_affinity_decide(spec: dict[str, Any], expected: bool) -> None:
    """Selectors and affinity work as in the scheduling API."""
    assert fits(spec, node("n1")) is expected


def test_taints_keep_pods_away_that_do_not_tolerate_them() -> None:
    """Taints match by key, value and effect; a preference excludes no node."""
    tainted = node("n1", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    assert not fits({}, tainted)
    assert fits({"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, tainted)
    assert not fits({"tolerations": [{"key": "k", "value": "w"}]}, tainted)
    assert fits({"tolerations": [{"key": "k", "operator": "Exists"}]}, tainted)
    assert fits({}, node("n1", taints=[{"key": "k", "effect": "PreferNoSchedule"}]))
