"""Messages of pending pods, word by word as of a real kube-scheduler on the same nodes of a real API server."""

from contextlib import suppress
from typing import Any

import pytest

from mooring.kube.failures import Conflict
from scheduler.kube.objects import Node
from tests.scheduler.conftest import MakeNode
from tests.scheduler.server.cluster import NODES, Cluster
from tests.scheduler.server.http.kube_scheduler import RealCluster, kube_scheduler, mooring_scheduler

pytestmark = pytest.mark.apiserver
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# Other tests have classes too, on the same server.
CLASSES: dict[str, dict[str, Any]] = {
    "words-low": {"value": 10},
    "words-middle": {"value": 100},
    "words-high": {"value": 1000},
    "words-polite": {"value": 1000, "preemptionPolicy": "Never"},
}
# Pods that fit nowhere, and that preemption cannot help.
WAITING: dict[str, dict[str, Any]] = {
    "above-nobody": {"cpu": "2"},
    "above-too-few": {"cpu": "4", "priorityClassName": "words-middle"},
    "polite": {"cpu": "4", "priorityClassName": "words-polite"},
    "too-large": {"cpu": "64", "priorityClassName": "words-high"},
    "elsewhere": {"cpu": "1", "nodeSelector": {"disk": "none"}, "priorityClassName": "words-high"},
    "no-claim": {"cpu": "1", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]},
}


async def _add_node(cluster: Cluster, node: Node, **spec: Any) -> None:
    await cluster.add_node(node)
    await cluster.patch(f"{NODES}/{node.metadata.name}", spec=spec)


async def _add_pod(cluster: Cluster, name: str, scheduler: str, cpu: str, **spec: Any) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    await cluster.add_pod(name, schedulerName=scheduler, containers=[container], **spec)


@pytest.fixture
async def cluster(real_cluster: RealCluster, make_node: MakeNode) -> RealCluster:
    """Give three nodes: one with a pod of high priority and one of low, one cordoned, one small."""
    for name, fields in CLASSES.items():
        with suppress(Conflict):
            await real_cluster.call("POST", PRIORITY_CLASSES, {"metadata": {"name": name}} | fields)
    for name, cpu in (("full", "4"), ("cordoned", "4"), ("small", "1")):
        node = make_node(name, allocatable={"cpu": cpu})
        await _add_node(real_cluster, node, unschedulable=name == "cordoned")
    for name, cpu, node_name, kind in (
        ("important", "2", "full", "high"),
        ("unimportant", "1", "full", "low"),
        ("tiny", "500m", "small", "high"),
    ):
        fields = {"nodeName": node_name, "priorityClassName": f"words-{kind}"}
        await _add_pod(real_cluster, name, "default-scheduler", cpu, **fields)
    return real_cluster


async def test_pending_pods_get_the_messages_of_kube_scheduler(cluster: RealCluster) -> None:
    """Its default profile without dynamic resources, which adds a message about every unschedulable pod."""
    plugins = {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    theirs = kube_scheduler(config, cluster.kubeconfig, cluster.folder)
    async with theirs, mooring_scheduler(cluster.kubeconfig):
        for name, spec in WAITING.items():
            for scheduler in ("default-scheduler", "mooring"):
                await _add_pod(cluster, f"{name}-{scheduler}", scheduler, **spec)
        expected = {name: await cluster.message_of(f"{name}-default-scheduler") for name in WAITING}
        assert {name: await cluster.message_of(f"{name}-mooring") for name in WAITING} == expected
    assert expected["above-too-few"].count("preemption: ") == 1
