"""A real kube-scheduler that asks a real mooring-scheduler, against a real API server: pods of its default profile."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import yaml

from bench.apiservers import free_ports
from mooring import names
from mooring.assignment import verified_assignment
from mooring.inventory import Pf
from mooring.kube.access import Access, load_access
from mooring.kube.client import MERGE_PATCH, Client
from scheduler.kube.objects import Node, Pod
from tests.scheduler.server.http.kube_scheduler import PODS, running
from tests.support.certificates import NAME, Authority
from tests.support.polling import eventually
from tests.support.relay import Relay

T = TypeVar("T")


MakePf = Callable[..., Pf]


MakeNode = Callable[..., Node]


FULL = "not enough free RDMA VFs"


CONFIG = Path(__file__).parents[4] / "manifests/components/extender/kube-scheduler.yaml"


pytestmark = pytest.mark.apiserver


class Cluster:
    """A real API server, and both schedulers at work on it."""

    def __init__(self, client: Client, kubeconfig: Path, folder: Path) -> None:
        self._client = client
        self._kubeconfig = kubeconfig
        self._folder = folder

    @asynccontextmanager
    async def scheduled(self, *ours: str, **extender: Any) -> AsyncIterator[None]:
        """Run both: ours with these flags, kube-scheduler with the manifests' configuration, changed as given."""
        port, secure = free_ports(2)
        config = yaml.safe_load(CONFIG.read_text())
        config["clientConnection"]["kubeconfig"] = str(self._kubeconfig)
        config["leaderElection"]["leaderElect"] = False
        config["podInitialBackoffSeconds"] = config["podMaxBackoffSeconds"] = 1
        scheme = "https" if extender.get("enableHTTPS") else "http"
        config["extenders"][0] |= {"urlPrefix": f"{scheme}://127.0.0.1:{port}/scheduler"} | extender
        (written := self._folder / "kube-scheduler.yaml").write_text(yaml.safe_dump(config))
        own = ["-m", "scheduler", "--kubeconfig", str(self._kubeconfig), "--leader-elect", "false"]
        own += ["--metrics-addr", "", "--extender-addr", f"127.0.0.1:{port}", *ours]
        binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kube-scheduler"
        if not binary.exists():
            pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-scheduler")
        by = ("--authentication-kubeconfig", "--authorization-kubeconfig")
        theirs = ["--config", str(written), f"--secure-port={secure}", "--bind-address=127.0.0.1"]
        theirs += [*(part for flag in by for part in (flag, str(self._kubeconfig))), f"--cert-dir={self._folder}"]
        async with running(sys.executable, own), running(str(binary), theirs):
            yield

    async def add_node(self, node: Node) -> None:
        document = msgspec.to_builtins(node)
        metadata = {"name": node.metadata.name, "annotations": node.metadata.annotations}
        await self._client.request("POST", "/api/v1/nodes", msgspec.json.encode({"metadata": metadata}))
        path = f"/api/v1/nodes/{node.metadata.name}"
        status = {key: document["status"][key] for key in ("allocatable", "conditions", "nodeInfo")}
        for where, patch in ((path, {"spec": {"taints": None}}), (f"{path}/status", {"status": status})):
            await self._client.request("PATCH", where, msgspec.json.encode(patch), MERGE_PATCH)

    async def add_pod(self, name: str, request: str = "[{}]", vfs: int = 1, **spec: Any) -> None:
        limits = {"limits": {names.SEED_VFS: str(vfs)}} if vfs else {}
        body = {
            "metadata": {"name": name, "annotations": {names.REQUEST: request}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}], **spec},
        }
        await self._client.request("POST", PODS, msgspec.json.encode(body))

    async def delete(self, name: str) -> None:
        await self._client.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    async def pod(self, name: str) -> Pod:
        return msgspec.json.decode(await self._client.request("GET", f"{PODS}/{name}"), type=Pod)

    async def bound(self, name: str) -> Pod:
        async def found() -> Pod | None:
            pod = await self.pod(name)
            return pod if pod.spec.node_name else None

        return await eventually(found)

    async def going(self, name: str) -> None:
        """Wait until a pod has been deleted."""

        async def found() -> bool | None:
            return True if (await self.pod(name)).metadata.deletion_timestamp is not None else None

        await eventually(found)

    async def event(self, name: str, *texts: str) -> str:
        """Wait for an event about a pod with one of these texts."""

        async def found() -> str | None:
            for path in ("/api/v1/events", "/apis/events.k8s.io/v1/events"):
                items = msgspec.json.decode(await self._client.request("GET", path))["items"]
                for one in items:
                    about, message = (
                        one.get("involvedObject") or one.get("regarding"),
                        one.get("message") or one.get("note"),
                    )
                    if about["name"] == name and any(text in (message or "") for text in texts):
                        return str(message)
            return None

        return await eventually(found)


@pytest.fixture
async def cluster(own_server: Path, tmp_path: Path, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Cluster]:
    """Give a real server, emptied, with a node that has one VF and another that has none."""
    async with Relay(load_access(str(own_server))) as relay:
        await relay.empty()
        async with Client(Access(relay.url), timeout_s=10.0) as client:
            cluster = Cluster(client, own_server, tmp_path)
            await cluster.add_node(make_node("n1", (make_pf(vfs=1),)))
            await cluster.add_node(make_node("bare"))
            yield cluster


def _vfs(pod: Pod) -> list[int]:
    given = verified_assignment(pod.annotations, pod.metadata.uid, pod.spec.node_name or "")
    assert given is not None
    return [vf.vf for vf in given.vfs]


@pytest.mark.parametrize("by_name", [True, False])
async def test_two_pods_race_for_the_last_vf(cluster: Cluster, by_name: bool) -> None:
    """One gets it, with the assignment in its binding; the other waits with the reason, and gets it next."""
    await cluster.add_pod("a")
    await cluster.add_pod("b")
    async with cluster.scheduled(nodeCacheCapable=by_name):

        async def first() -> str | None:
            bound = [name for name in ("a", "b") if (await cluster.pod(name)).spec.node_name]
            return bound[0] if bound else None

        winner = await eventually(first)
        loser = "b" if winner == "a" else "a"
        pod = await cluster.bound(winner)
        assert (pod.spec.node_name, _vfs(pod)) == ("n1", [0])
        assert FULL in await cluster.event(loser, FULL)
        assert not (await cluster.pod(loser)).spec.node_name
        await cluster.delete(winner)
        assert _vfs(await cluster.bound(loser)) == [0]


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_more_important_pod_gets_the_vf_of_another(cluster: Cluster, *, by_name: bool) -> None:
    """kube-scheduler finds the pods whose cpus it needs; the extender adds those whose VFs it needs, in either form."""
    busy = {"limits": {names.SEED_VFS: "1"}, "requests": {"cpu": "5"}}
    holder = {"limits": {names.SEED_VFS: "1"}, "requests": {"cpu": "1"}}
    async with cluster.scheduled(nodeCacheCapable=by_name):
        await cluster.add_pod("low", containers=[{"name": "c", "image": "i", "resources": holder}])
        assert _vfs(await cluster.bound("low")) == [0]
        plain = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]
        await cluster.add_pod("plain", request="[]", containers=plain, nodeName="n1")
        high = [{"name": "c", "image": "i", "resources": busy}]
        await cluster.add_pod("high", containers=high, priorityClassName="system-node-critical")
        for victim in ("low", "plain"):
            await cluster.going(victim)
            await cluster.delete(victim)
        assert _vfs(await cluster.bound("high")) == [0]


async def test_the_extender_lets_pods_without_vfs_pass(cluster: Cluster) -> None:
    """Neither managed resource nor interfaces: kube-scheduler binds by itself; with the resource the extender does."""
    async with cluster.scheduled():
        await cluster.add_pod("plain", request="[]", vfs=0)
        assert names.ASSIGNMENT not in (await cluster.bound("plain")).annotations
        await cluster.add_pod("odd", request="[]", vfs=2)
        assert "they must be as many" in await cluster.event("odd", "as many")


async def test_kube_scheduler_is_answered_over_tls(cluster: Cluster, tmp_path: Path) -> None:
    """With a certificate of our CA; the server is verified by its name. One of another CA gets no answer."""
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    server = authority.sign("server")
    flags = (f"--extender-tls-cert={server.certificate}", f"--extender-tls-key={server.key}")
    ca = f"--extender-client-ca={authority.own.certificate}"
    await cluster.add_pod("a")
    for signer, is_answered in ((stranger, False), (authority, True)):
        client = signer.sign("client" if is_answered else "other")
        files = {"certFile": str(client.certificate), "keyFile": str(client.key)}
        tls = {"serverName": NAME, "caFile": str(authority.own.certificate)} | files
        async with cluster.scheduled(*flags, ca, enableHTTPS=True, tlsConfig=tls):
            if is_answered:
                assert _vfs(await cluster.bound("a")) == [0]
            else:
                # After TLS 1.3's handshake the client believes itself connected.
                assert "https://" in await cluster.event("a", "EOF", "connection reset", "bad certificate")


async def test_without_a_bind_verb_one_pod_is_bound_without_vfs_and_no_more(cluster: Cluster) -> None:
    """Without bindVerb the pod has no VFs: its owner gets a report, and the next pods wait until it is gone."""
    async with cluster.scheduled(filterVerb="rdma_scheduling", bindVerb="", nodeCacheCapable=False):
        await cluster.add_pod("a")
        assert names.ASSIGNMENT not in (await cluster.bound("a")).annotations
        assert "bindVerb" in await cluster.event("a", "without the VFs that it asks for")
        await cluster.add_pod("b")
        assert "no bindVerb" in await cluster.event("b", "bindVerb")
        assert not (await cluster.pod("b")).spec.node_name
