"""A cluster on an API server: what a test does to its objects, and what it reads of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from mooring import names
from mooring.annotations.assignment import verified_assignment
from mooring.kube.client import MERGE_PATCH, Client
from scheduler.kube.objects import Condition, Node, Pod
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine
from tests.support.polling import eventually

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mooring-scheduler"


class Cluster:
    """A server; ``kubeconfig`` leads programs to it."""

    def __init__(self, client: Client, kubeconfig: Path = Path()) -> None:
        self.client = client
        self.kubeconfig = kubeconfig

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a document, of PATCH a merge patch; return the answer's document."""
        data = b"" if body is None else msgspec.json.encode(body)
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        return msgspec.json.decode(await self.client.request(method, path, data, kind))

    async def patch(self, path: str, **fields: Any) -> Any:
        return await self.call("PATCH", path, fields)

    async def add_node(self, node: Node) -> None:
        """Create a node as a kubelet would, without the taint that a controller takes off."""
        document = msgspec.to_builtins(node)
        metadata = {name: document["metadata"].get(name) for name in ("name", "annotations", "labels")}
        await self.call("POST", NODES, {"metadata": metadata})
        path = f"{NODES}/{node.metadata.name}"
        await self.patch(path, spec={"taints": None})
        status = {name: document["status"][name] for name in ("allocatable", "conditions", "nodeInfo")}
        await self.patch(f"{path}/status", status=status)

    async def add_pod(
        self,
        name: str = "p",
        request: str | None = None,
        annotations: Mapping[str, str] | None = None,
        *,
        namespace: str = "default",
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Pod:
        asked = {} if request is None else {names.REQUEST: request}
        about = {"name": name, "annotations": {**asked, **(annotations or {})}, **(metadata or {})}
        whole = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}], **spec}
        path = f"/api/v1/namespaces/{namespace}/pods"
        return msgspec.convert(await self.call("POST", path, {"metadata": about, "spec": whole}), Pod)

    async def annotate(self, name: str, **annotations: str) -> None:
        await self.patch(f"{PODS}/{name}", metadata={"annotations": annotations})

    async def bind(self, name: str, annotations: Mapping[str, str] | None = None, node: str = "n1") -> None:
        """Bind a pod as a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        about = {"name": name, "annotations": dict(annotations or {})}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
        await self.call("POST", f"{PODS}/{name}/binding", binding)

    async def delete(self, name: str) -> None:
        await self.client.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    async def pod(self, name: str = "p") -> Pod:
        return msgspec.convert(await self.call("GET", f"{PODS}/{name}"), Pod)

    async def pods(self) -> dict[str, Pod]:
        pods = msgspec.convert((await self.call("GET", PODS))["items"], list[Pod])
        return {pod.metadata.name: pod for pod in pods}

    async def is_bound(self, name: str = "p") -> bool:
        return bool((await self.pod(name)).spec.node_name)

    async def bound(self, *wanted: str) -> dict[str, Pod]:
        """Wait until these pods have nodes; return all pods."""

        async def found() -> dict[str, Pod] | None:
            pods = await self.pods()
            return pods if all(pods[name].spec.node_name for name in wanted) else None

        return await eventually(found)

    async def bound_pod(self, name: str = "p") -> Pod:
        """Wait until a pod has a node; return it."""
        return (await self.bound(name))[name]

    async def condition(self, name: str = "p", kind: str = "PodScheduled") -> Condition | None:
        return (await self.pod(name)).condition(kind)

    async def message_of(self, name: str = "p") -> str:
        """Wait until a pod's PodScheduled condition is False; return its message."""

        async def found() -> str | None:
            condition = await self.condition(name)
            return condition.message if condition is not None and condition.status == "False" else None

        return await eventually(found)

    async def events(self, pod: str = "") -> list[Any]:
        """Return the events about a pod, or all."""
        items = (await self.call("GET", "/api/v1/events"))["items"]
        return [event for event in items if pod in ("", event["involvedObject"]["name"])]


def given_vfs(pod: Pod) -> list[tuple[str, int]]:
    """Return the VFs of a bound pod, each with its PF."""
    assignment = verified_assignment(pod.annotations, pod.metadata.uid, pod.spec.node_name or "")
    assert assignment is not None
    return [(vf.pf, vf.vf) for vf in assignment.vfs]


@asynccontextmanager
async def following(
    machine: Machine,
    client: Client,
    leaders: Client | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    may_decide: Callable[[], bool] = lambda: True,
) -> AsyncIterator[tuple[Loop, "asyncio.Task[bool]"]]:
    """Run a loop with this machine; it must end once it is stopped, and what the machine keeps is checked then."""
    loop = Loop(machine, ApiClients(client, leaders or client), ReportWriter(client, "mooring"), clock, may_decide)
    running = asyncio.create_task(loop.run())
    try:
        yield loop, running
    finally:
        loop.stop()
        async with asyncio.timeout(90):
            await running
        machine.check()
