"""A real kube-scheduler that asks a real mooring-scheduler, against a real API server: pods of its default profile."""

from pathlib import Path

import pytest

from mooring import names
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import given_vfs
from tests.scheduler.server.http.kube_scheduler import RealCluster
from tests.support.certificates import NAME, Authority
from tests.support.polling import eventually

FULL = "not enough free RDMA VFs"
pytestmark = pytest.mark.apiserver


@pytest.fixture
async def cluster(real_cluster: RealCluster, make_node: MakeNode, make_pf: MakePf) -> RealCluster:
    """Give a real server with a node that has one VF and another that has none."""
    await real_cluster.add_node(make_node("n1", (make_pf(vfs=1),)))
    await real_cluster.add_node(make_node("bare"))
    return real_cluster


@pytest.mark.parametrize("by_name", [True, False])
async def test_two_pods_race_for_the_last_vf(cluster: RealCluster, by_name: bool) -> None:
    """One gets it, with the assignment in its binding; the other waits with the reason, and gets it next."""
    await cluster.request("a")
    await cluster.request("b")
    async with cluster.scheduled(nodeCacheCapable=by_name):

        async def first() -> str | None:
            return next((name for name, pod in (await cluster.pods()).items() if pod.spec.node_name), None)

        winner = await eventually(first)
        loser = "b" if winner == "a" else "a"
        pod = await cluster.bound_pod(winner)
        assert (pod.spec.node_name, given_vfs(pod)) == ("n1", [("pf0", 0)])
        assert FULL in await cluster.event(loser, FULL)
        assert not await cluster.is_bound(loser)
        await cluster.delete(winner)
        assert given_vfs(await cluster.bound_pod(loser)) == [("pf0", 0)]


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_more_important_pod_gets_the_vf_of_another(cluster: RealCluster, *, by_name: bool) -> None:
    """kube-scheduler finds the pods whose cpus it needs; the extender adds those whose VFs it needs, in either form."""
    busy = {"limits": {names.RIT_VFS: "1"}, "requests": {"cpu": "5"}}
    holder = {"limits": {names.RIT_VFS: "1"}, "requests": {"cpu": "1"}}
    async with cluster.scheduled(nodeCacheCapable=by_name):
        await cluster.request("low", containers=[{"name": "c", "image": "i", "resources": holder}])
        assert given_vfs(await cluster.bound_pod("low")) == [("pf0", 0)]
        plain = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]
        await cluster.request("plain", request="[]", containers=plain, nodeName="n1")
        high = [{"name": "c", "image": "i", "resources": busy}]
        await cluster.request("high", containers=high, priorityClassName="system-node-critical")
        for victim in ("low", "plain"):
            await cluster.going(victim)
            await cluster.delete(victim)
        assert given_vfs(await cluster.bound_pod("high")) == [("pf0", 0)]


async def test_the_extender_lets_pods_without_vfs_pass(cluster: RealCluster) -> None:
    """Neither managed resource nor interfaces: kube-scheduler binds by itself; with the resource the extender does."""
    async with cluster.scheduled():
        await cluster.request("plain", request="[]", vfs=0)
        assert names.ASSIGNMENT not in (await cluster.bound_pod("plain")).annotations
        await cluster.request("odd", request="[]", vfs=2)
        assert "the numbers must be equal" in await cluster.event("odd", "must be equal")


async def test_kube_scheduler_is_answered_over_tls(cluster: RealCluster, tmp_path: Path) -> None:
    """With a certificate of our CA; the server is verified by its name. One of another CA gets no answer."""
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    server = authority.sign("server")
    flags = (f"--extender-tls-cert={server.certificate}", f"--extender-tls-key={server.key}")
    ca = f"--extender-client-ca={authority.own.certificate}"
    await cluster.request("a")
    for signer, is_answered in ((stranger, False), (authority, True)):
        client = signer.sign("client" if is_answered else "other")
        files = {"certFile": str(client.certificate), "keyFile": str(client.key)}
        tls = {"serverName": NAME, "caFile": str(authority.own.certificate)} | files
        async with cluster.scheduled(*flags, ca, enableHTTPS=True, tlsConfig=tls):
            if is_answered:
                assert given_vfs(await cluster.bound_pod("a")) == [("pf0", 0)]
            else:
                # After TLS 1.3's handshake the client believes itself connected.
                assert "https://" in await cluster.event("a", "EOF", "connection reset", "bad certificate")


async def test_without_a_bind_verb_one_pod_is_bound_without_vfs_and_no_more(cluster: RealCluster) -> None:
    """Without bindVerb the pod has no VFs: its owner gets a report, and the next pods wait until it is gone."""
    async with cluster.scheduled(filterVerb="rdma_scheduling", bindVerb="", nodeCacheCapable=False):
        await cluster.request("a")
        assert names.ASSIGNMENT not in (await cluster.bound_pod("a")).annotations
        assert "bindVerb" in await cluster.event("a", "without the VFs that it requests")
        await cluster.request("b")
        assert "no bindVerb" in await cluster.event("b", "bindVerb")
        assert not await cluster.is_bound("b")
