"""A real kube-scheduler that allocates DRA's GPUs and has our extender bind, beside a real kube-controller-manager.

The GPUs are ResourceSlices made by hand. `test_claimed_devices` plays kube-scheduler's part on devcluster's server.
"""

from collections.abc import AsyncIterator

import pytest

from scheduler.kube.objects import Pod
from tests.scheduler.server.cluster import given_vfs, when
from tests.scheduler.server.http.claims import BESIDE, A, B, Claims, claiming, pfs_of_two_roots
from tests.scheduler.server.process import RealCluster

FULL = f"under PCIe root {A} of claim 'low': not enough free RDMA VFs or bandwidth there"
pytestmark = pytest.mark.apiserver
Scene = tuple[RealCluster, Claims]


@pytest.fixture
async def scene(real_cluster: RealCluster) -> AsyncIterator[Scene]:
    """Give a node with one VF under root A and two under root B, two GPUs under each, and a claim of each root."""
    claims = Claims(real_cluster.client)
    await claims.remove()
    await real_cluster.add_node(real_cluster.make_node("n1", pfs_of_two_roots(real_cluster.make_pf)))
    await claims.publish("n1", {"gpu-0": A, "gpu-1": A, "gpu-2": B, "gpu-3": B})
    for name, root in (("low", A), ("other", B)):
        await claims.claim(name, cel=f'device.attributes["resource.kubernetes.io"].pcieRoot == "{root}"')
    async with real_cluster.controlled(), real_cluster.scheduled():
        yield real_cluster, claims
    await claims.remove()


def _pfs(pod: Pod) -> list[str]:
    return sorted(pf for pf, _ in given_vfs(pod))


async def _fill_root(cluster: RealCluster) -> None:
    """Let a pod take the VF under root A, and then add one whose claim lies there."""
    await cluster.request("first", '[{"network": "rail0"}]')
    assert _pfs(await cluster.bound_pod("first")) == ["pf0"]
    await cluster.request("a", "[{}]", placement=BESIDE, **claiming("low"))
    # What the bind is refused with.
    await cluster.event("a", f"node 'n1': {FULL}")


async def test_vfs_lie_beside_the_gpus_that_kube_scheduler_allocates(scene: Scene) -> None:
    """Of a claim that is made from a template: four GPUs under two roots, and a VF beside one of each."""
    cluster, claims = scene
    await claims.template("all", count=4)
    await cluster.request("a", "[{}, {}]", 2, placement=BESIDE, **claiming(template="all"))
    pod = await cluster.bound_pod("a")
    assert _pfs(pod) in (["pf0", "pf1"], ["pf1", "pf1"])
    made = [one.resource_claim_name or "" for one in pod.status.resource_claim_statuses or ()]
    assert [len(await claims.devices(name)) for name in made] == [4]


async def test_a_pod_whose_claim_lies_under_a_full_root_learns_it(scene: Scene) -> None:
    """At bind, and by the filter of each further try, since the claim stays allocated; it is bound when a VF is free.

    A claim that selects another root has a VF there at once.
    """
    cluster, claims = scene
    await _fill_root(cluster)
    assert "0/1 nodes are available" in (await cluster.event("a", f"1 {FULL}"))["message"]
    assert len(await claims.devices("low")) == 1
    assert not await cluster.is_bound("a")
    await cluster.request("b", "[{}]", placement=BESIDE, **claiming("other"))
    assert _pfs(await cluster.bound_pod("b")) == ["pf1"]
    await cluster.delete("first")
    assert _pfs(await cluster.bound_pod("a")) == ["pf0"]


async def test_beside_other_nodes_kube_scheduler_deallocates_a_claim_that_keeps_its_pod_out(scene: Scene) -> None:
    """It looked at a node without the claimed device too; the next allocation may be the same, and is told again."""
    cluster, claims = scene
    await cluster.add_rdma_node("n2")
    await _fill_root(cluster)
    await when(lambda: claims.devices("low"), lambda devices: devices == [])
    await cluster.delete("first")
    assert _pfs(await cluster.bound_pod("a")) == ["pf0"]
