"""Quantities become integers as apimachinery has them; what a bound pod holds while the kubelet resizes it in place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cache.assigned_pod import read_assigned_pod
from scheduler.kube.objects import Pod, PodSpec
from scheduler.kube.resources import MAX_AMOUNT, parse_quantity, parse_resources, pod_requests, spec_in_force
from tests.scheduler.conftest import Json, MakePod
from tests.scheduler.group_life import Life, binds, bound_names


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        ("1", 1000, 1000),
        ("100m", 1000, 100),
        ("0.1", 1000, 100),
        (".5", 1000, 500),
        ("1.0001", 1000, 1001),
        ("100u", 1000, 1),
        ("2Gi", 1, 2 << 30),
        ("1k", 1, 1000),
        ("1e3", 1, 1000),
        ("1E3", 1, 1000),
        ("1E", 1, 10**18),
        ("1500m", 1, 2),
        ("9e99", 1, 2**63 - 1),
        ("-1", 1, -1),
        (4, 1, 4),
        (0.5, 1000, 500),
    ],
)
def test_quantities_are_rounded_up_to_whole_units(text: str | float, parts: int, expected: int) -> None:
    """A part of a unit counts as one, and nothing exceeds 64 bits."""
    assert parse_quantity(text, parts) == expected


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1GiB", "0x10", "1e999", "NaN", "1,5", "\u0661"])
def test_an_invalid_quantity_is_refused_with_its_resource(text: str) -> None:
    with pytest.raises(ValueError, match=r"resource 'cpu': .* is not a quantity"):
        parse_resources({"cpu": text})


def test_chosen_resources_are_read_in_the_order_of_their_names() -> None:
    """So that of several unreadable ones it is always the same that is reported."""
    names = [f"example.com/{letter}" for letter in "hgfedcba"]
    spec = PodSpec(overhead=dict.fromkeys(names, "1"))
    assert list(pod_requests(spec, names=frozenset(names))) == names[::-1]


def test_an_amount_of_a_resource_is_not_below_0_nor_beyond_all_nodes() -> None:
    """So the amounts of all pods of a node add up, and no pod gives a node what it does not have."""
    assert parse_resources({"memory": "9Ei"}) == {"memory": MAX_AMOUNT}
    with pytest.raises(ValueError, match="resource 'cpu': '-1' is below 0"):
        parse_resources({"cpu": "-1"})


@given(st.text())
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        amount = parse_quantity(text)
    except ValueError:
        return
    assert abs(amount) < 2**63


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


def _resized(**cpus: str) -> list[Json]:
    return [
        {"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
        for name, cpu in cpus.items()
    ]


TWO, MIXED = _spec({"cpu": "2"}), _spec({"cpu": "3", "memory": "2Gi", "example.com/gpu": "1"})
CPU: Json = {"resources": {"requests": {"cpu": "1"}}}
INIT: Json = {"initContainers": [{"name": "sidecar", "restartPolicy": "Always"} | CPU, {"name": "init"} | CPU]}
POD_LEVEL: Json = {"resources": {"requests": {"cpu": "2"}}}
FIRST_INIT: Json = {"phase": "Running", "initContainerStatuses": _resized(sidecar="3", init="9")}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        (TWO, _status({"cpu": "2"}), {"cpu": 2000}),
        (TWO, _status({"cpu": "4"}), {"cpu": 4000}),
        (TWO, _status({"cpu": "1"}, {"cpu": "4"}), {"cpu": 4000}),
        (TWO, _status({"cpu": "4"}, {"cpu": "1"}), {"cpu": 4000}),
        (TWO, _status({"cpu": "1"}, pending="Deferred"), {"cpu": 2000}),
        (TWO, _status({"cpu": "1"}, pending="Infeasible"), {"cpu": 1000}),
        (TWO, _status({"cpu": "1500m"}, {"cpu": "1"}, pending="Infeasible"), {"cpu": 1500}),
        (TWO, _status({}, pending="Infeasible"), {}),
        # Each resource by itself: the cpu grows while the memory shrinks.
        (MIXED, _status({"cpu": "1", "memory": "4Gi"}), {"cpu": 3000, "memory": 4 << 30, "example.com/gpu": 1}),
        # Sidecars and the pod as a whole are resized, and other init containers are not.
        (_spec({"cpu": "1"}, **INIT), FIRST_INIT, {"cpu": 4000}),
        (_spec({"cpu": "1"}, **POD_LEVEL), {"phase": "Running"} | _resized(pod="5")[0], {"cpu": 5000}),
    ],
)
def test_a_container_holds_the_largest_of_spec_allocated_and_actual_and_an_infeasible_spec_does_not_count(
    spec: Json, status: Json, expected: Json, make_pod: MakePod
) -> None:
    assert _used(make_pod(node="n1", spec=spec, status=status)) == expected


@pytest.mark.parametrize("shown", [{"cpu": "2"}, {}])
def test_a_status_that_shows_the_requests_or_nothing_leaves_the_spec_as_it_is(shown: Json, make_pod: MakePod) -> None:
    """So that replicas go on sharing what was read of one of them."""
    pod = make_pod(node="n1", spec=_spec({"cpu": "2"}), status=_status(shown))
    assert spec_in_force(pod) is pod.spec


def test_a_pod_that_shrinks_makes_room_only_once_the_kubelet_has_done_it(life: Life) -> None:
    """A pod shrinks from 6 cpus of 8 to 1: another one of 4 waits, and is bound when the kubelet has done it."""

    def show(actual: str) -> None:
        fields: Json = {"spec": _spec({"cpu": "1"}), "status": _status({"cpu": actual}), "metadata": {"uid": "a"}}
        life.see(life.make_pod("a", node="n1", **fields))

    life.see(life.make_node("n1"))
    show("6")
    life.see(life.make_pod("b", spec=_spec({"cpu": "4"})))
    assert binds(life.work()) == []
    show("1")
    assert bound_names(life.work(60.0)) == ["b"]
