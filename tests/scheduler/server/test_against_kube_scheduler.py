"""Decisions and messages of pending pods, word by word as of a real kube-scheduler on a real API server.

`bench.differential` takes many more random pods.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from bench import differential
from devcluster.processes import Processes
from tests.scheduler.server.cluster import NODES
from tests.scheduler.server.process import ALONE, RealCluster, binary, containing, kube_scheduler, scheduler

pytestmark = pytest.mark.apiserver
CASES = 10
# Pods that fit nowhere, and that preemption cannot help.
WAITING: dict[str, dict[str, Any]] = {
    "above-nobody": {"cpu": "2"},
    "above-too-few": {"cpu": "4", "priorityClassName": "words-middle"},
    "polite": {"cpu": "4", "priorityClassName": "words-polite"},
    "too-large": {"cpu": "64", "priorityClassName": "words-high"},
    "elsewhere": {"cpu": "1", "nodeSelector": {"disk": "none"}, "priorityClassName": "words-high"},
    "no-claim": {"cpu": "1", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]},
}


async def _add_pod(cluster: RealCluster, name: str, scheduler_name: str, cpu: str, **spec: Any) -> None:
    await cluster.add_pod(name, schedulerName=scheduler_name, **containing({"requests": {"cpu": cpu}}), **spec)


@pytest.fixture
async def cluster(real_cluster: RealCluster) -> RealCluster:
    """Give three nodes: one with a pod of high priority and one of low, one cordoned, one small."""
    for name, value in {"low": 10, "middle": 100, "high": 1000}.items():
        await real_cluster.add_priority_class(f"words-{name}", value)
    await real_cluster.add_priority_class("words-polite", 1000, "Never")
    for name, cpu in {"full": "4", "cordoned": "4", "small": "1"}.items():
        await real_cluster.add_rdma_node(name, allocatable={"cpu": cpu})
    await real_cluster.patch(f"{NODES}/cordoned", spec={"unschedulable": True})
    for name, cpu, node, priority in (
        ("important", "2", "full", "words-high"),
        ("unimportant", "1", "full", "words-low"),
        ("tiny", "500m", "small", "words-high"),
    ):
        await _add_pod(real_cluster, name, "default-scheduler", cpu, nodeName=node, priorityClassName=priority)
    return real_cluster


async def test_pending_pods_get_the_messages_of_kube_scheduler(cluster: RealCluster) -> None:
    """Its default profile without dynamic resources, which adds a message about every unschedulable pod."""
    plugins = {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    config = {"profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}]}
    async with kube_scheduler(config, cluster.kubeconfig, cluster.folder), scheduler(cluster, *ALONE):
        for name, spec in WAITING.items():
            for scheduler_name in ("default-scheduler", "mooring"):
                await _add_pod(cluster, f"{name}-{scheduler_name}", scheduler_name, **spec)
        expected = {name: await cluster.message_of(f"{name}-default-scheduler") for name in WAITING}
        assert {name: await cluster.message_of(f"{name}-mooring") for name in WAITING} == expected
    assert expected["above-too-few"].count("preemption: ") == 1


@pytest.mark.parametrize(("seed", "itself"), [(2, False), (3, True)], ids=["ours", "kube-scheduler itself"])
async def test_random_pods_are_decided_as_by_kube_scheduler(real_cluster: RealCluster, seed: int, itself: bool) -> None:
    """Bound where it can be, for the same victims, or waiting for the same reasons."""
    binary("kube-scheduler")
    assets, kubeconfig, folder = Path(os.environ["KUBEBUILDER_ASSETS"]), real_cluster.kubeconfig, real_cluster.folder
    processes = Processes(folder / "logs")
    try:
        differential.start(processes, assets, kubeconfig, folder, itself=itself)
        counts = await differential.run(kubeconfig, seed, CASES, nodes=6)
    finally:
        processes.stop()
    assert counts["bound"] + counts["unschedulable"] == CASES
    assert not counts["differences"]
