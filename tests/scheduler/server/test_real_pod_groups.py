"""PodGroups of a real API server: what it keeps of them by its feature gates, and what becomes of their pods."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.served import apiservers
from mooring.kube.access import load_access
from mooring.kube.client import Client
from tests.scheduler.server.cluster import NODES, PODS, Cluster, when
from tests.scheduler.server.process import ALONE, scheduler

pytestmark = pytest.mark.apiserver
API = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
TRAIN = f"{GROUPS}/train"
RACK = "example.com/rack"
FEW = "GenericWorkload=true"
ALL = f"{FEW},GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true"
SPEC: dict[str, Any] = {
    "schedulingPolicy": {"gang": {"minCount": 3}},
    "schedulingConstraints": {"topology": [{"key": RACK}]},
    "disruptionMode": "PodGroup",
}
Gated = tuple[str, Path]


@pytest.fixture(scope="module", params=[FEW, ALL], ids=["few gates", "all gates"])
def gated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    """Start an API server with these feature gates; give them and a kubeconfig."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS is not set, and KUBECONFIG's cluster has its own gates")
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if "v1.36." not in (version := apiservers.version(assets)):
        pytest.skip(f"tier 'apiserver': {version} is not 1.36, which serves {API}")
    flags = ("--feature-gates", request.param, "--runtime-config", f"{API}=true")
    with apiservers.real(assets, tmp_path_factory.mktemp("gated"), *flags) as kubeconfig:
        yield request.param, kubeconfig


@pytest.fixture
async def cluster(gated: Gated) -> AsyncIterator[Cluster]:
    """Give a cluster of two racks: one has VFs for two pods, the other for four; leave nothing of a test there."""
    async with Client(load_access(str(gated[1]))) as client:
        cluster = Cluster(client, gated[1])
        for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
            await cluster.add_rdma_node(name, vfs=2, labels={RACK: rack})
        yield cluster
        await cluster.clear(PODS, NODES, GROUPS)


async def _create(cluster: Cluster) -> None:
    await cluster.call("POST", GROUPS, {"metadata": {"name": "train"}, "spec": SPEC})


async def _add_members(cluster: Cluster, *members: str, **spec: Any) -> None:
    for name in members:
        await cluster.add_pod(name, "[{}]", schedulingGroup={"podGroupName": "train"}, **spec)


async def test_members_wait_for_their_pod_group_and_start_together(gated: Gated, cluster: Cluster) -> None:
    """In one rack, if the PodGroup can require it; and its condition is True then.

    An API server drops fields without their feature gate, and returns no error: docs/jobs.md tells the reader.
    """
    async with scheduler(cluster, *ALONE):
        await _add_members(cluster, "m0", "m1", "m2")
        why = "group train: its PodGroup (scheduling.k8s.io) does not exist, or the API server does not serve that API"
        assert await cluster.message_of("m0") == why
        await _create(cluster)
        kept = (await cluster.call("GET", TRAIN))["spec"]
        assert kept["schedulingPolicy"] == SPEC["schedulingPolicy"]
        optional = kept.get("schedulingConstraints"), kept["disruptionMode"], kept.get("priority")
        assert optional == ((SPEC["schedulingConstraints"], "PodGroup", 0) if gated[0] == ALL else (None, "Pod", None))
        pods = await cluster.bound("m0", "m1", "m2")

        async def conditions() -> list[tuple[str, str]]:
            shown = (await cluster.call("GET", TRAIN)).get("status", {}).get("conditions", [])
            return [(one["type"], one["reason"]) for one in shown if one["status"] == "True"]

        assert (await when(conditions, bool))[0] == ("PodGroupScheduled", "Scheduled")
    assert {pod.spec.node_name for pod in pods.values()} == {"b1", "b2"} or gated[0] == FEW


async def test_a_group_goes_as_a_whole_if_the_server_keeps_its_mode(gated: Gated, cluster: Cluster) -> None:
    """A pod that needs the room of one member has all of them deleted, or that one."""
    await cluster.add_priority_class("train-low", 10)
    await cluster.add_priority_class("train-high", 1000)
    await _create(cluster)
    gone = set[str]()

    async def end_deleted_pods() -> None:
        """Do as a kubelet does."""
        for name, pod in (await cluster.pods()).items():
            if pod.metadata.deletion_timestamp is not None:
                gone.add(name)
                await cluster.delete(name)

    async def is_placed() -> bool:
        await end_deleted_pods()
        return await cluster.is_bound("urgent")

    async with scheduler(cluster, *ALONE):
        await _add_members(cluster, "m0", "m1", "m2", priorityClassName="train-low", nodeSelector={RACK: "b"})
        await cluster.bound("m0", "m1", "m2")
        await cluster.add_pod("beside", "[{}]", priorityClassName="train-high", nodeSelector={RACK: "b"})
        await cluster.bound("beside")
        await cluster.add_pod("urgent", "[{}]", priorityClassName="train-high", nodeSelector={RACK: "b"})
        await when(is_placed, bool)
        await end_deleted_pods()
    assert len(gone & {"m0", "m1", "m2"}) == (3 if gated[0] == ALL else 1)
    assert "beside" not in gone
