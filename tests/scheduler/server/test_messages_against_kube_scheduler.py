"""Messages of pending pods, word by word as of a real kube-scheduler on the same nodes of a real API server."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.served.apiservers import free_ports
from mooring.kube.access import Access, load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict
from scheduler.kube.objects import Pod
from tests.scheduler.server.http.kube_scheduler import PODS, running
from tests.support.polling import eventually
from tests.support.relay import Relay

pytestmark = pytest.mark.apiserver
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


class Site:
    """Three nodes: one with a pod of high priority and one of low, one cordoned, one small."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self._client = client
        self.kubeconfig = kubeconfig

    async def furnish(self) -> None:
        for name, fields in CLASSES.items():
            await self._post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}} | fields)
        for name, cpu in (("full", "4"), ("cordoned", "4"), ("small", "1")):
            await self._add_node(name, cpu, unschedulable=name == "cordoned")
        await self.add_pod("important", "default-scheduler", cpu="2", nodeName="full", priorityClassName="words-high")
        await self.add_pod("unimportant", "default-scheduler", cpu="1", nodeName="full", priorityClassName="words-low")
        await self.add_pod("tiny", "default-scheduler", cpu="500m", nodeName="small", priorityClassName="words-high")

    async def add_pod(self, name: str, scheduler: str, cpu: str, **spec: Any) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        body = {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]} | spec}
        await self._post(PODS, body)

    async def message_of(self, name: str) -> str:
        async def found() -> str | None:
            pod = msgspec.json.decode(await self._client.request("GET", f"{PODS}/{name}"), type=Pod)
            said = (one for one in pod.status.conditions or () if one.type == "PodScheduled" and one.message)
            return next((one.message for one in said), None)

        return await eventually(found)

    async def _add_node(self, name: str, cpu: str, *, unschedulable: bool) -> None:
        await self._post("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"unschedulable": unschedulable}})
        path = f"/api/v1/nodes/{name}"
        allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        for where, patch in ((path, {"spec": {"taints": None}}), (f"{path}/status", {"status": status})):
            await self._client.request("PATCH", where, msgspec.json.encode(patch), MERGE_PATCH)

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        try:
            await self._client.request("POST", path, msgspec.json.encode(body))
        except Conflict:
            assert "priorityclasses" in path


@pytest.fixture
async def site(own_server: Path) -> AsyncIterator[Site]:
    async with Relay(load_access(str(own_server))) as relay:
        await relay.empty()
        async with Client(Access(relay.url), timeout_s=10.0) as client:
            site = Site(client, own_server)
            await site.furnish()
            yield site


async def test_pending_pods_get_the_messages_of_kube_scheduler(site: Site, tmp_path: Path) -> None:
    """Its default profile without dynamic resources, which adds a message about every unschedulable pod."""
    (secure,) = free_ports(1)
    plugins = {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(site.kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    (written := tmp_path / "config.json").write_text(msgspec.json.encode(config).decode())
    by = ("--authentication-kubeconfig", "--authorization-kubeconfig")
    theirs = [f"--config={written}", f"--secure-port={secure}", "--bind-address=127.0.0.1", f"--cert-dir={tmp_path}"]
    theirs += [f"{flag}={site.kubeconfig}" for flag in by]
    ours = ["-m", "scheduler", f"--kubeconfig={site.kubeconfig}", "--leader-elect=false", "--metrics-addr="]
    binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kube-scheduler"
    if not binary.exists():
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-scheduler")
    async with running(str(binary), theirs), running(sys.executable, ours):
        for name, spec in WAITING.items():
            for scheduler in ("default-scheduler", "mooring"):
                await site.add_pod(f"{name}-{scheduler}", scheduler, **spec)
        expected = {name: await site.message_of(f"{name}-default-scheduler") for name in WAITING}
        assert {name: await site.message_of(f"{name}-mooring") for name in WAITING} == expected
    assert expected["above-too-few"].count("preemption: ") == 1
