"""A cluster behind an API server, filled and emptied for a benchmark, and a watch on how fast its pods are bound."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench.loads import scheduler_load as load
from mooring import names
from mooring.kube.client import JSON, MERGE_PATCH, Client
from scheduler.server.pb.binding_pb2 import ObjectMeta
from scheduler.server.writes import MEDIA_TYPE, encode

# An extended resource of every node, as many as it has VFs.
COUNTED = "example.com/vf"
PODS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"
_EVENTS = "/api/v1/namespaces/default/events"
_AT_ONCE = 32
# As many as the scheduler's.
BINDS_AT_ONCE = 128
_STALLED_S = 60.0
# An assignment of 2 VFs.
_ASSIGNMENT_BYTES = 500
_POLL_S = 0.1


async def add_nodes(client: Client, nodes: Iterable[load.Json]) -> None:
    """Create nodes; their first taint, which a controller would remove, goes too."""
    await few_at_once(_add_node(client, node) for node in nodes)


async def _add_node(client: Client, node: load.Json) -> None:
    path = f"{_NODES}/{node['metadata']['name']}"
    counted = {**node["status"]["allocatable"], COUNTED: str(load.VFS_A_NODE)}
    await send(client, "POST", _NODES, {"metadata": node["metadata"]})
    await send(client, "PATCH", path, {"spec": {"taints": node["spec"].get("taints")}})
    await send(
        client, "PATCH", f"{path}/status", {"status": {**node["status"], "allocatable": counted, "capacity": counted}}
    )


async def add_pods(client: Client, pods: Iterable[load.Json]) -> None:
    await add(client, PODS, pods)


async def add(client: Client, path: str, documents: Iterable[load.Json]) -> None:
    """Create objects of one path."""
    await few_at_once(send(client, "POST", path, document) for document in documents)


async def send(client: Client, method: str, path: str, document: load.Json) -> None:
    await client.request(method, path, msgspec.json.encode(document), MERGE_PATCH if method == "PATCH" else JSON)


async def few_at_once(work: Iterable[Coroutine[Any, Any, object]], at_once: int = _AT_ONCE) -> None:
    left = iter(work)

    async def one_by_one() -> None:
        for one in left:
            await one

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_by_one())


async def clear(client: Client, *paths: str) -> None:
    """Delete all objects of each path, pods and events by themselves, and wait until they are gone."""
    for path in paths or (PODS, _EVENTS):
        deadline = time.monotonic() + _STALLED_S
        while await count(client, path):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path}: not empty {_STALLED_S:.0f} s after its deletion")
            await client.request("DELETE", path, params={"gracePeriodSeconds": "0"})


async def bind_all(client: Client) -> float:
    """Bind all pods with ready-made Bindings as large as the scheduler's; return the binds a second."""
    return await write_bindings(client, await bindings(client))


async def bindings(client: Client) -> list[tuple[str, bytes]]:
    """Return the path and the body of a Binding for each pod, as our scheduler's, to one node after another."""
    pods = await items(client, PODS)
    targets = itertools.cycle(node["metadata"]["name"] for node in await items(client, _NODES))
    return [_binding(pod["metadata"], target) for pod, target in zip(pods, targets, strict=False)]


async def write_bindings(client: Client, made: Sequence[tuple[str, bytes]]) -> float:
    """Write Bindings, a few at once; return how many a second were seen."""
    async with watching_binds(client) as binds:
        await few_at_once((client.request("POST", path, body, MEDIA_TYPE) for path, body in made), BINDS_AT_ONCE)
        await binds.reach(len(made))
    return binds.rate


def _binding(pod: load.Json, node: str) -> tuple[str, bytes]:
    annotations = {names.ASSIGNMENT: "x" * _ASSIGNMENT_BYTES}
    metadata = ObjectMeta(name=pod["name"], namespace="default", uid=pod["uid"], annotations=annotations)
    return f"{PODS}/{pod['name']}/binding", encode(metadata, node)


async def items(client: Client, path: str) -> list[load.Json]:
    """List a path whole."""
    return list(msgspec.json.decode(await client.request("GET", path))["items"] or [])


async def count_events(client: Client) -> int:
    return await count(client, _EVENTS)


async def count(client: Client, path: str) -> int:
    page = msgspec.json.decode(await client.request("GET", path, params={"limit": "1"}))
    return len(page["items"] or []) + int(page["metadata"].get("remainingItemCount") or 0)


@dataclass(slots=True)
class Binds:
    """When each pod was seen bound, on the monotonic clock."""

    times: list[float] = field(default_factory=list)

    async def reach(self, wanted: int) -> None:
        """Wait for so many binds; raise TimeoutError if none comes for a minute."""
        seen, since = -1, time.monotonic()
        while len(self.times) < wanted:
            if len(self.times) != seen:
                seen, since = len(self.times), time.monotonic()
            if time.monotonic() - since > _STALLED_S:
                raise TimeoutError(f"{seen} of {wanted} pods were bound, and no more for {_STALLED_S:.0f} s")
            await asyncio.sleep(_POLL_S)

    @property
    def rate(self) -> float:
        """Binds a second from the first to the last."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


class _Metadata(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    resource_version: str


class _Versioned(msgspec.Struct):
    metadata: _Metadata


class _Change(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: _Versioned


@asynccontextmanager
async def watching_binds(client: Client) -> AsyncIterator[Binds]:
    """Watch the bound pods of an empty cluster."""
    binds = Binds()
    ready = asyncio.Event()

    async def follow() -> None:
        selected = {"watch": "true", "fieldSelector": "spec.nodeName!=", "resourceVersion": await _version(client)}
        # A server ends the watch of a client that it finds too slow.
        while True:
            async with client.stream(PODS, selected, 3600.0) as batches:
                ready.set()
                async for lines in batches:
                    changes = [msgspec.json.decode(line, type=_Change) for line in lines]
                    # An object enters the selection when it is bound: the server calls that ADDED.
                    binds.times += [time.monotonic()] * sum(change.type == "ADDED" for change in changes)
                    selected["resourceVersion"] = changes[-1].object.metadata.resource_version

    task = asyncio.create_task(follow())
    try:
        await ready.wait()
        yield binds
    finally:
        task.cancel()


async def _version(client: Client) -> str:
    page = msgspec.json.decode(await client.request("GET", PODS, params={"limit": "1"}))
    return str(page["metadata"]["resourceVersion"])
