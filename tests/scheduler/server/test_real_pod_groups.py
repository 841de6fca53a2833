"""PodGroups of a real API server: what it keeps of them by its feature gates, and what becomes of their pods."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.served import apiservers
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.kube.failures import Conflict
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.server.cluster import NODES, PODS, Cluster
from tests.scheduler.server.process import ALONE, running
from tests.support.polling import eventually

pytestmark = pytest.mark.apiserver
API = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
TRAIN = f"{GROUPS}/train"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RACK = "example.com/rack"
FEW = "GenericWorkload=true"
ALL = f"{FEW},GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true"
SPEC: dict[str, Any] = {
    "schedulingPolicy": {"gang": {"minCount": 3}},
    "schedulingConstraints": {"topology": [{"key": RACK}]},
    "disruptionMode": "PodGroup",
}


@pytest.fixture(scope="module", params=[FEW, ALL], ids=["few gates", "all gates"])
def gated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Start an API server with these feature gates; give them and a kubeconfig."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip(
            "tier 'apiserver': KUBEBUILDER_ASSETS is not set, and the gates of KUBECONFIG's cluster are not ours"
        )
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if "v1.36." not in (version := apiservers.version(assets)):
        pytest.skip(f"tier 'apiserver': {version} is not 1.36, which serves {API}")
    flags = ("--feature-gates", request.param, "--runtime-config", f"{API}=true")
    with apiservers.real(assets, tmp_path_factory.mktemp("gated"), *flags) as kubeconfig:
        yield request.param, kubeconfig


@pytest.fixture
async def client(gated: tuple[str, Path]) -> AsyncIterator[Client]:
    """Talk to the server, and leave nothing of a test there."""
    async with Client(load_access(str(gated[1]))) as client:
        yield client
        for path in (PODS, NODES):
            await client.request("DELETE", path, params={"gracePeriodSeconds": "0"})
        # No controller takes the finalizer off.
        await client.request("PATCH", TRAIN, b'{"metadata": {"finalizers": null}}', "application/merge-patch+json")
        await client.request("DELETE", TRAIN)


@pytest.fixture
async def cluster(gated: tuple[str, Path], client: Client, make_node: MakeNode, make_pf: MakePf) -> Cluster:
    """Give a cluster of two racks: one has VFs for two pods, the other for four."""
    cluster = Cluster(client, gated[1])
    for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        await cluster.add_node(make_node(name, (make_pf(vfs=2),), labels={RACK: rack}))
    return cluster


async def _create(cluster: Cluster) -> None:
    await cluster.call("POST", GROUPS, {"metadata": {"name": "train"}, "spec": SPEC})


async def _add_members(cluster: Cluster, *members: str, **spec: Any) -> None:
    for name in members:
        await cluster.add_pod(name, "[{}]", schedulingGroup={"podGroupName": "train"}, **spec)


async def test_an_api_server_drops_what_its_feature_gates_do_not_allow(
    gated: tuple[str, Path], cluster: Cluster
) -> None:
    """It says nothing then: docs/jobs.md does."""
    await _create(cluster)
    kept = (await cluster.call("GET", TRAIN))["spec"]
    told = kept.get("schedulingConstraints"), kept["disruptionMode"], kept.get("priority")
    assert told == ((SPEC["schedulingConstraints"], "PodGroup", 0) if gated[0] == ALL else (None, "Pod", None))
    assert kept["schedulingPolicy"] == SPEC["schedulingPolicy"]


async def test_members_wait_for_their_pod_group_and_start_together(gated: tuple[str, Path], cluster: Cluster) -> None:
    """In one rack, if the PodGroup could say so; and its condition is True then."""
    async with running(cluster, *ALONE):
        await _add_members(cluster, "m0", "m1", "m2")
        why = "group train: its PodGroup (scheduling.k8s.io) does not exist, or the API server does not serve that API"
        assert await cluster.message_of("m0") == why
        await _create(cluster)
        pods = await cluster.bound("m0", "m1", "m2")

        async def condition() -> dict[str, str] | None:
            conditions = (await cluster.call("GET", TRAIN)).get("status", {}).get("conditions", [])
            return next((one for one in conditions if one["status"] == "True"), None)

        said = await eventually(condition)
    nodes = {pod.spec.node_name for pod in pods.values()}
    assert nodes == {"b1", "b2"} or gated[0] == FEW
    assert (said["type"], said["reason"]) == ("PodGroupScheduled", "Scheduled")


async def test_a_group_goes_as_a_whole_where_the_server_keeps_that_it_should(
    gated: tuple[str, Path], cluster: Cluster
) -> None:
    """A pod that needs the room of one member has all of them deleted, or that one."""
    for name, value in (("train-low", 10), ("train-high", 1000)):
        # The other tests of this server may have made it.
        with suppress(Conflict):
            await cluster.call("POST", CLASSES, {"metadata": {"name": name}, "value": value})
    await _create(cluster)
    async with running(cluster, *ALONE):
        await _add_members(cluster, "m0", "m1", "m2", priorityClassName="train-low", nodeSelector={RACK: "b"})
        await cluster.bound("m0", "m1", "m2")
        await cluster.add_pod("beside", "[{}]", priorityClassName="train-high", nodeSelector={RACK: "b"})
        await cluster.bound("beside")
        await cluster.add_pod("urgent", "[{}]", priorityClassName="train-high", nodeSelector={RACK: "b"})
        going = 3 if gated[0] == ALL else 1
        gone = set[str]()

        async def end() -> None:
            # As a kubelet does with pods that are being deleted.
            for name, pod in (await cluster.pods()).items():
                if pod.metadata.deletion_timestamp is not None:
                    gone.add(name)
                    await cluster.delete(name)

        async def placed() -> bool:
            await end()
            return await cluster.is_bound("urgent")

        await eventually(placed)
        await end()
    assert len(gone & {"m0", "m1", "m2"}) == going
    assert "beside" not in gone
