"""A real kube-scheduler that asks a real mooring-scheduler, against a real API server: pods of its default profile."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mooring import names
from mooring.annotations.assignment import verified_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.access import Access, load_access
from mooring.kube.client import Client
from scheduler.kube.objects import Node, Pod
from tests.scheduler.server.http.kube_scheduler import Cluster
from tests.support.certificates import NAME, Authority
from tests.support.polling import eventually
from tests.support.relay import Relay

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
FULL = "not enough free RDMA VFs"
pytestmark = pytest.mark.apiserver


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
    busy = {"limits": {names.RIT_VFS: "1"}, "requests": {"cpu": "5"}}
    holder = {"limits": {names.RIT_VFS: "1"}, "requests": {"cpu": "1"}}
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
        assert "the numbers must be equal" in await cluster.event("odd", "must be equal")


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
        assert "bindVerb" in await cluster.event("a", "without the VFs that it requests")
        await cluster.add_pod("b")
        assert "no bindVerb" in await cluster.event("b", "bindVerb")
        assert not (await cluster.pod("b")).spec.node_name
