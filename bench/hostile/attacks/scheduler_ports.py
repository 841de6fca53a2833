"""What a neighbour on the network can do to the scheduler's ports, where neither policy nor TLS keeps him from them."""

import json
from collections.abc import AsyncIterator

from bench.hostile.attack import attack
from bench.hostile.stage import Stage, http
from bench.loads import scheduler_load as load
from mooring import names

_FILTER, _BIND = "/scheduler/filter", "/scheduler/bind"


@attack("metrics-half-open", "900 requests of /metrics are begun and never ended")
async def metrics_half_open(stage: Stage) -> AsyncIterator[None]:
    """The kubelet probes the same port."""
    async with stage.held(stage.metrics_port, 900, b"GET /metrics HTTP/1.1\r\nHost: x\r\n"):
        yield


@attack("metrics-flood", "64 clients ask for /metrics as fast as they are answered")
async def metrics_flood(stage: Stage) -> AsyncIterator[None]:
    """The thread that answers is the one that decides."""
    async with stage.flooded(stage.metrics_port, 64, http("GET", "/metrics")):
        yield


@attack("metrics-connections", "64 clients connect to the metrics' port and leave, as fast as they can")
async def metrics_connections(stage: Stage) -> AsyncIterator[None]:
    """Each is accepted, and closed."""
    async with stage.flooded(stage.metrics_port, 64, b""):
        yield


@attack("extender-connections", "64 clients connect to the extender and leave, as fast as they can")
async def extender_connections(stage: Stage) -> AsyncIterator[None]:
    """Its limits are larger."""
    async with stage.flooded(stage.extender_port, 64, b""):
        yield


@attack("extender-half-open", "900 requests of the extender are begun and never ended")
async def extender_half_open(stage: Stage) -> AsyncIterator[None]:
    """Each with a part of its body."""
    begun = f"POST {_FILTER} HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n".encode()
    async with stage.held(stage.extender_port, 900, begun + b"x" * 1000):
        yield


@attack("extender-bodies", "16 requests of the extender send 16 MiB of their bodies and then nothing")
async def extender_bodies(stage: Stage) -> AsyncIterator[None]:
    """Together four times what may be held."""
    begun = f"POST {_FILTER} HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n".encode()
    async with stage.held(stage.extender_port, 16, begun + b"x" * (16 << 20)):
        yield


@attack("extender-filters", "16 clients let the extender judge every node for a pod with 23 rates, again and again")
async def extender_filters(stage: Stage) -> AsyncIterator[None]:
    """The most costly thing that it is asked."""
    wanted = json.dumps([{"min_tx_rate": 33_250 + 7 * (number % 11)} for number in range(23)])
    metadata = {"name": "p", "namespace": "default", "uid": "u", "annotations": {names.REQUEST: wanted}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    nodes = [load.node_name(number) for number in range(stage.nodes)]
    body = json.dumps({"Pod": pod, "NodeNames": nodes}).encode()
    async with stage.flooded(stage.extender_port, 16, http("POST", _FILTER, body)):
        yield


@attack("extender-binds", "64 clients let the extender bind a pod that is not there, again and again")
async def extender_binds(stage: Stage) -> AsyncIterator[None]:
    """Each is looked for in the API."""
    binding = {"PodName": "nobody", "PodNamespace": "default", "PodUID": "u-1", "Node": load.node_name(0)}
    async with stage.flooded(stage.extender_port, 64, http("POST", _BIND, json.dumps(binding).encode())):
        yield
