"""The scheduler as a process, beside an API server."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from mooring import names
from mooring.kube.client import MERGE_PATCH, Client
from scheduler.kube.objects import Node, Pod
from tests.support.polling import eventually

PODS = "/api/v1/namespaces/default/pods"
# Against hanging; a lease runs out within 15 s.
PATIENCE_S = 90.0


class Cluster:
    """A server with nodes, and the ways in which a test acts on it."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self._client = client
        self.kubeconfig = kubeconfig

    async def add_node(self, node: Node) -> None:
        """Create a node as a kubelet would, without the taint that a controller takes off."""
        document = msgspec.to_builtins(node)
        metadata = {name: document["metadata"].get(name) for name in ("name", "annotations", "labels")}
        await self._client.request("POST", "/api/v1/nodes", msgspec.json.encode({"metadata": metadata}))
        path = f"/api/v1/nodes/{node.metadata.name}"
        await self._patch(path, {"spec": {"taints": None}})
        status = {name: document["status"][name] for name in ("allocatable", "conditions", "nodeInfo")}
        await self._patch(f"{path}/status", {"status": status})

    async def add_pod(
        self,
        name: str,
        request: str | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        asked = {} if request is None else {names.REQUEST: request}
        body = {
            "metadata": {"name": name, "annotations": {**asked, **(annotations or {})}, "labels": labels or {}},
            "spec": {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}], **spec},
        }
        await self._client.request("POST", PODS, msgspec.json.encode(body))

    async def annotate(self, name: str, request: str) -> None:
        await self._patch(f"{PODS}/{name}", {"metadata": {"annotations": {names.REQUEST: request}}})

    async def delete(self, name: str) -> None:
        await self._client.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    async def pods(self) -> dict[str, Pod]:
        items = msgspec.json.decode(await self._client.request("GET", PODS))["items"]
        return {pod.metadata.name: pod for pod in msgspec.convert(items, list[Pod])}

    async def events(self) -> list[Any]:
        items: list[Any] = msgspec.json.decode(await self._client.request("GET", "/api/v1/events"))["items"]
        return items

    async def bound(self, *wanted: str) -> dict[str, Pod]:
        """Wait until these pods have nodes; return all pods."""

        async def found() -> dict[str, Pod] | None:
            pods = await self.pods()
            return pods if all(pods[name].spec.node_name for name in wanted) else None

        return await eventually(found)

    async def message_of(self, name: str) -> str:
        """Wait until a pod's PodScheduled condition is False; return its message."""

        async def found() -> str | None:
            conditions = (await self.pods())[name].status.conditions or []
            messages = [one.message for one in conditions if one.type == "PodScheduled" and one.status == "False"]
            return messages[0] if messages else None

        return await eventually(found)

    async def _patch(self, path: str, patch: Any) -> None:
        await self._client.request("PATCH", path, msgspec.json.encode(patch), MERGE_PATCH)


@asynccontextmanager
async def running(cluster: Cluster, *flags: str) -> AsyncIterator[Process]:
    """Run a scheduler; it must end by itself after SIGTERM."""
    arguments = ["-m", "scheduler", "--kubeconfig", str(cluster.kubeconfig), "--metrics-addr", "", *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(90):
            await process.communicate()


ALONE = ("--leader-elect", "false")


class Scheduler:
    """One process, and its log lines."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(json.loads(line))

    def has_said(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.said if one["event"] == event]

    def waited_s(self) -> float:
        """Return how long after it began to lead it bound its first pod, in seconds of its own clock."""
        leading, bound = (self.has_said(event)[0]["ts"] for event in ("leading", "pod bound"))
        return (datetime.fromisoformat(bound) - datetime.fromisoformat(leading)).total_seconds()

    async def saying(self, event: str) -> None:
        """Wait for this log event."""

        async def found() -> bool | None:
            return bool(self.has_said(event)) or None

        await eventually(found, PATIENCE_S)

    async def end(self) -> int:
        """Wait for its end, all that it has said included."""
        async with asyncio.timeout(90):
            status = await self.process.wait()
            await self._reading
        return status


@asynccontextmanager
async def scheduler(kubeconfig: Path, metrics_addr: str = "", *flags: str) -> AsyncIterator[Scheduler]:
    """Run a scheduler and read its log."""
    arguments = ["-m", "scheduler", "--kubeconfig", str(kubeconfig), "--metrics-addr", metrics_addr, *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=PIPE)
    scheduler = Scheduler(process)
    try:
        yield scheduler
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        await scheduler.end()
