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
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import given_vfs
from tests.scheduler.server.http.claims import BESIDE, DRIVER, A, B, Claims, claiming, pfs_of_two_roots
from tests.scheduler.server.http.extender_stage import ExtenderStage
from tests.support.polling import eventually

GROUP = "resource.k8s.io"
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

    async def pfs(self, name: str) -> list[str]:
        """Return the PF of each VF that a bound pod has."""
        return [pf for pf, _ in given_vfs(await self.stage.pod(name))]


@pytest.fixture
async def scene(server: ApiServer, client: Client, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Scene]:
    """Give a cluster of one node with one VF under root A and two under root B, and claim c."""
    stage, claims = ExtenderStage(server, client), Claims(client)
    await claims.clear()
    await stage.add_node(make_node("n1", pfs_of_two_roots(make_pf)))
    await stage.add_node(make_node("n2", (make_pf(vfs=4),)))
    await claims.publish("n1", {"gpu-0": A, "gpu-1": A, "gpu-2": B, "gpu-3": B, "imex": ""})
    yield Scene(stage, claims)
    await claims.clear()


async def test_vfs_lie_under_the_roots_of_the_claimed_devices(scene: Scene) -> None:
    """Interface by interface, as far as their selectors go with it; the order of the devices does not matter."""
    stage, claims = scene
    await claims.claim("c", count=2)
    request = '[{"network": "rail0"}, {"network": "rail1"}]'
    async with stage.answering():
        pod = await stage.request("a", request, BESIDE, **claiming("c"))
        # Nothing is allocated yet, so any node may do that has the VFs.
        assert set(await stage.refused("filter", pod, "n1", "n2")) == {"n2"}
        assert await stage.ask_bind(pod) == UNALLOCATED
        await claims.allocate("c", "n1", "gpu-3", "imex", "gpu-0")
        assert await stage.refused("filter", pod, "n1") == {}
        assert await stage.ask_bind(pod) == ""
        assert await scene.pfs("a") == ["pf0", "pf1"]


async def test_a_pod_that_its_allocation_keeps_out_is_told_what_to_do(scene: Scene) -> None:
    """Once the VF under the root is another's: at bind, and at each filter after it, since the claim stays allocated.

    When the VF is free, the pod gets it; a claim of a device under the other root does it as well.
    """
    stage, claims = scene
    await claims.claim("c")
    async with stage.answering():
        await stage.ask_bind(await stage.request("first", '[{"network": "rail0"}]'))
        pod = await stage.request("a", "[{}]", BESIDE, **claiming("c"))
        assert await stage.refused("filter", pod, "n1") == {}
        await claims.allocate("c", "n1", "gpu-0")
        assert await stage.ask_bind(pod) == f"node 'n1': {FULL}"
        assert await stage.refused("filter", pod, "n1") == {"n1": FULL}
        await claims.deallocate("c")
        assert await stage.refused("filter", pod, "n1") == {}
        await claims.allocate("c", "n1", "gpu-2")
        assert await stage.refused("filter", pod, "n1") == {}
        await claims.deallocate("c")
        await claims.allocate("c", "n1", "gpu-1")
        assert await stage.refused("filter", pod, "n1") == {"n1": FULL}
        await stage.delete("first")

        async def fits() -> bool:
            return not await stage.refused("filter", pod, "n1")

        await eventually(fits)
        assert await stage.ask_bind(pod) == ""
        assert await scene.pfs("a") == ["pf0"]


async def test_victims_on_the_wrong_root_are_not_asked_for(scene: Scene) -> None:
    """A pod whose claim is allocated under one root gains nothing by VFs under another."""
    stage, claims = scene
    await claims.claim("c")
    await claims.allocate("c", "n1", "gpu-0")
    async with stage.answering():
        holder = await stage.request("holder", '[{"network": "rail0"}]')
        other = await stage.request("other", '[{"network": "rail1"}]')
        assert (await stage.ask_bind(holder), await stage.ask_bind(other)) == ("", "")
        pod = await stage.request("a", "[{}]", BESIDE, priority=0, **claiming("c"))

        assert await stage.preempted(pod, {"n1": holder.metadata.uid}) == {"n1"}
        assert await stage.preempted(pod, {"n1": other.metadata.uid}) == set()


async def test_a_server_without_resource_claims_is_said() -> None:
    """As before Kubernetes 1.34, where dynamic resource allocation is off."""
    async with ApiServer() as server, Client(Access(server.url), timeout_s=2.0) as client:
        server.cluster.catalog.forget(GROUP, "v1", "resourceclaims")
        claim = "resource.k8s.io/v1/namespaces/default/resourceclaims/c"
        assert await read_claimed_devices(client, POD) == Refused(f"{claim} does not exist")


async def test_slices_are_read_few_at_a_time_and_no_more_than_a_node_has() -> None:
    """The sixteenth slice counts like the first; with a seventeenth nothing is known of that driver's devices."""
    async with ApiServer() as server, Client(Access(server.url), timeout_s=2.0) as client:
        claims = Claims(client)
        await claims.publish_slices("n1", 15)
        await claims.publish("n1", {"gpu-0": A})
        await claims.claim("c")
        await claims.allocate("c", "n1", "gpu-0")
        assert await read_claimed_devices(client, POD) == ClaimedDevices("claim 'c'", "n1", (frozenset({A}),))
        await client.request("POST", f"/apis/{GROUP}/v1/resourceslices", _slice("n1", "seventeenth"))
        expected = "driver 'gpu.example.com' has more than 16 ResourceSlices of node 'n1'"
        assert await read_claimed_devices(client, POD) == Refused(expected)


def _slice(node: str, name: str) -> bytes:
    pool = {"name": "another", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-9"}]}
    return msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
