"""What a pod's owner may change at any time makes no group urgent."""

from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, changed

# 11:00 on the day; pods are created in the hours before.
NOW = 1_767_265_200.0
GROUP = '{"name":"%s","min":%d}'


@pytest.fixture
def full(life: Life) -> Life:
    """A cluster whose only room is taken, by a pod that ends."""
    life.now = NOW
    life.nodes("n1", vfs=4)
    life.see(life.make_pod("last", [{}, {}, {}, {}]))
    life.bound(*binds(life.work()))
    return life


def _member(life: Life, name: str, group: str, hour: int, **fields: Any) -> Pod:
    metadata = {"creationTimestamp": f"2026-01-01T{hour:02}:00:00Z"} | fields.pop("metadata", {})
    return life.member(name, group, metadata=metadata, **fields)


def _first_bound(life: Life) -> str:
    """End the pod that takes all room; return which group is bound."""
    (last,) = (one for one in life.machine.cache.assigned_pods() if one.pod.endswith("/last"))
    life.machine.pods(Removed(Identity("last", "default", last.uid)), life.now)
    made = [one for _ in range(8) for one in binds(life.work(2.5))]
    (group,) = {one.pod_info.pod.metadata.name.partition("-")[0] for one in made}
    return group


def _annotated(pod: Pod, group: str) -> Pod:
    return changed(pod, metadata={"annotations": {**pod.annotations, names.GROUP: group}})


def test_a_member_that_changes_what_it_asks_for_keeps_its_age(full: Life) -> None:
    """It stays in its group."""
    members = [_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)]
    full.see(*members)
    full.see(*(_member(full, f"young-{number}", GROUP % ("young", 2), 5) for number in range(2)))
    full.work(1.0)
    full.see(*(_annotated(one, '{"name":"old","min":2,"rails":"same"}') for one in members))
    assert _first_bound(full) == "old"


def _on_a_node(life: Life, name: str, group: str, **spec: Any) -> Pod:
    return _member(life, name, group, 6, request=None, node="n1", spec=spec)


def test_a_pod_that_names_a_group_when_it_has_a_node_does_not_make_it_urgent(full: Life) -> None:
    """A group of which a start was cut short comes before older ones; this one was never begun."""
    lone = _on_a_node(full, "runs", "")
    full.see(lone)
    full.see(*(_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)))
    full.see(*(_member(full, f"young-{number}", GROUP % ("young", 3), 5) for number in range(2)))
    full.see(_annotated(lone, GROUP % ("young", 3)))
    assert _first_bound(full) == "old"


def test_nor_does_one_that_was_placed_when_less_was_asked_for(full: Life) -> None:
    """It started with all that it needed; then its owner asks for more."""
    full.see(_on_a_node(full, "runs", GROUP % ("young", 1)))
    full.see(*(_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)))
    full.see(*(_member(full, f"young-{number}", GROUP % ("young", 3), 5) for number in range(2)))
    assert _first_bound(full) == "old"


def test_nor_does_one_that_asks_for_more_itself_when_it_has_a_node(full: Life) -> None:
    """Its annotation asks for more than it started with: the group counts as before."""
    lone = _on_a_node(full, "runs", GROUP % ("young", 1))
    full.see(lone, _annotated(lone, GROUP % ("young", 3)))
    full.see(*(_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)))
    full.see(*(_member(full, f"young-{number}", GROUP % ("young", 3), 5) for number in range(2)))
    assert _first_bound(full) == "old"


def test_nor_does_one_that_another_scheduler_has_placed(full: Life) -> None:
    """Mooring has not begun that group: it is no half group that would come first."""
    full.see(_on_a_node(full, "runs", GROUP % ("young", 3), schedulerName="default-scheduler"))
    full.see(*(_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)))
    full.see(*(_member(full, f"young-{number}", GROUP % ("young", 3), 5) for number in range(2)))
    assert _first_bound(full) == "old"


def test_nor_does_a_pod_group_that_asks_for_more_than_when_it_started(full: Life) -> None:
    """Its owner can change minCount as well."""
    named = {"schedulingGroup": {"podGroupName": "young"}}
    full.pod_group("young", schedulingPolicy={"gang": {"minCount": 1}})
    full.see(_member(full, "young-0", "", 5, request=None, spec=named))
    full.bound(*binds(full.work()))
    full.see(*(_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)))
    full.pod_group("young", schedulingPolicy={"gang": {"minCount": 3}})
    full.see(*(_member(full, f"young-{number}", "", 5, spec=named) for number in (1, 2)))
    assert _first_bound(full) == "old"


def test_a_start_that_a_crash_has_cut_short_comes_first(full: Life) -> None:
    """The new leader finds one that was placed with the others' min."""
    full.see(_on_a_node(full, "runs", GROUP % ("young", 3)))
    full.see(*(_member(full, f"old-{number}", GROUP % ("old", 2), 3) for number in range(2)))
    full.see(*(_member(full, f"young-{number}", GROUP % ("young", 3), 5) for number in range(2)))
    assert _first_bound(full) == "young"
