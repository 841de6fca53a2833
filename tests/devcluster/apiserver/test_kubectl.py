"""kubectl, as installed, works against the server as against any cluster, without flags."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster.apiserver.serve import ApiServer

pytestmark = pytest.mark.kubectl

MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {mooring.dev/interfaces: '[{}]'}
spec:
  schedulerName: mooring
  containers: [{name: c, image: "registry.example/web:1", env: [{name: A, value: "1"}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {k: v}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed and its exit status."""

    status: int
    out: str
    err: str


Kubectl = Callable[..., Coroutine[Any, Any, Ran]]


@pytest.fixture
async def kubectl(devserver: ApiServer, tmp_path: Path) -> Kubectl:
    """Run kubectl against the server, which serves from this very event loop."""
    program = shutil.which("kubectl")
    assert program is not None
    (tmp_path / "kubeconfig").write_text(devserver.kubeconfig_text())
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    environment = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": "/usr/bin:/bin"}

    async def run(*arguments: str) -> Ran:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program, *arguments, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe
        )
        out, err = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    return run


async def test_apply_creates_then_changes_nothing_then_changes(kubectl: Kubectl, tmp_path: Path) -> None:
    """The same manifest twice is `unchanged`, an edited one `configured`; validation needs no flag."""
    first = await kubectl("apply", "-f", "manifest.yaml")
    assert (first.status, first.err) == (0, "")
    assert first.out.splitlines() == [
        "pod/web created",
        "configmap/settings created",
        "clusterrole.rbac.authorization.k8s.io/reader created",
    ]
    again = await kubectl("apply", "-f", "manifest.yaml")
    assert [line.split()[-1] for line in again.out.splitlines()] == ["unchanged"] * 3
    (tmp_path / "manifest.yaml").write_text(MANIFEST.replace("web:1", "web:2").replace("k: v", "k: w"))
    edited = await kubectl("apply", "-f", "manifest.yaml")
    assert [line.split()[-1] for line in edited.out.splitlines()] == ["configured", "configured", "unchanged"]
    image = await kubectl("get", "pod", "web", "-o", "jsonpath={.spec.containers[0].image}")
    assert image.out == "registry.example/web:2"


async def test_get_prints_tables_json_and_errors(kubectl: Kubectl) -> None:
    """Tables for people, JSON for jq, an error and status 1 for what is not there."""
    await kubectl("apply", "-f", "manifest.yaml")
    table = await kubectl("get", "pods", "-o", "wide")
    header, row = table.out.splitlines()
    assert header.split()[:8] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED"]
    assert row.split()[:4] == ["web", "0/1", "Pending", "0"]
    listed = await kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName=", "-o", "name")
    assert listed.out == "pod/web\n"
    missing = await kubectl("get", "pod", "nope")
    assert (missing.status, missing.err) == (1, 'Error from server (NotFound): pods "nope" not found\n')
    everything = await kubectl("get", "all,cm")
    assert "pod/web" in everything.out
    assert "configmap/settings" in everything.out


async def test_describe_shows_a_pod_with_its_events(kubectl: Kubectl, dev: Any) -> None:
    """describe finds the pod's events by involvedObject."""
    await kubectl("apply", "-f", "manifest.yaml")
    pod = await dev.ok("GET", "/api/v1/namespaces/default/pods/web")
    about = {"kind": "Pod", "namespace": "default", "name": "web", "uid": pod["metadata"]["uid"]}
    event: Any = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "FailedScheduling", "type": "Warning"}
    event |= {"message": "0/3 nodes are available", "count": 1, "lastTimestamp": pod["metadata"]["creationTimestamp"]}
    await dev.ok("POST", "/api/v1/namespaces/default/events", event)
    described = await kubectl("describe", "pod", "web")
    assert described.status == 0, described.err
    assert "mooring.dev/interfaces: [{}]" in described.out
    assert "FailedScheduling" in described.out
    events = await kubectl("get", "events")
    assert events.out.splitlines()[1].split()[1:4] == ["Warning", "FailedScheduling", "pod/web"]


async def test_describe_shows_a_node_with_its_pods(kubectl: Kubectl, dev: Any) -> None:
    """describe lists the pods of a node by two selectors."""
    await dev.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}})
    await kubectl("apply", "-f", "manifest.yaml")
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}
    await dev.ok("POST", "/api/v1/namespaces/default/pods/web/binding", binding)
    described = await kubectl("describe", "node", "n1")
    assert described.status == 0, described.err
    assert "node.kubernetes.io/not-ready:NoSchedule" in described.out
    assert "web" in described.out.partition("Non-terminated Pods")[2]
    nodes = await kubectl("get", "nodes")
    assert nodes.out.splitlines()[1].split()[:3] == ["n1", "Unknown", "<none>"]


async def test_annotate_label_and_patch_change_the_object(kubectl: Kubectl) -> None:
    """annotate, label and patch each change one field."""
    await kubectl("apply", "-f", "manifest.yaml")
    for arguments in (
        ("annotate", "pod", "web", "example.com/a=1"),
        ("label", "pod", "web", "tier=a"),
        ("patch", "pod", "web", "--type", "merge", "-p", '{"metadata":{"labels":{"b":"2"}}}'),
        ("patch", "pod", "web", "-p", '{"metadata":{"labels":{"c":"3"}}}'),
        ("patch", "pod", "web", "--type", "json", "-p", '[{"op":"add","path":"/metadata/labels/d","value":"4"}]'),
    ):
        ran = await kubectl(*arguments)
        assert ran.status == 0, ran.err
    labels = await kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.labels}")
    assert labels.out == '{"b":"2","c":"3","d":"4","tier":"a"}'
    refused = await kubectl("patch", "pod", "web", "--type", "merge", "-p", '{"spec":{"nodeName":"n1"}}')
    assert refused.status == 1
    assert "pod updates may not change fields" in refused.err


async def test_delete_waits_until_the_pod_is_gone(kubectl: Kubectl, dev: Any) -> None:
    """delete returns when the object is gone; a bound pod is gone when its kubelet reports it."""
    await kubectl("apply", "-f", "manifest.yaml")
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}
    await dev.ok("POST", "/api/v1/namespaces/default/pods/web/binding", binding)
    deleting = asyncio.create_task(kubectl("delete", "pod", "web"))
    async with dev.watch("/api/v1/namespaces/default/pods", fieldSelector="spec.nodeName=n1") as events:
        while "deletionTimestamp" not in (await events.next())["object"]["metadata"]:
            pass
    assert not deleting.done()
    await dev.ok("DELETE", "/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0")
    deleted = await deleting
    assert (deleted.status, deleted.out.splitlines()[0].split()[:2]) == (0, ["pod", '"web"'])
    rest = await kubectl("delete", "configmap/settings", "clusterrole/reader")
    assert rest.status == 0, rest.err


async def test_wait_follows_a_condition(kubectl: Kubectl, dev: Any) -> None:
    """`kubectl wait` sees a status that is written while it waits."""
    await kubectl("apply", "-f", "manifest.yaml")
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=30s"))
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    path = "/api/v1/namespaces/default/pods/web/status"
    await dev.ok("PATCH", path, status, "application/strategic-merge-patch+json")
    waited = await waiting
    assert (waited.status, waited.out) == (0, "pod/web condition met\n")


async def test_namespaces_are_made_and_taken_away(kubectl: Kubectl) -> None:
    """create (protobuf from recent kubectl) and delete; a namespace's content goes with it."""
    made = await kubectl("create", "namespace", "team")
    assert (made.status, made.out) == (0, "namespace/team created\n")
    assert (await kubectl("apply", "-n", "team", "-f", "manifest.yaml")).status == 0
    gone = await kubectl("delete", "namespace", "team")
    assert gone.status == 0, gone.err
    assert (await kubectl("get", "namespace", "team")).status == 1


async def test_drain_evicts_and_cordons(kubectl: Kubectl, dev: Any) -> None:
    """drain marks the node unschedulable and evicts its pods."""
    await dev.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    await kubectl("apply", "-f", "manifest.yaml")
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}
    await dev.ok("POST", "/api/v1/namespaces/default/pods/web/binding", binding)
    drained = await kubectl("drain", "n1", "--force", "--grace-period=0")
    assert drained.status == 0, drained.err
    assert (await dev.call("GET", "/api/v1/namespaces/default/pods/web"))[0] == 404
    assert (await dev.ok("GET", "/api/v1/nodes/n1"))["spec"]["unschedulable"] is True


@pytest.mark.recent_kubectl
async def test_a_token_is_made_for_an_account_on_a_node(kubectl: Kubectl, dev: Any, devserver: ApiServer) -> None:
    """create token prints it; it names the node that it is bound to."""
    node = await dev.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert (await kubectl("create", "serviceaccount", "advertiser")).status == 0
    bound = ("--bound-object-kind", "Node", "--bound-object-name", "n1", "--bound-object-uid", node["metadata"]["uid"])
    made = await kubectl("create", "token", "advertiser", "--duration", "1h", *bound)
    assert made.status == 0, made.err
    tokens, store = devserver.cluster.tokens, devserver.cluster.store
    user = tokens.user(f"Bearer {made.out.strip()}", store, devserver.cluster.clock())
    assert user.name == "system:serviceaccount:default:advertiser"
    assert user.extra["authentication.kubernetes.io/node-name"] == ("n1",)
