"""Time what a kube-scheduler's requests cost the scheduler that is its extender.

    python -m bench.extender [--nodes 5000] [--calls 5]

What is timed is the answer from bytes to bytes, in CPU time of its thread: for the sample of nodes that kube-scheduler
takes by default and for all of them, named and sent whole.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names
from mooring.kube.access import Access
from mooring.kube.client import Client
from mooring.kube.events import Changed, Identity
from scheduler.kube.objects import Node
from scheduler.server.http.extender_handlers import ExtenderHandlers
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.state.machine import Machine

_NOW = 1_800_000_000.0
# The bytes of a node's JSON beside its inventory, as on a real node.
_ELSE = 6000
# kube-scheduler looks for so many feasible nodes of 5,000: percentageOfNodesToScore.
_SAMPLE = 0.1


def _questions(nodes: Sequence[Json]) -> dict[str, bytes]:
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    annotations = {names.REQUEST: '[{"min_tx_rate": 1000}, {}]'}
    pod = {"metadata": metadata | {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}}
    whole = [node | {"more": "x" * _ELSE} for node in nodes]
    return {
        "named": msgspec.json.encode({"Pod": pod, "NodeNames": [node["metadata"]["name"] for node in nodes]}),
        "whole": msgspec.json.encode({"Pod": pod, "Nodes": {"items": whole}}),
    }


async def _time(answer: Callable[[bytes], Awaitable[bytes]], body: bytes, calls: int) -> float:
    """Return the milliseconds of the fastest call."""
    taken = []
    for _ in range(calls):
        began = time.thread_time()
        await answer(body)
        taken.append(time.thread_time() - began)
    return min(taken) * 1000


async def _run(count: int, calls: int) -> None:
    machine = Machine("mooring")
    documents = [load.node(number) for number in range(count)]
    for document in documents:
        node = msgspec.convert(document, Node)
        machine.nodes(Changed(Identity(node.metadata.name), node), _NOW)
    client = Client(Access("http://127.0.0.1:9"))
    clients = ApiClients(client, client)
    loop = Loop(machine, clients, ReportWriter(client, "mooring"), lambda: _NOW)
    extender_handlers = ExtenderHandlers(machine.extender_pods, loop, clients, lambda: _NOW)
    for size in (int(count * _SAMPLE), count):
        for form, body in _questions(documents[:size]).items():
            for verb, answer in (("filter", extender_handlers.filter), ("prioritize", extender_handlers.prioritize)):
                spent = await _time(answer, body, calls)
                print(f"{verb:10} {size:6} nodes, {form}, {len(body) / 1e6:5.1f} MB: {spent:6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the extender's answers.")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(_run(options.nodes, options.calls))


if __name__ == "__main__":
    main()
