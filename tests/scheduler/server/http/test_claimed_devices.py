"""VFs beside devices that a pod has claimed: the calls that kube-scheduler makes, against an API server.

kube-scheduler filters before it allocates a fresh claim, writes the allocation, and asks the extender to bind. After a
refused bind the claim stays allocated. Source: PreBind and Unreserve of kube-scheduler's plugin DynamicResources
(pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go).
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest

from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access
from mooring.kube.client import Client
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.server.http.claimed_devices import read_claimed_devices
from tests.scheduler.server.cluster import given_vfs, when
from tests.scheduler.server.http.claims import BESIDE, A, B, Claims, claiming, pfs_of_two_roots
from tests.scheduler.server.stage import ExtenderStage

POD = msgspec.convert({"metadata": {"name": "a", "namespace": "default"}, "spec": claiming("c")}, Pod)
UNALLOCATED = "the pod's VFs must be near its claimed devices, but its resource claims are not allocated"
REMEDY = (
    "The claimed devices stay allocated: free VFs there, or delete the pod and its claim, and let the new claim select "
    "another 'resource.kubernetes.io/pcieRoot'"
)
FULL = f"under PCIe root {A} of claim 'c': not enough free RDMA VFs or bandwidth there. {REMEDY}"


class Scene(NamedTuple):
    """A node with a PF under each of two roots, and GPUs that a driver of DRA publishes there."""

    stage: ExtenderStage
    claims: Claims

    async def filtered(self, pod: Pod) -> dict[str, str]:
        """Return why the filter rejects the node of the GPUs, if it does."""
        return await self.stage.refused("filter", pod, "n1")

    async def bind(self, pod: Pod) -> list[str]:
        """Bind a pod; return the PF of each of its VFs."""
        assert await self.stage.ask_bind(pod) == ""
        return [pf for pf, _ in given_vfs(await self.stage.pod(pod.metadata.name))]


@pytest.fixture
async def scene(extender: ExtenderStage) -> AsyncIterator[Scene]:
    """Give a node with one VF under root A and two under root B, and another node; the scheduler answers."""
    claims = Claims(extender.client)
    await claims.remove()
    await extender.add_node(extender.make_node("n1", pfs_of_two_roots(extender.make_pf)))
    await extender.add_rdma_node("n2", vfs=4)
    await claims.publish("n1", {"gpu-0": A, "gpu-1": A, "gpu-2": B, "gpu-3": B, "imex": ""})
    async with extender.answering():
        yield Scene(extender, claims)
    await claims.remove()


async def test_vfs_lie_under_the_roots_of_the_claimed_devices(scene: Scene) -> None:
    """Interface by interface, as far as their selectors go with it; the order of the devices does not matter."""
    stage, claims = scene
    await claims.claim("c", count=2)
    pod = await stage.request("a", '[{"network": "rail0"}, {"network": "rail1"}]', BESIDE, **claiming("c"))
    # Nothing is allocated yet, so any node may do that has the VFs.
    assert set(await stage.refused("filter", pod, "n1", "n2")) == {"n2"}
    assert await stage.ask_bind(pod) == UNALLOCATED
    await claims.allocate("c", "n1", "gpu-3", "imex", "gpu-0")
    assert await scene.filtered(pod) == {}
    assert await scene.bind(pod) == ["pf0", "pf1"]


async def test_a_pod_that_its_allocation_keeps_out_learns_what_to_do(scene: Scene) -> None:
    """Once the VF under the root is another's: at bind, and at each filter after it, since the claim stays allocated.

    When the VF is free, the pod gets it; a claim of a device under the other root does it as well.
    """
    stage, claims = scene
    await claims.claim("c")
    await scene.bind(await stage.request("first", '[{"network": "rail0"}]'))
    pod = await stage.request("a", "[{}]", BESIDE, **claiming("c"))
    assert await scene.filtered(pod) == {}
    await claims.allocate("c", "n1", "gpu-0")
    assert await stage.ask_bind(pod) == f"node 'n1': {FULL}"
    assert await scene.filtered(pod) == {"n1": FULL}
    for device, reasons in {"": {}, "gpu-2": {}, "gpu-1": {"n1": FULL}}.items():
        await claims.deallocate("c")
        if device:
            await claims.allocate("c", "n1", device)
        assert await scene.filtered(pod) == reasons
    await stage.delete("first")
    await when(lambda: scene.filtered(pod), lambda reasons: reasons == {})
    assert await scene.bind(pod) == ["pf0"]


async def test_victims_on_the_wrong_root_are_not_asked_for(scene: Scene) -> None:
    """A pod whose claim is allocated under one root gains nothing by VFs under another."""
    stage, claims = scene
    await claims.claim("c")
    await claims.allocate("c", "n1", "gpu-0")
    holders = [await stage.request(f"on-{rail}", f'[{{"network": "{rail}"}}]') for rail in ("rail0", "rail1")]
    assert [await scene.bind(holder) for holder in holders] == [["pf0"], ["pf1"]]
    pod = await stage.request("a", "[{}]", BESIDE, priority=0, **claiming("c"))
    assert [await stage.preempted(pod, {"n1": one.metadata.uid}) for one in holders] == [{"n1"}, set()]


async def test_a_server_without_resource_claims_is_named() -> None:
    """As before Kubernetes 1.34, where dynamic resource allocation is off."""
    async with ApiServer() as server, Client(Access(server.url), timeout_s=2.0) as client:
        server.cluster.catalog.forget("resource.k8s.io", "v1", "resourceclaims")
        claim = "resource.k8s.io/v1/namespaces/default/resourceclaims/c"
        assert await read_claimed_devices(client, POD) == Refused(f"{claim} does not exist")


async def test_slices_are_read_few_at_a_time_and_no_more_than_a_node_has() -> None:
    """The sixteenth slice counts like the first; with a seventeenth nothing is known of that driver's devices."""
    async with ApiServer() as server, Client(Access(server.url), timeout_s=2.0) as client:
        claims = Claims(client)
        for index in range(15):
            await claims.publish_slice("n1", f"n1-{index}", "n1-more", 15, [{"name": f"more-{index}"}])
        await claims.publish("n1", {"gpu-0": A})
        await claims.claim("c")
        await claims.allocate("c", "n1", "gpu-0")
        assert await read_claimed_devices(client, POD) == ClaimedDevices("claim 'c'", "n1", (frozenset({A}),))
        await claims.publish_slice("n1", "seventeenth", "another", 1, [{"name": "gpu-9"}])
        expected = "driver 'gpu.example.com' has more than 16 ResourceSlices of node 'n1'"
        assert await read_claimed_devices(client, POD) == Refused(expected)
