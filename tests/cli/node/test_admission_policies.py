"""mooring-node before it installs: are the admission policies there, by the kubelet's own kubeconfig."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.node.admission_policies import read_policies
from devcluster.apiserver.serve import ApiServer, Options
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.kube.guard import BINDINGS_PATH, POLICIES, POLICIES_PATH
from tests.cli.node.conftest import KUBEADM, NodeHost
from tests.support.certificates import Authority

GUARD = Path(__file__).parents[3] / "manifests/base/guard"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PATHS = {
    "ValidatingAdmissionPolicy": POLICIES_PATH,
    "ValidatingAdmissionPolicyBinding": BINDINGS_PATH,
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server with HTTPS and RBAC; `kubelet` is a kubeconfig without any right until it is given one."""

    admin: Client
    kubelet: Path

    async def apply(self, *kinds: str) -> None:
        """Create the guard's objects of these kinds."""
        for file in sorted(GUARD.glob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                if document["kind"] in kinds:
                    await self.admin.request("POST", PATHS[document["kind"]], json.dumps(document).encode())

    async def let_read(self) -> None:
        """Give the kubelet's account what nodes have by the manifests; this server knows no node's certificate."""
        await self.apply("ClusterRole")
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "mooring-guard-reader"}
        subject = {"kind": "ServiceAccount", "name": "kubelet", "namespace": "default"}
        binding = {"metadata": {"name": "kubelet"}, "roleRef": ref, "subjects": [subject]}
        await self.admin.request("POST", PATHS["ClusterRoleBinding"], json.dumps(binding).encode())

    async def states(self) -> set[str]:
        found = await asyncio.to_thread(read_policies, self.kubelet)
        assert set(found) == set(POLICIES)
        return {one.state for one in found.values()}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    authority = Authority(tmp_path, "ca")
    pair = authority.sign("server")
    async with ApiServer(Options(rbac=True, tls=(str(pair.certificate), str(pair.key)))) as server:
        config: dict[str, Any] = json.loads(server.kubeconfig_text())
        config["clusters"][0]["cluster"]["certificate-authority"] = str(authority.own.certificate)
        (tmp_path / "admin").write_text(json.dumps(config))
        async with Client(load_access(str(tmp_path / "admin"))) as admin:
            await admin.request("POST", ACCOUNTS, b'{"metadata":{"name":"kubelet"}}')
            answer = json.loads(await admin.request("POST", f"{ACCOUNTS}/kubelet/token", b'{"spec":{}}'))
            # As k3s, with its data inside; and a token's file beside it, as EKS has none and kubeadm a certificate's.
            ca = config["clusters"][0]["cluster"].pop("certificate-authority")
            config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(
                Path(ca).read_bytes()
            ).decode()
            (tmp_path / "token").write_text(answer["status"]["token"] + "\n")
            config["users"][0]["user"] = {"tokenFile": "token"}
            (tmp_path / "kubelet.conf").write_text(yaml.safe_dump(config))
            yield Cluster(admin, tmp_path / "kubelet.conf")


async def test_a_node_knows_whether_the_policies_guard_as_soon_as_it_may_read_them(cluster: Cluster) -> None:
    """Without the right that is not known; policies without their bindings guard nothing."""
    await cluster.apply("ValidatingAdmissionPolicy")
    assert await cluster.states() == {"unknown"}
    await cluster.let_read()
    assert await cluster.states() == {"unbound"}
    await cluster.apply("ValidatingAdmissionPolicyBinding")
    assert await cluster.states() == {"bound"}


async def test_an_installation_without_the_guard_is_refused_before_anything_is_done(
    cluster: Cluster, host_of: Callable[..., NodeHost]
) -> None:
    """With the operator's word, or with the guard, it goes on; a dry run only says it."""
    await cluster.let_read()
    host = host_of(KUBEADM)
    before = host.tree()
    flags = ("--wheelhouse", str(host.wheelhouse("first")), "--kubeconfig", str(cluster.kubelet))
    status, said = await asyncio.to_thread(host.run, "install", *flags)
    assert (status, host.tree()) == (1, before)
    assert "guard        mooring-assignment: ValidatingAdmissionPolicy is missing" in said
    assert f"{len(POLICIES)} of {len(POLICIES)} admission policies are not enforced" in said
    status, said = await asyncio.to_thread(host.run, "install", *flags, "--dry-run")
    assert (status, "is missing" in said) == (0, True)
    status, said = await asyncio.to_thread(host.run, "install", *flags, "--without-guard")
    assert (status, "is missing" in said) == (0, True)
    await cluster.apply("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    status, said = await asyncio.to_thread(host.run, "install", *flags)
    assert (status, "guard " in said) == (0, False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not subscriptable"),
        ("{current-context: x, contexts: []}", "it has no entry 'x'"),
        ("contexts: [", "kubelet.conf is not YAML: line 2, column 1: did not find"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_leaves_it_unknown(tmp_path: Path, text: str, why: str) -> None:
    """The reason is said, and the installation goes on."""
    path = tmp_path / "kubelet.conf"
    path.write_text(text)
    found = read_policies(path)["mooring-assignment"]
    assert found.state == "unknown"
    assert why in found.why
    assert read_policies(tmp_path / "none")["mooring-assignment"].state == "unknown"


def test_without_a_kubeconfig_the_installation_says_that_it_does_not_know(host_of: Callable[..., NodeHost]) -> None:
    """An image's root folder has no cluster yet."""
    host = host_of(KUBEADM)
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")))
    assert status == 0
    assert "cannot determine whether all admission policies are bound: the kubelet's kubeconfig was not found" in said
