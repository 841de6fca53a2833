"""The component network-status: who may tell what a pod was given, and what else an advertiser may write of a pod."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cni.server.extracts import make_folders
from cri_shim.records import Records
from devcluster.apiserver.access.rbac import Attributes
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.records.pod_record import PodRecord
from tests.advertiser.held_pod import VF1, give
from tests.advertiser.program import advertising
from tests.manifests.accounts import Program, put
from tests.manifests.admission import Judge, Rehearsal, User
from tests.manifests.rendering import raw
from tests.support.polling import eventually

FOLDER = "components/network-status"
KEY, DIGEST = "k8s.v1.cni.cncf.io/network-status", "mooring.dev/network-status"
_ADVERTISER = "system:serviceaccount:mooring-node:mooring-advertiser"
OWN, ELSEWHERE, NOWHERE = User(_ADVERTISER, "n1"), User(_ADVERTISER, "n2"), User(_ADVERTISER)
ALICE, KUBELET = User("alice"), User("system:node:n1")
MULTUS = (User("system:multus:n1"), User("system:serviceaccount:kube-system:multus", "n1"))
ONE_VF = {names.REQUEST: "[{}]"}
TOLD = {KEY: "[]", DIGEST: "ours"}


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", "labels": {"a": "b"}, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1", **spec}}


def annotated(**values: str | None) -> dict[str, Any]:
    keys = {"status": KEY, "digest": DIGEST, "other": "other", "assignment": names.ASSIGNMENT}
    return {"metadata": {"annotations": {keys[name]: value for name, value in values.items()}}}


def guarded() -> Rehearsal:
    policies = [one for one in raw(f"{FOLDER}/policy.yaml") if one["kind"] == "ValidatingAdmissionPolicy"]
    return Rehearsal(Judge(policies, {}))


async def test_a_pod_with_vfs_is_told_by_programs_of_its_node_only() -> None:
    """Not by its owner, another node's Multus, or another node's advertiser; also when it is made, or is to forget."""
    api = guarded()
    refused = f"annotation '{KEY}' of a pod with VFs: 'alice' is no program of its node"
    assert refused in await api.create(ALICE, "pods", pod(ONE_VF | {KEY: "[]"}))
    assert await api.create(ALICE, "pods", pod(ONE_VF)) == ""
    for subresource in ("", "status"):
        assert refused in await api.patch(ALICE, "pods", "p", annotated(status="[]"), subresource)
        assert refused in await api.patch(ALICE, "pods", "p", annotated(digest="x"), subresource)
        elsewhere = User("system:serviceaccount:kube-system:multus", "n2")
        assert "is no program of its node" in await api.patch(
            elsewhere, "pods", "p", annotated(status="[]"), subresource
        )
        for writer in (*MULTUS, KUBELET):
            assert await api.patch(writer, "pods", "p", annotated(status=writer.name), subresource) == ""
        assert refused in await api.patch(ALICE, "pods", "p", annotated(status=None), subresource)
        assert await api.patch(ALICE, "pods", "p", annotated(other=subresource or "x"), subresource) == ""
        assert await api.patch(KUBELET, "pods", "p", annotated(status=None), subresource) == ""


@pytest.mark.parametrize("request_key", [names.REQUEST, names.RIT_REQUEST])
async def test_a_pod_that_has_a_status_already_cannot_ask_for_vfs(request_key: str) -> None:
    """Nor by steps: a status from the time when it asked for nothing would stay, as another writer's."""
    api = guarded()
    assert await api.create(ALICE, "pods", pod(nodeName="")) == ""
    assert await api.patch(ALICE, "pods", "p", annotated(status="[]")) == ""
    asked = {"metadata": {"annotations": {request_key: "[{}]"}}}
    for subresource in ("", "status"):
        assert "is no program of its node" in await api.patch(ALICE, "pods", "p", asked, subresource)
    assert await api.patch(ALICE, "pods", "p", annotated(status=None)) == ""
    assert await api.patch(ALICE, "pods", "p", asked) == ""


async def test_pods_without_vfs_are_not_concerned() -> None:
    """Whatever writes their network status goes on as before."""
    api = guarded()
    assert await api.create(ALICE, "pods", pod({KEY: "[]"})) == ""
    assert await api.patch(ALICE, "pods", "p", annotated(status="[1]")) == ""
    assert await api.patch(User("system:serviceaccount:x:y"), "pods", "p", annotated(status=None), "status") == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"annotations": TOLD}}, ""),
        ({"metadata": {}}, ""),
        (annotated(status="x" * 65_536), ""),
        (annotated(status="x" * 65_537), "longer than 65536 characters"),
        (annotated(other="two"), "writes no annotation of a pod but"),
        (annotated(other=None), "writes no annotation of a pod but"),
        (annotated(assignment="{}"), "writes no annotation of a pod but"),
        ({"metadata": {"labels": {"a": "c"}}}, "neither spec nor status, labels"),
        ({"metadata": {"finalizers": ["x.example/y"]}}, "neither spec nor status, labels"),
        ({"metadata": {"ownerReferences": [{"name": "o"}]}}, "neither spec nor status, labels"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "neither spec nor status, labels"),
        ({"status": {"phase": "Failed"}}, "neither spec nor status, labels"),
    ],
)
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_an_advertiser_writes_nothing_else_of_a_pod(change: dict[str, Any], why: str, subresource: str) -> None:
    """RBAC lets it patch the status of every pod."""
    api = guarded()
    assert await api.create(ALICE, "pods", pod(ONE_VF | {"other": "one"})) == ""
    assert await api.patch(KUBELET, "pods", "p", {"status": {"phase": "Running"}}, "status") == ""
    answer = await api.patch(OWN, "pods", "p", change, subresource)
    assert why in answer
    assert bool(answer) == bool(why)


async def test_an_advertiser_writes_pods_of_its_own_node_only() -> None:
    """It reads them by a patch that changes nothing: that is refused as well, and for pods without VFs too."""
    changes: list[dict[str, Any]] = [{"metadata": {"annotations": TOLD}}, {"metadata": {}}]
    for annotations in (ONE_VF, None):
        api = guarded()
        assert await api.create(ALICE, "pods", pod(annotations)) == ""
        for user in (ELSEWHERE, NOWHERE):
            for change in changes:
                assert "no pod but those of the node" in await api.patch(user, "pods", "p", change, "status")
        assert await api.patch(OWN, "pods", "p", {"metadata": {}}, "status") == ""
    api = guarded()
    assert await api.create(ALICE, "pods", pod(ONE_VF, nodeName="")) == ""
    assert "no pod but those of the node" in await api.patch(OWN, "pods", "p", {"metadata": {}}, "status")


async def test_an_advertiser_replaces_nothing_that_another_has_written() -> None:
    """Its own is known by the digest beside it."""
    api = guarded()
    assert await api.create(ALICE, "pods", pod(ONE_VF)) == ""
    assert await api.patch(MULTUS[0], "pods", "p", annotated(status="[1]"), "status") == ""
    answer = await api.patch(OWN, "pods", "p", {"metadata": {"annotations": TOLD}}, "status")
    assert "replaces no" in answer
    assert await api.patch(OWN, "pods", "p", {"metadata": {}}, "status") == ""
    assert await api.patch(MULTUS[0], "pods", "p", annotated(status=None), "status") == ""
    assert await api.patch(OWN, "pods", "p", {"metadata": {"annotations": TOLD}}, "status") == ""
    assert await api.patch(OWN, "pods", "p", annotated(status="[2]", digest="ours2"), "status") == ""


PODS = "/api/v1/namespaces/default/pods"
_FOLDERS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


async def _bind(admin: Client, folder: Path) -> str:
    """Create a pod of n1 with one VF as user, scheduler and shim do; return its uid."""
    containers = [{"name": "c", "image": "i"}]
    body: dict[str, Any] = {
        "metadata": {"name": "train", "annotations": ONE_VF},
        "spec": {"schedulerName": "mooring", "automountServiceAccountToken": False, "containers": containers},
    }
    made = msgspec.json.decode(await admin.request("POST", PODS, msgspec.json.encode(body)))
    uid: str = made["metadata"]["uid"]
    assignment = Assignment(uid, "n1", (AssignedVf("enp4s0f0", 1, VF1, "ethernet", "rail0"),))
    metadata = {"name": "train", "annotations": {names.ASSIGNMENT: dump_assignment(assignment)}}
    binding = {"metadata": metadata, "target": {"kind": "Node", "name": "n1"}}
    await admin.request("POST", f"{PODS}/train/binding", msgspec.json.encode(binding))
    Records(folder / "state", folder / "run").write_pod(PodRecord("default/train", assignment))
    return uid


async def test_the_component_gives_the_advertiser_the_one_right_that_it_needs(tmp_path: Path) -> None:
    """Role, policy and program together: the pod is told, nothing was refused, and no pod was read or listed."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=4))
    make_folders(tmp_path / "run")
    advertiser = Program("advertiser")
    async with ApiServer(Options(rbac=True, admission=True)) as server:
        (tmp_path / "admin").write_text(server.kubeconfig_text())
        async with Client(load_access(str(tmp_path / "admin"))) as admin:
            await advertiser.install(admin)
            for document in raw(f"{FOLDER}/rbac.yaml") + raw(f"{FOLDER}/policy.yaml"):
                await put(admin, _FOLDERS[document["kind"]], document)
            await put(admin, "/api/v1/nodes", {"metadata": {"name": "n1"}})
            await put(admin, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            uid = await _bind(admin, tmp_path)
            await advertiser.log_in(admin, tmp_path / "admin", tmp_path / "kubeconfig", kind="Node", name="n1")
            give(tmp_path, uid, "10.0.0.2")

            async def told() -> bool:
                pod = msgspec.json.decode(await admin.request("GET", f"{PODS}/train"))
                return "10.0.0.2" in pod["metadata"]["annotations"].get(KEY, "")

            async with advertising(tmp_path, "--network-status", "--resync", "0.2"):
                await eventually(told)
        assert server.authorizer is not None
        assert server.authorizer.refused == {}
        asked = {one for one in server.authorizer.asked(advertiser.user) if one.resource.startswith("pods")}
        assert asked == {Attributes("patch", "", "pods/status", "default", "train")}
