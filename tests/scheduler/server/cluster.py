"""A cluster on an API server: what a test does to its objects, and what it reads of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from prometheus_client import REGISTRY

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import verified_assignment
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict
from scheduler.kube.objects import Condition, Node, Pod
from tests.scheduler.conftest import MakeNode, MakePf
from tests.support.polling import LIMIT_S, PAUSE_S

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mooring-scheduler"
T = TypeVar("T")
own_server_only = pytest.mark.parametrize("server", ["devcluster"], indirect=True)


async def when(read: Callable[[], Awaitable[T]], holds: Callable[[T], object]) -> T:
    """Read again and again until this holds; return what was read."""
    async with asyncio.timeout(LIMIT_S):
        while not holds(answer := await read()):
            await asyncio.sleep(PAUSE_S)
    return answer


@asynccontextmanager
async def beside(*coroutines: Coroutine[Any, Any, Any]) -> "AsyncIterator[list[asyncio.Task[Any]]]":
    """Run these beside a test, and cancel what has not ended."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def counter(name: str, **labels: str) -> float:
    """Return the value of a counter of this process."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


class Cluster:
    """A server; ``kubeconfig`` leads programs to it. The fixtures set what else a test needs beside it."""

    server: ApiServer
    make_node: MakeNode
    make_pf: MakePf

    def __init__(self, client: Client, kubeconfig: Path = Path()) -> None:
        self.client = client
        self.kubeconfig = kubeconfig

    def plan(self, *faults: Fault) -> None:
        for fault in faults:
            self.server.faults.plan(replace(fault))

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

    async def add_rdma_node(self, name: str = "n1", vfs: int = 0, **fields: Any) -> None:
        """Create a Ready node with a PF of so many VFs, if any."""
        await self.add_node(self.make_node(name, (self.make_pf(vfs=vfs),) if vfs else (), **fields))

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

    async def add_priority_class(self, name: str, value: int, policy: str = "PreemptLowerPriority") -> None:
        """Create a priority class, unless an earlier test on the same server has done so."""
        with suppress(Conflict):
            document = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            await self.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document)

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
        return await when(self.pods, lambda pods: all(pods[name].spec.node_name for name in wanted))

    async def bound_pod(self, name: str = "p") -> Pod:
        """Wait until a pod has a node; return it."""
        return (await self.bound(name))[name]

    async def going(self, *names: str) -> dict[str, Pod]:
        """Wait until these pods are being deleted; return all pods."""
        return await when(self.pods, lambda pods: all(pods[name].metadata.deletion_timestamp for name in names))

    async def condition(self, name: str = "p", kind: str = "PodScheduled") -> Condition | None:
        return (await self.pod(name)).condition(kind)

    async def reaches(self, name: str = "p", kind: str = "PodScheduled", **fields: str) -> Condition:
        """Wait until a pod's condition has these fields; return it."""

        def holds(condition: Condition | None) -> bool:
            return condition is not None and all(getattr(condition, key) == fields[key] for key in fields)

        condition = await when(lambda: self.condition(name, kind), holds)
        assert condition is not None
        return condition

    async def message_of(self, name: str = "p") -> str:
        """Wait until a pod's PodScheduled condition is False; return its message."""
        return (await self.reaches(name, status="False")).message or ""

    async def events(self, pod: str = "") -> list[Any]:
        """Return the events about a pod, or all."""
        items = (await self.call("GET", "/api/v1/events"))["items"]
        return [event for event in items if pod in ("", event["involvedObject"]["name"])]

    async def event(self, pod: str, *texts: str, reason: str = "") -> Any:
        """Wait for an event about a pod with one of these texts, and with this reason; return it."""

        def holds(event: Any) -> bool:
            return reason in ("", event["reason"]) and any(text in event["message"] for text in texts or ("",))

        events = await when(lambda: self.events(pod), lambda events: any(map(holds, events)))
        return next(filter(holds, events))

    async def clear(self, *paths: str) -> None:
        """Remove all objects of these collections, those with finalizers too."""
        for path in paths:
            for item in (await self.call("GET", path))["items"]:
                if item["metadata"].get("finalizers"):
                    await self.patch(f"{path}/{item['metadata']['name']}", metadata={"finalizers": None})
            await self.client.request("DELETE", path, params={"gracePeriodSeconds": "0"})


def given_vfs(pod: Pod) -> list[tuple[str, int]]:
    """Return the VFs of a bound pod, each with its PF."""
    assignment = verified_assignment(pod.annotations, pod.metadata.uid, pod.spec.node_name or "")
    assert assignment is not None
    return [(vf.pf, vf.vf) for vf in assignment.vfs]


def all_given_vfs(pods: Mapping[str, Pod]) -> list[tuple[str, str, int]]:
    """Return the VFs of all bound pods, each with its node and PF; no VF may be given twice."""
    given = [(pod.spec.node_name, *vf) for pod in pods.values() if pod.spec.node_name for vf in given_vfs(pod)]
    assert len(given) == len(set(given))
    return given
