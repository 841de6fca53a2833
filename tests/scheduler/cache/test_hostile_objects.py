"""What hostile pods and nodes cost: no object may take more than its own size, and its deletion gives all back."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from mooring.annotations.inventory import Inventory, Out, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod

MIB = 1 << 20


def _put(machine: Machine, pod: Pod) -> None:
    machine.pods(Changed(Identity(pod.metadata.name, "default", pod.metadata.uid), pod), 0.0)


def _remove(machine: Machine, pod: Pod) -> None:
    machine.pods(Removed(Identity(pod.metadata.name, "default", pod.metadata.uid)), 0.0)


def _requesting(make_pod: MakePod, requests: dict[str, str], node: str | None = None) -> Pod:
    containers: list[Any] = [{"name": "c", "resources": {"requests": requests}}]
    return make_pod(node=node, spec={"nodeName": node, "containers": containers})


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
    machine: Machine, make_node: MakeNode, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """Six pods with a node preset name 10,000 invented resources each, at 1,000 nodes."""
    for number in range(1000):
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}")), 0.0)
    before = traced()
    pods = [
        _requesting(make_pod, {f"tenant-{pod}.example/{number}": "1" for number in range(10_000)}, f"n{pod}")
        for pod in range(6)
    ]
    objects = traced() - before
    for pod in pods:
        _put(machine, pod)
    assert traced() - before < 3 * objects
    for pod in pods:
        _remove(machine, pod)
    del pods, pod
    assert traced() - before < MIB


def test_resources_that_a_node_publishes_go_with_it(
    machine: Machine, make_node: MakeNode, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """A node publishes 10,000 invented resources, another set each time; pods ask for some of them."""
    for number in range(500):
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}")), 0.0)
    before = traced()

    def publish(version: int) -> None:
        published = {f"node-{version}.example/{number}": "1" for number in range(10_000)}
        machine.nodes(Changed(Identity("bad"), make_node("bad", allocatable=published)), 0.0)
        pod = _requesting(make_pod, {f"node-{version}.example/{number}": "2" for number in range(50)})
        _put(machine, pod)
        assert not any(isinstance(one, Bind) for one in machine.step(0.0) or ())
        _remove(machine, pod)

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
        node = make_node("bad", annotations={"mooring.dev/inventory": text})
        machine.nodes(Changed(Identity("bad"), node), 0.0)
        return len(text)

    publish(0)
    before = traced()
    sizes = [publish(version) for version in range(1, 40)]
    assert traced() - before < 4 * sizes[-1]
    machine.nodes(Removed(Identity("bad")), 0.0)
    assert traced() < before


def test_a_pod_that_requests_too_many_kinds_of_resource_is_refused_in_words(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Each kind that is asked for is compared on every node."""
    machine.nodes(Changed(Identity("n1"), make_node()), 0.0)
    _put(machine, _requesting(make_pod, {f"example.com/{number}": "1" for number in range(61)}))
    told = " ".join(str(one) for one in machine.step(0.0) or ())
    assert "61 kinds of resource are requested; the limit is 60" in told


def test_amounts_do_not_wrap_however_much_bound_pods_request(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """1,100 pods of 8 Pi with a node preset are more than 64 bits hold: the node has less than nothing left."""
    machine.nodes(Changed(Identity("n1"), make_node(allocatable={"pods": "5000", "memory": "64Ti"})), 0.0)
    for _ in range(1100):
        _put(machine, _requesting(make_pod, {"memory": "8Pi"}, "n1"))
    waiting = _requesting(make_pod, {"memory": "1Gi"})
    _put(machine, waiting)
    assert not any(isinstance(one, Bind) for one in machine.step(0.0) or ())


def test_a_selector_of_labels_that_no_node_has_costs_no_pass_over_the_nodes(
    machine: Machine, make_node: MakeNode, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """999 expressions that hold on every node, since none has the labels, at 2,000 nodes."""
    for number in range(2000):
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}")), 0.0)
    expressions = [{"key": f"example.com/{number}", "operator": "DoesNotExist"} for number in range(999)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = make_pod(spec={"affinity": affinity})
    _put(machine, pod)
    before = traced()
    assert any(isinstance(one, Bind) for one in machine.step(0.0) or ())
    assert traced() - before < MIB


def test_a_pod_with_too_many_requirements_on_nodes_is_refused_in_words(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """20,000 keys of a nodeSelector took 16 s at 2,000 nodes."""
    machine.nodes(Changed(Identity("n1"), make_node()), 0.0)
    _put(machine, make_pod(spec={"nodeSelector": {f"example.com/{number}": "x" for number in range(20_000)}}))
    told = " ".join(str(one) for one in machine.step(0.0) or ())
    assert "20000 node requirements exceed the limit of 1000" in told


def test_pods_that_all_differ_leave_nothing_when_they_are_gone(
    machine: Machine, make_node: MakeNode, make_pod: MakePod, traced: Callable[[], int]
) -> None:
    """1,500 waiting pods with requests and images of their own, at 1,000 nodes: a shape goes when it is unused."""
    for number in range(1000):
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}")), 0.0)
    before, most = traced(), 0
    pods = [
        make_pod(
            spec={
                "containers": [{"name": "c", "image": f"i{pod}", "resources": {"requests": {"cpu": f"{9000 + pod}m"}}}]
            }
        )
        for pod in range(1500)
    ]
    for pod in pods:
        _put(machine, pod)
    while machine.step(0.0) is not None:
        most = max(most, tracemalloc.get_traced_memory()[0] - before)
    for pod in pods:
        _remove(machine, pod)
    pods.clear()
    machine.tick(100.0)
    assert most < 64 * MIB
    assert traced() - before < 2 * MIB
