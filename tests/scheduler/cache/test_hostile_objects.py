"""What pods and nodes cost, hostile ones too: none takes more than its own size, and its deletion gives all back."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bench.loads.scheduler_load import node_name
from bench.scheduler_large import bound_pod, listed_node
from mooring import names
from mooring.annotations.inventory import Inventory, Out, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.events import Synced
from scheduler.kube.host_ports import pack_ports
from scheduler.kube.objects import Node, Pod
from tests.scheduler.conftest import BOOT, Json
from tests.scheduler.group_life import Life, binds

MIB = 1 << 20
Held = Callable[[], int]


@pytest.fixture
def held() -> Iterator[Held]:
    """Give a function that returns the bytes that are held now, numpy's arrays included."""

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    yield held
    tracemalloc.stop()


def _fill(life: Life, count: int) -> None:
    life.see(*(life.make_node(f"n{number}") for number in range(count)))


def _containers(requests: Json, **fields: Any) -> Json:
    return {"containers": [{"name": "c", "resources": {"requests": requests}, **fields}]}


def _pod(life: Life, requests: Json, node: str | None = None) -> Pod:
    return life.make_pod(node=node, spec=_containers(requests))


def _invented(prefix: str, count: int) -> Json:
    return {f"{prefix}.example/{number}": "1" for number in range(count)}


def test_resources_that_no_node_publishes_take_no_room_for_each_node(life: Life, held: Held) -> None:
    """Six pods with a node preset name 10,000 invented resources each, at 1,000 nodes."""
    _fill(life, 1000)
    before = held()
    pods = [_pod(life, _invented(f"tenant-{pod}", 10_000), f"n{pod}") for pod in range(6)]
    objects = held() - before
    life.see(*pods)
    assert held() - before < 3 * objects
    life.gone(*pods)
    del pods
    assert held() - before < MIB


def test_resources_that_a_node_publishes_go_with_it(life: Life, held: Held) -> None:
    """A node publishes 10,000 invented resources, another set each time; pods ask for some of them."""
    _fill(life, 500)
    before = held()
    for version in range(20):
        life.show_node("bad", allocatable=_invented(f"node-{version}", 10_000))
        pod = _pod(life, dict.fromkeys(_invented(f"node-{version}", 50), "2"))
        life.see(pod)
        assert not binds(life.machine.step(0.0) or ())
        life.gone(pod)
    life.remove_node("bad")
    assert held() - before < 2 * MIB


def test_only_the_last_version_of_an_inventory_is_kept(life: Life, held: Held) -> None:
    """One node publishes 40 versions, each with 600 VFs that are out for reasons of their own."""

    def publish(version: int) -> int:
        outs = tuple(Out(Indexes.of([index]), f"held by pod {version}-{index}", 1000) for index in range(600))
        text = dump_inventory(Inventory(BOOT, (life.make_pf(vfs=1000, out=outs),)))
        life.show_node("bad", annotations={names.INVENTORY: text})
        return len(text)

    publish(0)
    before = held()
    sizes = [publish(version) for version in range(1, 40)]
    assert held() - before < 4 * sizes[-1]
    life.remove_node("bad")
    assert held() < before


def test_amounts_do_not_wrap_however_much_bound_pods_request(life: Life) -> None:
    """1,100 pods of 8 Pi with a node preset are more than 64 bits hold: the node has less than nothing left."""
    life.show_node("n1", allocatable={"pods": "5000", "memory": "64Ti"})
    life.see(*(_pod(life, {"memory": "8Pi"}, "n1") for _ in range(1100)), _pod(life, {"memory": "1Gi"}))
    assert not binds(life.machine.step(0.0) or ())


def test_a_selector_of_labels_that_no_node_has_costs_no_pass_over_the_nodes(life: Life, held: Held) -> None:
    """999 expressions that hold on every node, since none has the labels, at 2,000 nodes."""
    _fill(life, 2000)
    terms = [{"matchExpressions": [{"key": name, "operator": "DoesNotExist"} for name in _invented("a", 999)]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    life.see(life.make_pod(spec={"affinity": {"nodeAffinity": required}}))
    before = held()
    assert binds(life.machine.step(0.0) or ())
    assert held() - before < MIB


def test_thousands_of_host_ports_take_little_room(held: Held) -> None:
    """Forty pods may have 4,096 each, on an address of its own or each on another."""
    before, numbers = held(), range(1, 4097)
    kept = [pack_ports([(number, "TCP", f"10.0.0.{pod}") for number in numbers]) for pod in range(40)]
    kept += [pack_ports([(number, "TCP", f"10.{pod}.0.{number}") for number in numbers]) for pod in range(40)]
    assert held() - before < 3 * MIB
    assert len(kept) == 80


def test_pods_that_all_differ_leave_nothing_when_they_are_gone(life: Life, held: Held) -> None:
    """1,500 waiting pods with requests and images of their own, at 1,000 nodes: a shape goes when it is unused."""
    _fill(life, 1000)
    before, most = held(), 0
    specs = [_containers({"cpu": f"{9000 + pod}m"}, image=f"i{pod}") for pod in range(1500)]
    pods = [life.make_pod(spec=spec) for spec in specs]
    life.see(*pods)
    while life.machine.step(0.0) is not None:
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    life.gone(*pods)
    pods.clear()
    specs.clear()
    life.machine.tick(100.0)
    assert most < 64 * MIB
    assert held() - before < 2 * MIB


NODES, PODS = 50, 1000
# 1 GiB for 5,000 nodes and 100,000 pods; 100 MiB of it are the program itself, 100 the lists while they are read.
MOST_BYTES_A_POD = 4_500


@pytest.fixture(scope="module")
def listed() -> tuple[list[bytes], list[bytes]]:
    """Give nodes and bound pods as an API server sends them, twenty pods a node."""
    nodes = [listed_node(number) for number in range(NODES)]
    pods = [bound_pod(number, node_name(number % NODES), number // NODES) for number in range(PODS)]
    return [msgspec.json.encode(node) for node in nodes], [msgspec.json.encode(pod) for pod in pods]


def _show(life: Life, nodes: list[bytes], pods: list[bytes]) -> None:
    for text in nodes:
        life.see(msgspec.json.decode(text, type=Node))
    for text in pods:
        life.see(msgspec.json.decode(text, type=Pod))


def test_a_bound_pod_takes_few_bytes(listed: tuple[list[bytes], list[bytes]], life: Life, held: Held) -> None:
    """A tenth of a gigabyte for ten thousand would be too much: what no plugin reads is not kept."""
    nodes, pods = listed
    _show(life.successor(), nodes, pods[:100])
    _show(life, nodes, [])
    before = held()
    _show(life, [], pods)
    assert (held() - before) / PODS < MOST_BYTES_A_POD


def test_deleted_objects_free_their_memory(listed: tuple[list[bytes], list[bytes]], life: Life, held: Held) -> None:
    (nodes, pods), sizes = listed, list[int]()
    for number in range(1, 6):
        _show(life, nodes, [text.replace(b"00000000-", b"%08x-" % number) for text in pods])
        life.machine.handle(Pod, Synced(()), float(number))
        sizes.append(held())
    # Not of each generation: in one of them the interpreter may double its table of interned strings.
    assert min(after - before for before, after in pairwise(sizes[1:])) < 25 * PODS
