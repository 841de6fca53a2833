"""A real kube-scheduler that asks a real mooring-scheduler, against a real API server: pods of its default profile."""

from pathlib import Path

import pytest

from mooring import names
from tests.scheduler.server.cluster import given_vfs, when
from tests.scheduler.server.process import RealCluster
from tests.support.certificates import NAME, Authority

FULL = "not enough free RDMA VFs"
THE_VF = [("pf0", 0)]
pytestmark = pytest.mark.apiserver


@pytest.fixture
async def cluster(real_cluster: RealCluster) -> RealCluster:
    """Give a real server with a node that has one VF and another that has none."""
    await real_cluster.add_rdma_node("n1", vfs=1)
    await real_cluster.add_rdma_node("bare")
    return real_cluster


@pytest.mark.parametrize("by_name", [True, False])
async def test_two_pods_race_for_the_last_vf(cluster: RealCluster, by_name: bool) -> None:
    """One gets it, with the assignment in its binding; the other waits with the reason, and gets it next."""
    await cluster.request("a")
    await cluster.request("b")
    async with cluster.scheduled(nodeCacheCapable=by_name):
        pods = await when(cluster.pods, lambda pods: any(pod.spec.node_name for pod in pods.values()))
        winner, loser = ("a", "b") if pods["a"].spec.node_name else ("b", "a")
        assert (pods[winner].spec.node_name, given_vfs(pods[winner])) == ("n1", THE_VF)
        await cluster.event(loser, FULL)
        assert not await cluster.is_bound(loser)
        await cluster.delete(winner)
        assert given_vfs(await cluster.bound_pod(loser)) == THE_VF


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_more_important_pod_gets_the_vf_of_another(cluster: RealCluster, *, by_name: bool) -> None:
    """kube-scheduler finds the pods whose cpus it needs; the extender adds those whose VFs it needs, in either form."""
    async with cluster.scheduled(nodeCacheCapable=by_name):
        await cluster.request("low", cpu="1")
        assert given_vfs(await cluster.bound_pod("low")) == THE_VF
        await cluster.request("plain", "[]", 0, cpu="5", nodeName="n1")
        await cluster.request("high", cpu="5", priorityClassName="system-node-critical")
        for victim in ("low", "plain"):
            await cluster.going(victim)
            await cluster.delete(victim)
        assert given_vfs(await cluster.bound_pod("high")) == THE_VF


async def test_the_extender_lets_pods_without_vfs_pass(cluster: RealCluster) -> None:
    """Neither managed resource nor interfaces: kube-scheduler binds by itself; with the resource the extender does."""
    async with cluster.scheduled():
        await cluster.request("plain", "[]", 0)
        assert names.ASSIGNMENT not in (await cluster.bound_pod("plain")).annotations
        await cluster.request("odd", "[]", 2)
        await cluster.event("odd", "the numbers must be equal")


async def test_kube_scheduler_is_answered_over_tls(cluster: RealCluster, tmp_path: Path) -> None:
    """With a certificate of our CA; the server is verified by its name. One of another CA gets no answer."""
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    server = authority.sign("server")
    flags = (f"--extender-tls-cert={server.certificate}", f"--extender-tls-key={server.key}")
    ca = f"--extender-client-ca={authority.own.certificate}"
    trust = {"serverName": NAME, "caFile": str(authority.own.certificate)}
    await cluster.request("a")
    for client in (stranger.sign("other"), authority.sign("client")):
        tls = trust | {"certFile": str(client.certificate), "keyFile": str(client.key)}
        async with cluster.scheduled(*flags, ca, enableHTTPS=True, tlsConfig=tls):
            if "other" in client.key.name:
                # After TLS 1.3's handshake the client counts itself as connected.
                event = await cluster.event("a", "EOF", "connection reset", "bad certificate")
                assert "https://" in event["message"]
            else:
                assert given_vfs(await cluster.bound_pod("a")) == THE_VF


async def test_without_a_bind_verb_one_pod_is_bound_without_vfs_and_no_more(cluster: RealCluster) -> None:
    """Without bindVerb the pod has no VFs: its owner gets a report, and the next pods wait until it is gone."""
    async with cluster.scheduled(filterVerb="rdma_scheduling", bindVerb="", nodeCacheCapable=False):
        await cluster.request("a")
        assert names.ASSIGNMENT not in (await cluster.bound_pod("a")).annotations
        assert "bindVerb" in (await cluster.event("a", "without the VFs that it requests"))["message"]
        await cluster.request("b")
        await cluster.event("b", "no bindVerb")
        assert not await cluster.is_bound("b")
