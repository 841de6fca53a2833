"""The memory of a large cluster: counted per pod, so that a small cluster shows it."""

import gc
import tracemalloc
from itertools import pairwise

import msgspec
import pytest

from bench.loads.scheduler_load import node_name
from bench.scheduler_large import bound_pod, listed_node
from mooring.kube.events import Synced
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.state.steps import take_in

NODES, PODS = 50, 1000
# 1 GiB for 5,000 nodes and 100,000 pods; 100 MiB of it are the program itself, 100 the lists while they are read.
MOST_BYTES_A_POD = 4_500


@pytest.fixture(scope="module")
def documents() -> tuple[list[bytes], list[bytes]]:
    """Give nodes and bound pods as an API server sends them, twenty pods a node."""
    nodes = [listed_node(number) for number in range(NODES)]
    pods = [bound_pod(number, node_name(number % NODES), number // NODES) for number in range(PODS)]
    return [msgspec.json.encode(node) for node in nodes], [msgspec.json.encode(pod) for pod in pods]


def _fill(machine: Machine, nodes: list[bytes], pods: list[bytes]) -> None:
    for text in nodes:
        take_in(machine, msgspec.json.decode(text, type=Node))
    for text in pods:
        take_in(machine, msgspec.json.decode(text, type=Pod))


def test_a_bound_pod_takes_few_bytes(documents: tuple[list[bytes], list[bytes]]) -> None:
    """A tenth of a gigabyte for ten thousand would be too much: what no plugin reads is not kept."""
    nodes, pods = documents
    _fill(Machine("mooring"), nodes, pods[:100])
    machine = Machine("mooring")
    _fill(machine, nodes, [])
    gc.collect()
    tracemalloc.start()
    try:
        _fill(machine, [], pods)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / PODS < MOST_BYTES_A_POD
    finally:
        tracemalloc.stop()
    machine.check()


def test_deleted_objects_free_their_memory(documents: tuple[list[bytes], list[bytes]]) -> None:
    nodes, pods = documents
    machine, sizes = Machine("mooring"), list[int]()
    try:
        for number in range(1, 6):
            _fill(machine, nodes, [text.replace(b"00000000-", b"%08x-" % number) for text in pods])
            machine.handle(Pod, Synced(()), float(number))
            gc.collect()
            if number == 1:
                tracemalloc.start()
            else:
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # Not of each generation: in one of them the interpreter may double its table of interned strings.
    assert min(after - before for before, after in pairwise(sizes)) < 25 * PODS
