"""What hostile pods and nodes cost: no object may take more than its own size, and its deletion gives all back."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from mooring.annotations.inventory import Inventory, Out, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import binds
from tests.scheduler.state.steps import remove, take_in

MIB = 1 << 20


Fill = Callable[[int], object]


@pytest.fixture
def fill(machine: Machine, make_node: MakeNode) -> Fill:
    """Let so many plain nodes come."""
    return lambda count: take_in(machine, *(make_node(f"n{number}") for number in range(count)))


def _containers(requests: Json, **fields: Any) -> list[Json]:
    return [{"name": "c", "resources": {"requests": requests}, **fields}]


def _requesting(make_pod: MakePod, requests: Json, node: str | None = None) -> Pod:
    return make_pod(node=node, spec={"nodeName": node, "containers": _containers(requests)})


@pytest.fixture
def traced() -> Any:
    """Give a function that returns the bytes that are held now, numpy's arrays included."""

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    yield held
    tracemalloc.stop()


def test_resources_that_no_node_publishes_take_no_room_for_each_node(
    machine: Machine, fill: Fill, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """Six pods with a node preset name 10,000 invented resources each, at 1,000 nodes."""
    fill(1000)
    before = traced()
    pods = [
        _requesting(make_pod, {f"tenant-{pod}.example/{number}": "1" for number in range(10_000)}, f"n{pod}")
        for pod in range(6)
    ]
    objects = traced() - before
    take_in(machine, *pods)
    assert traced() - before < 3 * objects
    for pod in pods:
        remove(machine, pod)
    del pods, pod
    assert traced() - before < MIB


def test_resources_that_a_node_publishes_go_with_it(
    machine: Machine, fill: Fill, make_node: MakeNode, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """A node publishes 10,000 invented resources, another set each time; pods ask for some of them."""
    fill(500)
    before = traced()

    def publish(version: int) -> None:
        published = {f"node-{version}.example/{number}": "1" for number in range(10_000)}
        take_in(machine, make_node("bad", allocatable=published))
        pod = _requesting(make_pod, {f"node-{version}.example/{number}": "2" for number in range(50)})
        take_in(machine, pod)
        assert not binds(machine.step(0.0) or ())
        remove(machine, pod)

    for version in range(20):
        publish(version)
    machine.nodes(Removed(Identity("bad")), 0.0)
    assert traced() - before < 2 * MIB


def test_only_the_last_version_of_an_inventory_is_kept(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, traced: Callable[[], int]
) -> None:
    """One node publishes 40 versions, each with 600 VFs that are out for reasons of their own."""

    def publish(version: int) -> int:
        outs = tuple(Out(Indexes.of([index]), f"held by pod {version}-{index}", 1000) for index in range(600))
        text = dump_inventory(Inventory("boot-1", (make_pf(vfs=1000, out=outs),)))
        take_in(machine, make_node("bad", annotations={"mooring.dev/inventory": text}))
        return len(text)

    publish(0)
    before = traced()
    sizes = [publish(version) for version in range(1, 40)]
    assert traced() - before < 4 * sizes[-1]
    machine.nodes(Removed(Identity("bad")), 0.0)
    assert traced() < before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        # Each kind is compared on every node.
        (
            {"containers": _containers({f"example.com/{number}": "1" for number in range(61)})},
            "61 kinds of resource are requested; the limit is 60",
        ),
        # They took 16 s at 2,000 nodes.
        (
            {"nodeSelector": {f"example.com/{number}": "x" for number in range(20_000)}},
            "20000 node requirements exceed the limit of 1000",
        ),
    ],
    ids=["resources", "node requirements"],
)
def test_a_pod_that_requests_too_much_is_refused_in_words(
    spec: Json, message: str, machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    take_in(machine, make_node(), make_pod(spec=spec))
    assert message in " ".join(map(str, machine.step(0.0) or ()))


def test_amounts_do_not_wrap_however_much_bound_pods_request(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """1,100 pods of 8 Pi with a node preset are more than 64 bits hold: the node has less than nothing left."""
    take_in(machine, make_node(allocatable={"pods": "5000", "memory": "64Ti"}))
    for _ in range(1100):
        take_in(machine, _requesting(make_pod, {"memory": "8Pi"}, "n1"))
    waiting = _requesting(make_pod, {"memory": "1Gi"})
    take_in(machine, waiting)
    assert not binds(machine.step(0.0) or ())


def test_a_selector_of_labels_that_no_node_has_costs_no_pass_over_the_nodes(
    machine: Machine, fill: Fill, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """999 expressions that hold on every node, since none has the labels, at 2,000 nodes."""
    fill(2000)
    expressions = [{"key": f"example.com/{number}", "operator": "DoesNotExist"} for number in range(999)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = make_pod(spec={"affinity": affinity})
    take_in(machine, pod)
    before = traced()
    assert binds(machine.step(0.0) or ())
    assert traced() - before < MIB


def test_pods_that_all_differ_leave_nothing_when_they_are_gone(
    machine: Machine, fill: Fill, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """1,500 waiting pods with requests and images of their own, at 1,000 nodes: a shape goes when it is unused."""
    fill(1000)
    before, most = traced(), 0
    pods = [
        make_pod(spec={"containers": _containers({"cpu": f"{9000 + pod}m"}, image=f"i{pod}")}) for pod in range(1500)
    ]
    take_in(machine, *pods)
    while machine.step(0.0) is not None:
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    for pod in pods:
        remove(machine, pod)
    pods.clear()
    machine.tick(100.0)
    assert most < 64 * MIB
    assert traced() - before < 2 * MIB
