"""What a bound pod holds while the kubelet resizes it in place."""

from typing import Any

import pytest

from scheduler.cache.assigned_pod import read_assigned_pod
from scheduler.kube.objects import Pod
from scheduler.kube.resources import spec_in_force
from scheduler.state.machine import Machine
from tests.scheduler.state.steps import MakeNode, MakePod, binds, steps, take_in

Json = dict[str, Any]


def _status(actual: Json, allocated: Json | None = None, *, name: str = "c", pending: str = "") -> Json:
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    container = {"name": name, "resources": {"requests": actual}, "allocatedResources": allocated or actual}
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}


def _spec(requests: Json, **fields: Any) -> Json:
    return {"containers": [{"name": "c", "resources": {"requests": requests}}], **fields}


def _used(pod: Pod) -> Json:
    assigned_pod, faults = read_assigned_pod(pod)
    assert not faults
    return dict(assigned_pod.resources)


@pytest.mark.parametrize(
    ("actual", "allocated", "pending", "cpu"),
    [
        ("2", "2", "", 2000),
        ("4", "4", "", 4000),
        ("1", "4", "", 4000),
        ("4", "1", "", 4000),
        ("1", "1", "Deferred", 2000),
        ("1", "1", "Infeasible", 1000),
        ("1500m", "1", "Infeasible", 1500),
    ],
)
def test_a_container_holds_the_largest_of_spec_allocated_and_actual_and_an_infeasible_spec_does_not_count(
    actual: str, allocated: str, pending: str, cpu: int, make_pod: MakePod
) -> None:
    status = _status({"cpu": actual, "memory": "1Gi"}, {"cpu": allocated, "memory": "1Gi"}, pending=pending)
    pod = make_pod(node="n1", spec=_spec({"cpu": "2", "memory": "1Gi"}), status=status)
    assert _used(pod) == {"cpu": cpu, "memory": 1 << 30}


def test_each_resource_is_compared_by_itself(make_pod: MakePod) -> None:
    """The cpu grows while the memory shrinks: both the new cpu and the old memory are held."""
    status = _status({"cpu": "1", "memory": "4Gi"})
    pod = make_pod(node="n1", spec=_spec({"cpu": "3", "memory": "2Gi", "example.com/gpu": "1"}), status=status)
    assert _used(pod) == {"cpu": 3000, "memory": 4 << 30, "example.com/gpu": 1}


def test_sidecars_are_resized_and_other_init_containers_are_not(make_pod: MakePod) -> None:
    one_cpu = {"resources": {"requests": {"cpu": "1"}}}
    early = [{"name": "sidecar", "restartPolicy": "Always"} | one_cpu, {"name": "init"} | one_cpu]
    statuses = [
        {"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
        for name, cpu in (("sidecar", "3"), ("init", "9"))
    ]
    spec = _spec({"cpu": "1"}, initContainers=early)
    pod = make_pod(node="n1", spec=spec, status={"phase": "Running", "initContainerStatuses": statuses})
    assert _used(pod) == {"cpu": 4000}


def test_the_resources_of_the_pod_as_a_whole_are_resized_too(make_pod: MakePod) -> None:
    spec = _spec({"cpu": "1"}, resources={"requests": {"cpu": "2"}})
    status = {"phase": "Running", "resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "4"}}
    assert _used(make_pod(node="n1", spec=spec, status=status)) == {"cpu": 5000}


@pytest.mark.parametrize("shown", [{"cpu": "2"}, {}])
def test_a_status_that_shows_the_requests_or_nothing_leaves_the_spec_as_it_is(shown: Json, make_pod: MakePod) -> None:
    """So that replicas go on sharing what was read of one of them."""
    pod = make_pod(node="n1", spec=_spec({"cpu": "2"}), status=_status(shown))
    assert spec_in_force(pod) is pod.spec


def test_a_pod_that_shrinks_makes_room_only_once_the_kubelet_has_done_it(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """A pod shrinks from 6 cpus of 8 to 1: another one of 4 waits, and is bound when the kubelet has done it."""
    requests = _spec({"cpu": "1"})
    shrinking = make_pod("a", node="n1", spec=requests, status=_status({"cpu": "6"}), metadata={"uid": "a"})
    take_in(machine, make_node("n1"), shrinking, make_pod("b", spec=_spec({"cpu": "4"})))
    assert binds(steps(machine)) == []
    shrunk = make_pod("a", node="n1", spec=requests, status=_status({"cpu": "1"}), metadata={"uid": "a"})
    take_in(machine, shrunk, now=60.0)
    (bind,) = binds(steps(machine, 60.0))
    assert bind.assigned.node == "n1"
