"""PodGroups of a real API server: what it keeps of them by its feature gates, and where their pods start."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.served import apiservers
from mooring.kube.access import load_access
from mooring.kube.client import Client
from tests.scheduler.server.cluster import Cluster, when
from tests.scheduler.server.process import ALONE, scheduler

pytestmark = pytest.mark.apiserver
API = "scheduling.k8s.io/v1alpha2"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
RACK = "example.com/rack"
FEW = "GenericWorkload=true"
ALL = f"{FEW},GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true"
SPEC: dict[str, Any] = {
    "schedulingPolicy": {"gang": {"minCount": 3}},
    "schedulingConstraints": {"topology": [{"key": RACK}]},
    "disruptionMode": "PodGroup",
}


@pytest.fixture
async def cluster(gates: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Give a cluster with these gates, of two racks: one has VFs for two pods, the other for four."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS is not set, and KUBECONFIG's cluster has its own gates")
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if "v1.36." not in (version := apiservers.version(assets)):
        pytest.skip(f"tier 'apiserver': {version} is not 1.36, which serves {API}")
    flags = ("--feature-gates", gates, "--runtime-config", f"{API}=true")
    with apiservers.real(assets, tmp_path, *flags) as kubeconfig:
        async with Client(load_access(str(kubeconfig))) as client:
            cluster = Cluster(client, kubeconfig)
            for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
                await cluster.add_rdma_node(name, vfs=2, labels={RACK: rack})
            yield cluster


@pytest.mark.parametrize("gates", [FEW, ALL], ids=["few gates", "all gates"])
async def test_members_wait_for_their_pod_group_and_start_together(gates: str, cluster: Cluster) -> None:
    """In one rack, if the PodGroup can require it; and its condition is True then.

    An API server drops fields without their feature gate, and returns no error: docs/jobs.md tells the reader.
    """
    async with scheduler(cluster, *ALONE):
        for name in ("m0", "m1", "m2"):
            await cluster.add_pod(name, "[{}]", schedulingGroup={"podGroupName": "train"})
        why = "group train: its PodGroup (scheduling.k8s.io) does not exist, or the API server does not serve that API"
        assert await cluster.message_of("m0") == why
        await cluster.call("POST", GROUPS, {"metadata": {"name": "train"}, "spec": SPEC})
        kept = (await cluster.call("GET", f"{GROUPS}/train"))["spec"]
        assert kept["schedulingPolicy"] == SPEC["schedulingPolicy"]
        optional = kept.get("schedulingConstraints"), kept["disruptionMode"], kept.get("priority")
        assert optional == ((SPEC["schedulingConstraints"], "PodGroup", 0) if gates == ALL else (None, "Pod", None))
        pods = await cluster.bound("m0", "m1", "m2")

        async def conditions() -> list[tuple[str, str]]:
            shown = (await cluster.call("GET", f"{GROUPS}/train")).get("status", {}).get("conditions", [])
            return [(one["type"], one["reason"]) for one in shown if one["status"] == "True"]

        assert (await when(conditions, bool))[0] == ("PodGroupScheduled", "Scheduled")
    assert {pod.spec.node_name for pod in pods.values()} == {"b1", "b2"} or gates == FEW
